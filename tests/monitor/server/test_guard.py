"""The guard without a daemon."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from warmwatch_monitor.server.guard import LOCAL, Guard, Protection

PROTECTED = Protection(token=hashlib.sha256(b"right").digest())
SCOPE = {"type": "http", "method": "GET", "path": "/status", "headers": []}


def bearer(token: bytes) -> dict[str, Any]:
    return {**SCOPE, "headers": [(b"authorization", b"Bearer " + token)]}


async def answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


def status(guard: Guard, scope: dict[str, Any]) -> int:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(guard(scope, None, send))  # type: ignore[arg-type]
    return int(sent[0]["status"])


def test_each_access_is_logged_if_a_token_is_required() -> None:
    noted: list[tuple[str, str, int | None]] = []
    now = [PROTECTED]
    guard = Guard(answer, lambda: now[0], None, lambda *one: noted.append(one))
    for path, token in (("/status", b"right"), ("/metrics", b"wrong"), ("/-/healthy", b"")):
        status(guard, {**bearer(token), "path": path, "client": ("10.0.0.7", 4711)})
    status(guard, {**SCOPE, "client": None, "state": {LOCAL: True}})
    now[0] = Protection()
    status(guard, {**SCOPE, "client": ("10.0.0.7", 4711)})
    assert noted == [
        ("10.0.0.7", "/status", None),
        ("10.0.0.7", "/metrics", 401),
        ("local", "/status", None),
    ]


def test_the_socket_needs_no_token() -> None:
    """Its mode lets only root and the daemon's user connect."""
    guard = Guard(answer, lambda: PROTECTED, None)
    expected = {True: 200, False: 401}
    found = {local: status(guard, {**SCOPE, "state": {LOCAL: local}}) for local in expected}
    assert found == expected
