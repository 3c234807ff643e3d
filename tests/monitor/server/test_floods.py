"""Idle, excess and endless connections, with real sockets."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from support.daemon import daemon_process
from support.records import wait_until
from support.web import Authority, ask
from warmwatch_monitor.server import uvicorn_server
from warmwatch_monitor.server.connections import (
    IDLE_SECONDS,
    MOST,
    REQUEST_SECONDS,
    TAKE_SECONDS,
    Connections,
    most_connections,
)
from warmwatch_monitor.server.protection import OPEN
from warmwatch_monitor.server.uvicorn_server import MOST_HANDSHAKES, Server

pytestmark = pytest.mark.slow

DESCRIPTORS = 256
HALF = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-"


def limited(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def few() -> Callable[[], None]:
    return limited(DESCRIPTORS, DESCRIPTORS)


@contextmanager
def connected(url: str, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open ``count`` connections that have sent only ``sent``."""
    host, port = url.rpartition("/")[2].split(":")
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection((host, int(port)), 60))
            peers.append(peer)
            peer.sendall(sent)
        yield peers


def test_a_daemon_answers_during_a_flood_of_partial_requests_and_logs_one_line(
    tmp_path: Path,
) -> None:
    """With a descriptor limit that they exceed many times over."""
    began = time.monotonic()
    with daemon_process("--dir", str(tmp_path), before=few()) as (process, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        with connected(url, 2000, HALF):
            for path in ("/status", "/metrics", "/-/ready"):
                assert ask(url, path).status == 200
        assert ask(url).status == 200
        process.terminate()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0
    _reported_once_a_minute(errors, began)


def test_a_daemon_answers_during_a_flood_of_connections_that_never_start_tls(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("daemon")
    config = tmp_path / "web.yml"
    config.write_text(f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}\n")
    options = ("--dir", str(tmp_path / "none"), "--web-config", str(config))
    with (
        daemon_process(*options, before=few()) as (_, url),
        connected(url, 1000, b"\x16\x03\x01"),
    ):
        assert ask(url, "/-/healthy", tls=authority.trusted()).status == 200


def test_half_open_handshakes_allocate_no_unused_memory(tmp_path: Path) -> None:
    """More than may be under way: the oldest ones make room. Each would have 256 KiB and more."""
    authority = Authority(tmp_path)
    cert, key = authority.sign("daemon")
    config = tmp_path / "web.yml"
    config.write_text(f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}\n")
    options = ("--dir", str(tmp_path / "none"), "--web-config", str(config))
    with daemon_process(*options, before=limited(4096, 4096)) as (process, url):
        before = _resident(process.pid)
        with connected(url, 2 * MOST_HANDSHAKES, b"\x16\x03\x01") as peers:
            assert ask(url, "/-/healthy", tls=authority.trusted()).status == 200
            peers[0].settimeout(240)
            assert peers[0].recv(1) == b"", "the oldest one was closed"
            assert _resident(process.pid) - before < MOST_HANDSHAKES * 160 * 1024


def _resident(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_new_connection_is_refused_if_all_others_are_waiting(tmp_path: Path) -> None:
    room, began = most_connections(DESCRIPTORS), time.monotonic()
    request = b"GET /status?wait=ended HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with daemon_process("--dir", str(tmp_path), before=few()) as (process, url):
        with connected(url, room, request) as waiting, ExitStack() as stack:

            def full() -> bool:
                """One whose request had not arrived may have made room for the one that looked."""
                stack.enter_context(connected(url, 1, request))
                return _status(url) == 503

            wait_until(full)
            for peer in waiting[: room // 2]:
                peer.close()
            wait_until(lambda: _status(url) == 200)
        process.terminate()
        _reported_once_a_minute(process.communicate(timeout=240)[1], began)


def _reported_once_a_minute(errors: str, began: float) -> None:
    """That there are too many, and nothing else."""
    lines = errors.splitlines()
    assert 1 <= len(lines) <= 1 + (time.monotonic() - began) // 60, errors[:2000]
    assert all("connections at the same time" in line for line in lines), errors[:2000]


def _status(url: str) -> int:
    try:
        reply = ask(url, "/-/healthy")
    except ConnectionError:  # it was turned away while it still spoke
        return 503
    assert reply.status == 200 or reply.headers["retry-after"]
    return reply.status


def test_the_soft_descriptor_limit_is_raised_at_startup(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path), before=limited(64, 1024)) as (process, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (1024, 1024)


@pytest.mark.parametrize("dripping", [False, True])
def test_an_incomplete_request_times_out(tmp_path: Path, dripping: bool) -> None:
    with (
        daemon_process("--dir", str(tmp_path)) as (_, url),
        connected(url, 1, HALF) as (peer,),
    ):
        peer.settimeout(0.2 if dripping else 240)

        def ended() -> bool:
            try:
                if dripping:
                    peer.sendall(b"x")
                return peer.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(ended)


LONGEST = 65_536  # bytes of a request, and of what is sent on before its answer


def test_an_endless_request_head_is_refused(tmp_path: Path) -> None:
    """It is refused at the first excess byte: later unread bytes could reset the connection."""
    head = b"GET / HTTP/1.1\r\nX: ".ljust(LONGEST, b"x")
    with (
        daemon_process("--dir", str(tmp_path)) as (_, url),
        connected(url, 1, head + b"x") as (peer,),
    ):
        assert _all_of(peer).startswith(b"HTTP/1.1 431 ")


def test_endless_data_after_a_wait_request_closes_the_connection(tmp_path: Path) -> None:
    """Else all of it would be read, and was once stored: a gigabyte in seconds."""
    wait = b"GET /status?wait=lost&timeout=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    more = b"GET / HTTP/1.1\r\nX: ".ljust(LONGEST, b"x")
    with (
        daemon_process("--dir", str(tmp_path)) as (_, url),
        connected(url, 1, wait) as (peer,),
    ):
        assert ask(url, "/-/healthy").status == 200  # so the wait request was read
        try:
            peer.sendall(more)
            assert _all_of(peer) == b""
        except ConnectionError:
            pass


def test_a_pipelined_request_gets_the_first_answer_and_a_close(
    tmp_path: Path,
) -> None:
    one = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        daemon_process("--dir", str(tmp_path)) as (_, url),
        connected(url, 1, 3 * one) as (peer,),
    ):
        output = _all_of(peer)
        assert output.count(b"HTTP/1.1 200 OK") == 1
        assert b"connection: close" in output
        assert output.endswith(b"healthy\n")


class Hands:
    """A clock that tests move, and connections that record when they were closed."""

    def __init__(self, most: int) -> None:
        self.now, self.ended, self.messages = 0.0, list[str](), list[str]()
        self.all = Connections(most, self.messages.append, lambda: self.now)

    def opens(self, name: str) -> int | None:
        return self.all.opened(lambda: self.ended.append(name))


def test_each_request_of_a_connection_has_its_own_timeout() -> None:
    hands = Hands(10)
    silent, asking, idle = hands.opens("silent"), hands.opens("asking"), hands.opens("idle")
    assert silent
    assert asking
    assert idle
    hands.all.requested(asking)
    hands.all.requested(idle)
    hands.all.answered(idle)
    hands.now = REQUEST_SECONDS
    hands.all.sweep()
    assert hands.ended == ["silent"]
    hands.now = IDLE_SECONDS
    hands.all.sweep()
    assert hands.ended == ["silent", "idle"]
    hands.now = 10 * IDLE_SECONDS
    hands.all.sweep()
    assert len(hands.all) == 1


def test_the_longest_idle_connection_is_evicted_but_never_a_waiting_one() -> None:
    hands = Hands(3)
    first, second = hands.opens("first"), hands.opens("second")
    assert first
    assert second
    assert hands.opens("third")
    hands.all.requested(first)
    assert hands.opens("fourth")
    assert hands.ended == ["second"]
    hands.all.answered(first)
    assert hands.opens("fifth")
    assert hands.ended == ["second", "third"]
    for number in (first, 4, 5):
        hands.all.requested(number)
    assert hands.opens("sixth") is None
    assert len(hands.messages) == 1
    hands.now += 60
    assert hands.opens("seventh") is None
    assert len(hands.messages) == 2


def test_all_descriptors_but_a_reserve_are_available_for_connections() -> None:
    assert most_connections(1) == 1
    assert most_connections(DESCRIPTORS) == DESCRIPTORS // 2
    assert most_connections(1024) == 1024 - 128
    assert most_connections(10**6) == MOST


def test_a_client_that_reads_no_answer_is_closed_or_evicted_even_if_it_sends_requests() -> None:
    hands = Hands(2)
    first, second = hands.opens("first"), hands.opens("second")
    assert first
    assert second
    for number in (first, second):
        hands.all.requested(number)
        hands.all.stuck(number)
        hands.all.answered(number)
        hands.all.requested(number)
    hands.all.moves(first, answering=True)
    hands.now = TAKE_SECONDS - 1
    hands.all.sweep()
    assert hands.ended == []
    hands.now = TAKE_SECONDS
    hands.all.sweep()
    assert hands.ended == ["second"]
    hands.all.stuck(first)
    third = hands.opens("third")
    assert third
    hands.all.requested(third)
    assert hands.opens("fourth")
    assert hands.ended == ["second", "first"]


async def served(
    app: ASGIApp, hands: Hands, peer: Callable[[asyncio.StreamReader, Writer], Awaitable[None]]
) -> None:
    """A whole server over ``app``, and a client of it, on the same loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(app, [listener], hands.all, lambda: OPEN, lambda: None, lambda: None)
        serving = asyncio.create_task(server.serve([]))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
            reader, writer = await asyncio.open_connection(sock=client, limit=4096)
            await peer(reader, writer)
            writer.transport.abort()
        server.should_exit = True
        await serving


ONE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_client_that_pipelined_after_a_wait_and_left_is_detected() -> None:
    """The server frees its slot and buffers immediately."""

    async def scenario() -> None:
        requested, left = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, _send: Send) -> None:
            if scope["type"] == "http":
                requested.set()
                while (await receive())["type"] != "http.disconnect":
                    pass
                left.set()

        async def peer(_reader: asyncio.StreamReader, writer: Writer) -> None:
            writer.write(ONE + ONE)
            await requested.wait()
            writer.transport.abort()
            await asyncio.wait_for(left.wait(), 120)

        await served(app, Hands(10), peer)

    asyncio.run(scenario())


def test_a_client_that_never_reads_its_answers_is_closed() -> None:
    """The second answer waits for buffer space; without a timeout its slot was never freed."""
    hands, body = Hands(10), b"x" * (1 << 26)

    async def scenario() -> None:
        requested: list[str] = []

        async def app(scope: Scope, _receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                requested.append(scope["path"])
                length = (b"content-length", b"%d" % len(body))
                await send({"type": "http.response.start", "status": 200, "headers": [length]})
                await send({"type": "http.response.body", "body": body})

        async def peer(reader: asyncio.StreamReader, writer: Writer) -> None:
            writer.write(ONE)
            await reader.readexactly(10)
            writer.write(ONE)
            while len(requested) < 2:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
            assert len(hands.all) == 1
            hands.now += TAKE_SECONDS
            while len(hands.all):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)

        await asyncio.wait_for(served(app, hands, peer), 240)

    asyncio.run(scenario())


def test_waiting_clients_get_an_answer_at_shutdown_without_a_log_line(tmp_path: Path) -> None:
    request = b"GET /status?wait=lost HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with daemon_process("--dir", str(tmp_path)) as (process, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        with connected(url, 300, request) as peers:
            ask(url)  # bytes sent earlier have been read
            process.terminate()
            output = [_all_of(peer) for peer in peers]
        assert process.communicate(timeout=240)[1] == ""
    assert process.returncode == 0
    assert {(one[9:12], b"the daemon is stopping" in one) for one in output} == {(b"503", True)}


def test_a_stopping_server_finishes_only_answers_that_are_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_GOODBYE_SECONDS", "_LONGEST_GOODBYE_SECONDS"):
        monkeypatch.setattr(uvicorn_server, name, 600)
    size, hands = 32 << 20, Hands(10)

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [(b"content-length", b"%d" % size)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": bytes(size)})

    async def scenario() -> None:
        left = asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            where = listener.getsockname()
            server = Server(app, [listener], hands.all, lambda: OPEN, left.set, lambda: None)
            serving = asyncio.create_task(server.serve([]))
            (reads, one), (never, other) = [
                await asyncio.open_connection(*where, limit=4096) for _ in range(2)
            ]
            for reader, writer in ((reads, one), (never, other)):
                writer.write(ONE)
                await reader.readuntil(b"\r\n\r\n")
            server.should_exit = True
            await asyncio.wait_for(left.wait(), 60)  # waits and listeners were ended
            assert await reads.readexactly(size) == bytes(size)
            monkeypatch.setattr(uvicorn_server, "_GOODBYE_SECONDS", 0)
            await asyncio.wait_for(serving, 60)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*where)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await never.readexactly(size)
            for writer in (one, other):
                writer.close()

    asyncio.run(scenario())


def _all_of(peer: socket.socket) -> bytes:
    output = b""
    while part := peer.recv(65_536):
        output += part
    return output
