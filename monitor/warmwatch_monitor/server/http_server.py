"""The HTTP server: puts address, TLS, credentials and host names around the application."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import note
from warmwatch_monitor.server.protection import OPEN, Protection, ProtectionFiles
from warmwatch_monitor.settings import Address, Settings
from warmwatch_monitor.sources.listed import Source, polled

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warmwatch_monitor.server.guard import Audit

_POLL_SECONDS = 1.0
WEB_CONFIG = "web_config"


class HttpServer:
    """The HTTP server of this daemon, as its settings protect it.

    Raises:
        UsageError: the file of ``--web-config`` cannot be used.
    """

    def __init__(self, settings: Settings, audit: Audit | None = None) -> None:
        self._settings, self._audit = settings, audit
        path = settings.web_config
        self._files = None if path is None else ProtectionFiles(path, _log)

    @property
    def sources(self) -> tuple[Source[Any], ...]:
        """The file of ``--web-config``: a change that cannot be used shows as a source's health."""
        return () if self._files is None else (polled(WEB_CONFIG, _POLL_SECONDS, self.reload),)

    def protection(self) -> Protection:
        """The protection in force."""
        return OPEN if self._files is None else self._files.current

    def reload(self) -> None:
        """Read the file of ``--web-config`` now.

        Raises:
            SourceError: it cannot be used; the earlier protection stays in force.
        """
        if self._files is not None:
            self._files.reload()

    def checked(self, bound: tuple[Any, ...]) -> Address:
        """The address to listen on, after a check that it is protected.

        Raises:
            UsageError: other machines can reach it, and it requires no credentials.
        """
        from warmwatch_monitor.server.guard import is_loopback

        address, now = self._settings.address, self.protection()
        if address.tls and now.tls is None:
            raise UsageError(
                f"serving {address.url} requires a TLS certificate; "
                "give --web-config FILE with tls_server_config"
            )
        self._beyond = not is_loopback(bound[0])
        if self._beyond and not now.authenticates and not self._settings.insecure:
            raise UsageError(
                f"{address} can be reached from other machines and requires no authentication; "
                "give --web-config FILE with users, tokens or client certificates, or listen on "
                "127.0.0.1, or give --insecure if every client may read everything"
            )
        return replace(address, port=bound[1], tls=now.tls is not None)

    def serve(
        self,
        app: ASGIApp,
        listeners: Iterable[socket.socket],
        leave: Callable[[], None],
        is_leaving: Callable[[], bool],
    ) -> None:
        """Answer with ``app`` until a signal; ``leave`` then ends all waits.

        ``is_leaving``: whether a signal came before it could be handled here.
        """
        from warmwatch_monitor.server.connections import Connections, most_connections
        from warmwatch_monitor.server.guard import Guard
        from warmwatch_monitor.server.uvicorn_server import Server, raise_descriptor_limit

        room = Connections(most_connections(raise_descriptor_limit()), _log)
        guard = Guard(app, self.protection, self._names(), self._audit)

        def leave_all() -> None:
            leave()
            if self._files is not None:
                self._files.leave()

        server = Server(guard, listeners, room, self.protection, leave_all, guard.recheck)
        server.serve_until_signal(is_leaving)

    def _names(self) -> Callable[[Protection], frozenset[str] | None]:
        """The accepted host names, by the protection in force."""
        from warmwatch_monitor.server.guard import allowed_names, own_names

        chosen = self._settings.allowed_hosts
        names = allowed_names(self._settings.address.host, *own_names(beyond=self._beyond), *chosen)
        return lambda now: None if now.authenticates and not chosen else names


def _log(message: str) -> None:
    note(f"warmwatch: {message}")
