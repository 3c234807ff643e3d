"""Connections that ask nothing, too many of them, and those that never end: real sockets."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.daemon import daemon_process
from support.records import wait_until
from support.web import Authority, ask
from warmwatch_monitor.serving.connections import (
    IDLE_SECONDS,
    MOST,
    REQUEST_SECONDS,
    Connections,
    most_connections,
)

DESCRIPTORS = 256
HALF = b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-"


def limited(soft: int, hard: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def few() -> Callable[[], None]:
    return limited(DESCRIPTORS, DESCRIPTORS)


@contextmanager
def connected(url: str, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """So many connections, each of which has ``said`` this and nothing more."""
    host, port = url.rpartition("/")[2].split(":")
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection((host, int(port)), 60))
            peers.append(peer)
            peer.sendall(said)
        yield peers


def test_it_answers_through_a_flood_of_half_sent_requests_and_says_so_in_one_line(
    tmp_path: Path,
) -> None:
    """With a descriptor limit that they exceed many times over."""
    with daemon_process("--dir", str(tmp_path), before=few()) as (process, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        with connected(url, 2000, HALF):
            for path in ("/status", "/metrics", "/-/ready"):
                assert ask(url, path).status == 200
        assert ask(url).status == 200
        process.terminate()
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0
    assert errors.count("\n") == 1, errors[:2000]
    assert "connections at once" in errors


def test_it_answers_through_a_flood_of_connections_that_never_begin_tls(tmp_path: Path) -> None:
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


def test_where_all_wait_for_an_answer_the_next_is_told_to_come_again(tmp_path: Path) -> None:
    room = most_connections(DESCRIPTORS)
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
        assert process.communicate(timeout=240)[1].count("at once") == 1


def _status(url: str) -> int:
    try:
        reply = ask(url, "/-/healthy")
    except ConnectionError:  # it was turned away while it still spoke
        return 503
    assert reply.status == 200 or reply.headers["retry-after"]
    return reply.status


def test_the_soft_limit_of_descriptors_is_raised_at_the_start(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path), before=limited(64, 1024)) as (process, url):
        wait_until(lambda: ask(url, "/-/ready").status == 200)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (1024, 1024)


@pytest.mark.parametrize("dripping", [False, True])
def test_a_request_that_does_not_come_to_its_end_is_given_up(
    tmp_path: Path, dripping: bool
) -> None:
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


def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    with (
        daemon_process("--dir", str(tmp_path)) as (_, url),
        connected(url, 1, b"GET / HTTP/1.1\r\nX: ") as (peer,),
    ):
        said = b""
        try:
            for _ in range(1000):
                peer.sendall(b"x" * 1000)
        except ConnectionError:
            pass
        try:
            said = peer.recv(100)
        except ConnectionError:
            return
        assert said.startswith(b"HTTP/1.1 431 ") or said == b""


class Hands:
    """A clock that is moved by hand, and connections that say when they were ended."""

    def __init__(self, most: int) -> None:
        self.now, self.ended, self.said = 0.0, list[str](), list[str]()
        self.all = Connections(most, self.said.append, lambda: self.now)

    def opens(self, name: str) -> int | None:
        return self.all.opened(lambda: self.ended.append(name))


def test_each_has_its_time_to_ask_and_to_ask_again() -> None:
    hands = Hands(10)
    silent, asking, idle = hands.opens("silent"), hands.opens("asking"), hands.opens("idle")
    assert silent
    assert asking
    assert idle
    hands.all.asks(asking)
    hands.all.asks(idle)
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


def test_the_one_that_was_quiet_longest_makes_room_and_none_that_waits_for_an_answer() -> None:
    hands = Hands(3)
    first, second = hands.opens("first"), hands.opens("second")
    assert first
    assert second
    assert hands.opens("third")
    hands.all.asks(first)
    assert hands.opens("fourth")
    assert hands.ended == ["second"]
    hands.all.answered(first)
    assert hands.opens("fifth")
    assert hands.ended == ["second", "third"]
    for number in (first, 4, 5):
        hands.all.asks(number)
    assert hands.opens("sixth") is None
    assert len(hands.said) == 1
    hands.now += 60
    assert hands.opens("seventh") is None
    assert len(hands.said) == 2


def test_there_is_room_for_all_the_descriptors_but_a_reserve() -> None:
    assert most_connections(1) == 1
    assert most_connections(DESCRIPTORS) == DESCRIPTORS // 2
    assert most_connections(1024) == 1024 - 128
    assert most_connections(10**6) == MOST
