"""Requests: methods, paths, query strings, headers; through the guard and the real application."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from fuzz.choices import Choices
from support import builders
from support.web import TOKEN
from warmwatch_monitor.server.api.app import Api
from warmwatch_monitor.server.guard import OPEN, Guard, Protection
from warmwatch_monitor.status.goals import GOALS

_METHODS = ("GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "", "get", "G\xcbT")
_PATHS = ("/status", "/metrics", "/", "/-/healthy", "/-/ready", "/docs", "/openapi.json", "/events")
_NAMES = (b"run", b"wait", b"timeout", b"Run", b"", b"run[]", b"%72un")
_VALUES = (
    *(
        b"gpt2",
        b"gpt2@root",
        b"bert",
        b"",
        b"%00",
        b"%",
        b"%ff%fe",
        b"%ed%a0%80",
        b"+",
        b"*",
        b"g*",
    ),
    *(
        b"0",
        b"0.001",
        b"1e-300",
        b"-1",
        b"3600",
        b"3601",
        b"nan",
        b"inf",
        b"1e999",
        b"9" * 5000,
        b"1_0",
    ),
    *(goal.encode() for goal in GOALS),
)
_HEADERS = (b"accept", b"accept-encoding", b"host", b"authorization", b"content-length", b"x-y")
_HEADER_VALUES = (
    *(
        b"gzip",
        b"gzip;q=0",
        b"*",
        b"application/openmetrics-text; version=1.0.0",
        b"text/plain;q=nan",
    ),
    *(
        b"localhost",
        b"127.0.0.1:10464",
        b"[::1]:10464",
        b"[::1",
        b"evil.example",
        b"a:b:c",
        b"\xff",
    ),
    *(
        f"Bearer {TOKEN}".encode(),
        b"Bearer ",
        b"Basic ",
        b"Basic !!!",
        b"Basic /w==",
        b"Basic Og==",
    ),
    *(
        b"Basic YWxpY2U6b3BlbiBzZXNhbWU=",
        b"",
        b" ",
        b"," * 200,
        b";q=" * 100,
        b"-1",
        b"gzip;q=1e9",
    ),
)
_EXPECTED = {200, 401, 404, 405, 421, 422, 503}
_ANSWERS_WITHIN = 120


class Web:
    """One daemon's application, open to every client, and with a token."""

    def __init__(self) -> None:
        views = builders.in_every_state()
        snapshot = builders.snapshot(views["warm"], builders.view(builders.COMPILING, alive=False))
        app = Api(lambda: snapshot, "0.1.0")
        closed = Protection(token=hashlib.sha256(TOKEN.encode()).digest())
        self._guards = (
            Guard(app, lambda: OPEN, frozenset({"localhost"})),
            Guard(app, lambda: closed, None),
        )
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()

    def __call__(self, data: bytes) -> None:
        choices = Choices(data)
        guard, scope = choices.pick(self._guards), _scope(choices)
        sent: list[MutableMapping[str, Any]] = []

        async def ask() -> None:
            messages = iter(({"type": "http.request", "body": b"", "more_body": False},))

            async def receive() -> MutableMapping[str, Any]:
                return next(messages, {"type": "http.disconnect"})

            async def send(message: MutableMapping[str, Any]) -> None:
                sent.append(message)

            await asyncio.wait_for(guard(scope, receive, send), _ANSWERS_WITHIN)

        self._loop.run_until_complete(ask())
        _check(scope, sent)


def _scope(choices: Choices) -> dict[str, Any]:
    path = choices.pick((*_PATHS, "/status", "/metrics"))
    if choices.below(8) == 7:
        path += choices.text()
    query = b"&".join(
        choices.pick(_NAMES) + b"=" + _of(choices, _VALUES) for _ in range(choices.below(5))
    )
    headers = [
        (choices.pick(_HEADERS), _of(choices, _HEADER_VALUES)) for _ in range(choices.below(5))
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": choices.pick(_METHODS),
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "root_path": "",
        "query_string": query if choices.below(8) < 7 else choices.bytes(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 10464),
    }


def _of(choices: Choices, usual: tuple[bytes, ...]) -> bytes:
    """A usual value, or bytes that a line of a request may have."""
    if choices.below(4) < 3:
        return choices.pick(usual)
    return bytes(byte for byte in choices.bytes() if byte not in b"\r\n\0")


def _check(scope: dict[str, Any], sent: list[MutableMapping[str, Any]]) -> None:
    if not sent:  # a wait whose client went away
        assert b"wait=" in scope["query_string"] or b"%" in scope["query_string"], scope
        return
    start = sent[0]
    headers = dict(start["headers"])
    body = b"".join(one.get("body", b"") for one in sent[1:])
    assert start["status"] in _EXPECTED, (start, body)
    for name, value in headers.items():
        assert b"\n" not in name + value, headers
        assert b"\r" not in name + value, headers
    if headers.get(b"content-type") == b"application/json" and b"content-encoding" not in headers:
        json.loads(body)


@contextmanager
def web() -> Iterator[Web]:
    made = Web()
    try:
        yield made
    finally:
        made.close()
