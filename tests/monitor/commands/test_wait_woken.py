"""Events wake ``warmwatch wait``; without an event stream it polls."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from support import builders as b
from support.daemon import daemon, daemon_process
from support.documents import status
from support.proxy import Proxy, Treatment, proxy
from support.records import wait_until
from support.terminal import terminal
from support.training_standin import Training, training
from support.waiting import Waiting, waiting
from support.web import ask
from warmwatch.shared.record import PHASES
from warmwatch_monitor.base.settings import parse_address
from warmwatch_monitor.client import events as event_stream
from warmwatch_monitor.client.daemon import Answer, Daemon
from warmwatch_monitor.client.events import Event, EventClient
from warmwatch_monitor.commands.wait import Wait

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
QUIET_SECONDS = 1.5  # some times the pause between two questions
FIRST = b"retry: 2000\n\nevent: snapshot\nid: x-1\ndata: {}\n\n"


@contextmanager
def scene(place: Path) -> Iterator[tuple[Training, Proxy]]:
    """A training, a daemon that watches it, and a proxy in front of the daemon."""
    with training(place) as one, daemon(place) as url, proxy(url) as before:
        yield one, before


@contextmanager
def commanded(before: Proxy, *words: str) -> Iterator[Waiting]:
    """A command that has printed its run's progress."""
    with waiting(*words, "--address", before.address) as command:
        assert "compiling" in command.line()
        yield command


def listens(before: Proxy) -> int:
    """Return once the command only listens; the number of its queries.

    After the first event it polled once, for changes before its subscription.
    """
    wait_until(lambda: before.is_caught_up)
    return len(before.polls)


def test_a_wait_polls_again_after_an_event_of_its_run_and_not_before(
    tmp_path: Path,
) -> None:
    """By name, by pattern or without either. Other runs do not wake a wait for a named run."""
    named = (("gpt2",), ("g*", "--until", "warm,ended"))
    with scene(tmp_path) as (one, before), ExitStack() as stack:
        *own, beside = proxies = [stack.enter_context(proxy(before.target)) for _ in range(3)]
        commands = [
            stack.enter_context(commanded(each, *words))
            for each, words in zip(proxies, (*named, ()), strict=True)
        ]
        *requested, polled_by_all = map(listens, proxies)
        for phase in (1, 2, 3, 4):
            one.is_in(phase)
            wait_until(partial(is_in, before, phase))
        assert len(beside.polls) == polled_by_all
        with training(tmp_path, "bert") as other:
            wait_until(lambda: len(beside.polls) > polled_by_all)
            other.warm()
            assert [len(each.polls) for each in own] == requested
            one.warm()
            for command in commands:
                assert command.end()[0] == 0
        for each, known in zip(own, requested, strict=True):
            assert known < len(each.polls) <= known + 2


def is_in(before: Proxy, phase: int) -> bool:
    """The daemon's own events, for a phase by its position in the record."""
    assert before.target is not None
    found = json.loads(ask(before.target).body)["runs"][0]["ranks"][0]["compile"]["phase"]
    return bool(found == PHASES[phase - 1])


def status_of(before: Proxy, run: str) -> bytes:
    assert before.target is not None
    return ask(before.target, f"/status?run={run}").body


def endless(peer: socket.socket) -> None:
    peer.sendall(STREAM + FIRST + b"event: state\ndata: ")
    while True:
        peer.sendall(b"x" * 65536)


def replies(words: bytes) -> Treatment:
    return lambda peer: peer.sendall(words)


def hangs(words: bytes) -> Treatment:
    """Never ends."""

    def treat(peer: socket.socket) -> None:
        peer.sendall(words)
        peer.recv(1)  # until the other side leaves

    return treat


