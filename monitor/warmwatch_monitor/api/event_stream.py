"""``GET /events`` as a streaming HTTP response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from warmwatch_monitor.api.waiters import disconnected

_PART = 1 << 16  # sent ahead to a slow reader, in addition to the kernel's buffers
_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would buffer events
}


class EventStream(Response):
    """Sends what ``events`` yields, until the client disconnects or loses its access."""

    media_type = "text/event-stream"  # for /docs

    # FastAPI reads the status for /docs from this signature
    def __init__(self, events: AsyncGenerator[bytes, None], status_code: int = 200) -> None:
        super().__init__(status_code=status_code, headers=dict(_HEADERS))
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        left = asyncio.ensure_future(disconnected(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait((left, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            sending.cancel()
            await asyncio.wait((left, sending))
        if not sending.cancelled() and (problem := sending.exception()):
            raise problem

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        body = {"type": "http.response.body", "more_body": True}
        try:
            await send({**start, "headers": self.raw_headers})
            async with aclosing(self._events) as events:
                async for content in events:
                    for at in range(0, len(content), _PART):
                        await send({**body, "body": content[at : at + _PART]})
            await send({"type": "http.response.body", "body": b""})
        except OSError:
            return  # the server has ended it
