"""HTTP of one connection: uvicorn's protocol, with bounds and progress reports."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from warmwatch_monitor.server.connections import Connections
from warmwatch_monitor.server.guard import BEGAN, CERTIFICATE
from warmwatch_monitor.server.peers import LOCAL_UID
from warmwatch_monitor.server.protection import Protection

_LONGEST_REQUEST = 65_536
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class Protocol(HttpToolsProtocol):
    """uvicorn's own protocol, which also reports the state of its connection.

    One request at a time: anything that a client sends before its answer is discarded, and the
    connection ends after that answer, so that such clients retry. The alternatives are to store it,
    or not to read it, and then a disconnect would not be noticed.
    """

    def __init__(
        self,
        connections: Connections,
        number: int,
        began: Protection,
        local_uid: int | None,
        **own: Any,
    ) -> None:
        super().__init__(app_state={BEGAN: began, LOCAL_UID: local_uid}, **own)
        self._all, self._number = connections, number
        self._taken = 0  # bytes since the last answer
        self._too_early = False
        self.began = began

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state[CERTIFICATE] = _subject(transport.get_extra_info("peercert"))
        self._all.becomes(self._number, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.closed(self._number)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._all.stuck(self._number)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all.moves(self._number, answering=self._answering)

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)
        if self._taken <= _LONGEST_REQUEST:
            if not self._too_early:
                super().data_received(data)
        elif self._answering:
            self.transport.abort()
        else:
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        if self._answering:
            self._too_early = True
            self.cycle.keep_alive = False
        else:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._too_early:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._too_early:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._too_early:
            self._all.requested(self._number)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._too_early:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._too_early:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._taken = 0
        self._all.answered(self._number)


def _subject(certificate: dict[str, Any] | None) -> str | None:
    """The common name of a client's certificate, in the format of ``getpeercert``."""
    names = dict(pair for part in (certificate or {}).get("subject", ()) for pair in part)
    return names.get("commonName")