TREATMENTS: dict[str, Treatment] = {
    "no event stream": replies(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"),
    "an unauthenticated client": replies(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"),
    "a crowd": replies(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"),
    "another thing": replies(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>"),
    "nothing": replies(b""),
    "breaks off": replies(STREAM + FIRST),
    "nonsense": replies(STREAM + b"\xff\x00\n" * 9),
    "no HTTP": replies(b"\xff\x00\n" * 9),
    "nonsense in events": replies(STREAM + b"event: \xff\ndata: {[\n\n" * 9),
    "hangs": hangs(b""),
    "hangs in the head": hangs(b"HTTP/1.1 200"),
    "never begins": hangs(STREAM + b": still here\n\n" * 3),
    "no line ends": hangs(STREAM + b"x" * 100_000),
    "endless": endless,
}


@pytest.mark.slow
def test_without_an_event_stream_it_polls_repeatedly(tmp_path: Path) -> None:
    """Commands for all faults together: one scene is cheaper than many."""
    with scene(tmp_path) as (one, before), ExitStack() as stack:
        proxies = {name: stack.enter_context(proxy(before.target)) for name in TREATMENTS}
        for name, treatment in TREATMENTS.items():
            proxies[name].treatment = treatment
        commands = {
            name: stack.enter_context(waiting("--address", each.address))
            for name, each in proxies.items()
        }
        for each in proxies.values():
            wait_until(lambda each=each: each.event_requests)  # type: ignore[misc]
        one.warm()
        ends = {name: command.end() for name, command in commands.items()}
    for name, (code, out, err) in ends.items():
        assert (name, code, out[:10]) == (name, 0, "gpt2: warm"), err


def test_a_silent_stream_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be there bytes or none: no line of them ends."""
    monkeypatch.setattr(event_stream, "SILENT_SECONDS", 0.3)
    for treatment in (hangs(STREAM + FIRST), endless):
        with daemon(tmp_path) as url, proxy(url) as before:
            before.treatment = treatment
            ear = EventClient(("run",))
            ear.follow(Daemon(parse_address("test", before.address)))
            ear.connect_where_due(60)
            (first,) = ear.receive(60)
            assert (first.kind, ear.is_live) == ("snapshot", True)
            assert ear.receive(60) == []
            assert not ear.is_live


def test_it_retries_the_event_stream_after_every_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a proxy that lets no stream through, for a day."""
    monkeypatch.setattr(event_stream.random, "uniform", lambda *_: 0.0)  # its pauses take no time
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # does not listen
        ear = EventClient(("run",))
        ear.follow(Daemon(parse_address("test", f"127.0.0.1:{nobody.getsockname()[1]}")))
        for _ in range(1100):
            ear.connect_where_due(60)
        assert ear.receive(0.001) == []


@pytest.mark.slow
def test_a_hung_daemon_delays_it_no_longer_than_the_timeout(tmp_path: Path) -> None:
    """Plus half a second for one last query; more if no time was left for it."""
    for seconds in (3, 12, 48):
        words = ("--timeout", str(seconds))
        with scene(tmp_path / words[1]) as (_, before), commanded(before, *words) as command:
            before.silent = True
            code, _, err = command.end()
        assert code == 124
        hung, _, within = err.rpartition("has not answered within ")
        if hung:
            break
    assert 0.5 <= float(within.partition(" s")[0]) <= seconds


def test_ctrl_c_ends_a_wait_on_the_event_stream(tmp_path: Path) -> None:
    with scene(tmp_path) as (_, before), commanded(before) as command:
        requested = listens(before)
        command.process.send_signal(signal.SIGINT)
        assert command.end()[0] == 130
        assert len(before.polls) == requested


@contextmanager
def restart(
    place: Path,
) -> Iterator[tuple[Training, Proxy, Callable[[], None], Callable[[], None]]]:
    """A scene whose daemon can end, and in whose place another can then be."""
    own = ("--dir", str(place), "--interval", "0.05")
    with (
        training(place) as one,
        daemon(place) as another,
        daemon_process(*own) as (process, url),
        proxy(url) as before,
    ):
        wait_until(lambda: b'"compiling":true' in ask(url).body)

        def end() -> None:
            before.target = before.polls_before_event = None
            process.terminate()
            process.wait(60)

        def begin() -> None:
            before.target = another

        yield one, before, end, begin


def test_events_during_a_daemon_restart_are_not_missed(tmp_path: Path) -> None:
    with restart(tmp_path) as (one, before, end, begin), commanded(before) as command:
        listens(before)
        end()
        wait_until(lambda: before.turned_away)
        one.warm()
        begin()
        assert command.end()[0] == 0


def test_it_reconnects_to_the_event_stream_of_a_restarted_daemon(tmp_path: Path) -> None:
    with restart(tmp_path) as (one, before, end, begin), commanded(before) as command:
        listens(before)
        end()
        begin()
        requested = listens(before)
        one.warm()
        assert command.end()[0] == 0
        assert requested < len(before.polls) <= requested + 2


def test_on_a_terminal_the_seconds_advance_while_it_waits_for_events(tmp_path: Path) -> None:
    with (
        scene(tmp_path) as (one, before),
        terminal("wait", "--address", before.address) as shown,
    ):
        shown.read_until("gpt2: compiling")
        wait_until(lambda: before.events_sent)
        later = r"\r(\d+)[^\r]*: gpt2: compiling.*\r(?!\1\b)\d+[^\r]*: gpt2: compiling"
        shown.read_until_match(later, len(shown.written))
        one.warm()
        assert shown.read_to_end() == 0


class EnoughError(Exception):
    """One pause was seen."""


def test_events_of_another_users_run_or_another_name_cause_no_poll() -> None:
    """An unknown run can be identified only by the requested name."""
    mine, theirs = b.in_every_state("mine")["warming"], b.in_every_state("theirs")["warming"]
    answer = status(b.snapshot(mine, theirs))
    for run in answer["runs"]:
        run["owner_uid"] = 1000 + (run["run"] == "theirs")
    events = ("mine", "theirs", "new", "new@alice")

    def woken(answer: Answer, run: str | None) -> list[bool]:
        """By which of the events, in the first pause."""
        known: list[bool] = []

        def pause(_left: float, wakes: Callable[[Event], bool]) -> None:
            known[:] = [wakes(Event("run", json.dumps({"run": one}).encode())) for one in events]
            assert wakes(Event("gone", b"{")), "what cannot be read may be anything"
            raise EnoughError

        with pytest.raises(EnoughError):
            Wait(lambda: answer, run, ["warm"], lambda *_: None, 1000, pause=pause).block(60)
        return known

    assert woken(answer, None) == [True, False, True, True]
    named = {**answer, "runs": answer["runs"][:1]}
    for run in ("new", "ne*", "new@alice", "n*@alice"):
        assert woken(named, run) == [True, False, True, True]
