"""Idle, excess and endless connections, with real sockets."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.daemon import daemon_process
from support.records import wait_until
from support.web import ask

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


def test_a_daemon_answers_during_a_flood_of_partial_requests(tmp_path: Path) -> None:
    """With a descriptor limit that they exceed many times over."""
    with daemon_process("--dir", str(tmp_path), before=few()) as (process, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        with connected(url, 2000, HALF):
            for path in ("/status", "/metrics", "/-/ready"):
                assert ask(url, path).status == 200
        process.terminate()
        assert process.communicate(timeout=240)[1] == ""
    assert process.returncode == 0


def test_a_new_connection_is_refused_if_all_others_are_waiting(tmp_path: Path) -> None:
    request = b"GET /status?wait=ended HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        daemon_process("--dir", str(tmp_path), before=few()) as (_, url),
        connected(url, DESCRIPTORS // 2, request) as waiting,
        ExitStack() as stack,
    ):

        def is_full() -> bool:
            """One whose request had not arrived may have made room."""
            stack.enter_context(connected(url, 1, request))
            return _status(url) == 503

        wait_until(is_full)
        for peer in waiting[: DESCRIPTORS // 4]:
            peer.close()
        wait_until(lambda: _status(url) == 200)


def _status(url: str) -> int:
    try:
        return ask(url, "/-/healthy").status
    except ConnectionError:  # it made room for another one before its request was read
        return 0


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


def test_an_endless_request_head_is_refused(tmp_path: Path) -> None:
    """It is refused at the first excess byte: later unread bytes could reset the connection."""
    head = b"GET / HTTP/1.1\r\nX: ".ljust(65_536, b"x")
    with (
        daemon_process("--dir", str(tmp_path)) as (_, url),
        connected(url, 1, head + b"x") as (peer,),
    ):
        assert _all_of(peer).startswith(b"HTTP/1.1 400 ")


FLOODS = ("/docs", "/openapi.json", "/history", "/status", f"/status?{'run=gpt2&' * 3000}")


@pytest.mark.parametrize("path", FLOODS, ids=[path[:16] for path in FLOODS])
def test_others_are_answered_during_a_flood_of_requests_of_clients_that_left(
    tmp_path: Path, path: str
) -> None:
    """Within 1 s on an idle machine: an answer takes some milliseconds each."""
    with daemon_process("--dir", str(tmp_path), "--interval", "0.05") as (_, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        longest = 0.0
        for _ in range(10):
            with connected(url, 100, request):
                pass
            for other in ("/-/healthy", "/status", "/metrics"):
                began = time.monotonic()
                assert ask(url, other).status == 200
                longest = max(longest, time.monotonic() - began)
        assert longest < 5, "one request of the flood took 50 ms"


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


def _all_of(peer: socket.socket) -> bytes:
    output = b""
    while part := peer.recv(65_536):
        output += part
    return output
