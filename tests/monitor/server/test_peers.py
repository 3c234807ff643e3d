"""Limits per peer: a peer that holds connections or guesses passwords does not affect others."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import pytest

from support.daemon import daemon
from support.users import MALLORY, someone
from support.web import ask
from warmwatch_monitor.api.events import SHARE_OF_A_PEER
from warmwatch_monitor.server import credentials as credentials_module
from warmwatch_monitor.server.credentials import BusyError, Passwords
from warmwatch_monitor.server.peers import owner_of, peer_of

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
_CONNECT = "import socket; peer = socket.socket(); peer.connect(('{host}', {port}))\n"
HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@root
def test_a_local_client_is_the_user_whose_socket_it_is(server: socket.socket) -> None:
    port = server.getsockname()[1]
    program = _CONNECT.format(host="127.0.0.1", port=port)
    program += "print(peer.getsockname()[1], flush=True)\n"
    with someone(MALLORY, program) as process:
        client = ("127.0.0.1", int(process.line()))
        assert owner_of(client, ("127.0.0.1", port)) == MALLORY
        scope = {"type": "http", "client": client, "server": ("127.0.0.1", port)}
        assert peer_of(scope) == f"user {MALLORY}"
    with socket.create_connection(("127.0.0.1", port)) as mine:
        assert owner_of(mine.getsockname(), ("127.0.0.1", port)) == os.geteuid()
    assert owner_of(("127.0.0.1", 1), ("127.0.0.1", port)) is None


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("testclient", "testclient"),
    ],
)
def test_a_remote_client_is_identified_by_its_address_or_network(host: str, peer: str) -> None:
    assert peer_of({"type": "http", "client": (host, 4711), "server": ("192.0.2.1", 10464)}) == peer


def test_password_guesses_delay_another_client_s_login_by_one_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[bytes] = []

    def checked(_hash: str, password: bytes) -> bool:
        tried.append(password)
        time.sleep(0.02)
        return password == b"right"

    monkeypatch.setattr(credentials_module, "_checked", checked)

    async def scenario() -> None:
        passwords = Passwords()
        guesses = [
            asyncio.ensure_future(passwords.matches(HASH, b"%d" % number, lambda: "guesser"))
            for number in range(60)
        ]
        await asyncio.sleep(0)
        assert await passwords.matches(HASH, b"right", lambda: "alice")
        assert tried.index(b"right") <= 2
        outcomes = await asyncio.gather(*guesses, return_exceptions=True)
        assert sum(isinstance(one, BusyError) for one in outcomes) == 55
        assert sum(one is False for one in outcomes) == 5  # one was under way, four waited
        passwords.leave()

    asyncio.run(scenario())


def test_clients_of_one_peer_that_never_read_leave_room_for_other_peers(tmp_path: Path) -> None:
    most = round(1000 * SHARE_OF_A_PEER)
    request = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with daemon(tmp_path) as url, ExitStack() as stack:
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(most):
            peer = stack.enter_context(socket.create_connection((host, int(port)), 60))
            peer.sendall(request)
            assert peer.recv(12) == b"HTTP/1.1 200"
        refused = ask(url, "/events")
        assert refused.status == 503
        assert b"listen already" in refused.body
        if os.geteuid() == 0:
            program = _CONNECT.format(host=host, port=port)
            program += f"peer.sendall({request!r}); print(peer.recv(12), flush=True)\n"
            with someone(MALLORY, program) as other:
                assert other.line() == repr(b"HTTP/1.1 200")
