"""The guard without a daemon, for cases that depend on timing."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

from warmwatch_monitor.server.credentials import Client
from warmwatch_monitor.server.guard import Guard
from warmwatch_monitor.server.peers import LOCAL_UID
from warmwatch_monitor.server.protection import Protection


class Revoking:
    """Credentials that are known, and that are taken away while they are looked at."""

    challenges = ("Bearer",)

    def __init__(self, revoke: Any) -> None:
        self._revoke = revoke

    async def identify(self, _given: bytes, _peer: object = None) -> Client:
        self._revoke()
        return Client(name="once")


class Unknown:
    challenges = ("Bearer",)

    async def identify(self, _given: bytes, _peer: object = None) -> None:
        return None


def test_a_client_that_is_admitted_during_a_lockout_does_not_proceed() -> None:
    """A password takes its time: what protects may have changed meanwhile."""
    after = Protection(credentials=Unknown())  # type: ignore[arg-type]
    now = [after]
    now[0] = Protection(
        credentials=Revoking(lambda: now.__setitem__(0, after))  # type: ignore[arg-type]
    )
    sent: list[Any] = []

    async def endless(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5):
            await send({"type": "http.response.body", "body": b"reply", "more_body": True})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "headers": [(b"authorization", b"Bearer once")],
    }
    guard = Guard(endless, lambda: now[0], lambda _: None)

    async def request() -> None:
        with suppress(OSError):  # so it ends an answer
            await guard(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(request())
    assert not any(message.get("body") == b"reply" for message in sent)


class Known:
    challenges = ("Bearer",)

    async def identify(self, given: bytes, _peer: object = None) -> Client | None:
        return Client(name="prometheus") if given == b"Bearer right" else None


def test_each_access_is_logged_with_the_client_s_name_if_credentials_are_required() -> None:
    noted: list[tuple[str, str | None, str, int | None]] = []
    now = [Protection(credentials=Known())]  # type: ignore[arg-type]

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(_message: Any) -> None:
        """Discard the answer."""

    guard = Guard(answer, lambda: now[0], lambda _: None, lambda *one: noted.append(one))

    def ask(path: str, token: bytes) -> None:
        headers = [(b"authorization", b"Bearer " + token)]
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
        asyncio.run(guard({**scope, "client": ("10.0.0.7", 4711)}, None, send))  # type: ignore[arg-type]

    ask("/status", b"right")
    ask("/metrics", b"wrong")
    ask("/-/healthy", b"")
    now[0] = Protection()
    ask("/status", b"")
    assert noted == [
        ("10.0.0.7", "prometheus", "/status", None),
        ("10.0.0.7", None, "/metrics", 401),
    ]


def test_a_local_user_without_a_known_uid_needs_the_certificate_that_tcp_requires() -> None:
    """The kernel shows the users of other user namespaces as 65534."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    statuses = []

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    guard = Guard(answer, lambda: Protection(tls=context), lambda _: None)
    for uid in (None, 65_534, 0):  # over TCP the handshake has checked the certificate
        scope = {"type": "http", "method": "GET", "path": "/status", "headers": []}
        asyncio.run(guard({**scope, "state": {LOCAL_UID: uid}}, None, send))  # type: ignore[arg-type]
    assert statuses == [200, 401, 200]
