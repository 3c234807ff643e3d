"""One source that is read repeatedly: its value, its health, and how long both are valid."""

from __future__ import annotations

import threading
import time

import pytest

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import SourceError
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.sources.listed import Feed

SECOND = 10**9


class Hands:
    """A clock whose readings take a time that the test sets."""

    def __init__(self) -> None:
        self.ns, self.epoch = 50 * SECOND, 1000.0

    def clock(self) -> Clock:
        return Clock(monotonic_ns=lambda: self.ns, epoch=lambda: self.epoch)

    def turn(self, seconds: float) -> None:
        self.ns += round(seconds * SECOND)
        self.epoch += seconds


def feed(
    hands: Hands, *outcomes: object, interval: float = 1.0, takes: float = 0.0
) -> Feed[object]:
    """A feed whose source returns or raises ``outcomes`` in turn."""
    left = iter(outcomes)

    def source() -> object:
        hands.turn(takes)
        one = next(left)
        if isinstance(one, Exception):
            raise one
        return one

    return Feed("gpus", source, hands.clock(), interval)


def test_a_source_is_down_with_a_reason_before_the_first_read() -> None:
    hands = Hands()
    assert feed(hands).current(hands.ns) == (
        None,
        SourceHealth(source="gpus", up=False, error="its first read has not ended"),
    )


def test_an_incomplete_value_is_used_and_its_source_is_down() -> None:
    hands = Hands()
    outcomes = iter(("all", "half", "all"))
    problem = {"all": None, "half": "a directory has disappeared"}
    one = Feed("records", lambda: next(outcomes), hands.clock(), 1.0, problem.__getitem__)
    one.read()
    hands.turn(2)
    one.read()
    value, health = one.current(hands.ns)
    assert (value, health.up, health.last_success) == ("half", False, 1000.0)
    assert health.error == "a directory has disappeared"
    one.read()
    assert one.current(hands.ns)[1].up


def test_a_read_returns_the_value_and_its_duration() -> None:
    hands = Hands()
    one = feed(hands, "value", takes=0.25)
    one.read()
    assert one.current(hands.ns) == (
        "value",
        SourceHealth(source="gpus", up=True, last_success=1000.25, read_seconds=0.25),
    )


def test_an_exception_of_a_source_is_its_error_and_the_last_success_remains() -> None:
    hands = Hands()
    one = feed(hands, "value", SourceError("it is away"), KeyError("x"))
    one.read()
    for error in ("it is away", "KeyError: 'x'"):
        hands.turn(1)
        one.read()
        assert one.current(hands.ns) == (
            None,
            SourceHealth(
                source="gpus", up=False, last_success=1000.0, read_seconds=0.0, error=error
            ),
        )


def test_a_value_is_valid_for_five_seconds_or_three_intervals() -> None:
    for interval, patience in ((1.0, 5.0), (4.0, 12.0)):
        hands = Hands()
        one = feed(hands, "value", interval=interval)
        one.read()
        hands.turn(patience)
        assert one.current(hands.ns)[0] == "value"
        hands.turn(0.001)
        assert one.current(hands.ns) == (
            None,
            SourceHealth(
                source="gpus",
                up=False,
                last_success=1000.0,
                error=f"no answer for {patience:.0f} s",
            ),
        )


def test_a_source_is_not_read_again_during_a_read() -> None:
    begun, go_on, calls = threading.Event(), threading.Event(), []

    def source() -> str:
        calls.append(1)
        begun.set()
        assert go_on.wait(600)
        return "value"

    one = Feed("gpus", source, Clock(), 1.0)
    assert not one.read_within(0.0)
    assert begun.wait(600)
    one.read()  # returns immediately
    assert not one.read_within(0.0)
    assert len(calls) == 1
    assert one.current(Clock().monotonic_ns())[1].error == "no answer for 0 s"
    go_on.set()
    assert one.read_within(600)
    assert one.current(Clock().monotonic_ns())[0] == "value"
    assert one.read_within(600)
    assert len(calls) == 2


def test_a_hung_read_gets_the_rest_of_its_timeout_and_a_thread_name() -> None:
    hands, go_on, waited = Hands(), threading.Event(), []
    one = Feed("gpus", lambda: go_on.wait(600), hands.clock(), 1.0)
    assert not one.read_within(0.0)
    thread = one._thread
    assert thread is not None
    assert (thread.name, thread.daemon) == ("warmwatch-gpus", True)
    thread.join = waited.append  # type: ignore[assignment, method-assign]
    hands.turn(2)
    assert not one.read_within(5.0)
    hands.turn(7)
    assert not one.read_within(5.0)
    assert waited == [3.0, 0.0]
    go_on.set()
    threading.Thread.join(thread, 600)


class Stopping:
    """Stops a feed after ``reads`` reads, and records its pauses."""

    def __init__(self, reads: int) -> None:
        self.reads, self.pauses = reads, []

    def is_set(self) -> bool:
        self.reads -= 1
        return self.reads < 0

    def wait(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))


def test_a_source_is_read_at_its_interval_and_notifies_after_each_read() -> None:
    for takes, pause in ((0.25, 0.75), (3.0, 0.01)):
        hands, outcomes, stopping = Hands(), [], Stopping(2)
        one = feed(hands, "a", "b", takes=takes)
        one.follow(stopping, lambda outcomes=outcomes, one=one: outcomes.append(one._outcome.value))  # type: ignore[arg-type, misc]
        assert outcomes == ["a", "b"]
        assert stopping.pauses == [pause, pause]


class Pauses(threading.Event):
    """Set after one pause, whose length it keeps."""

    seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds = timeout or 0.0
        self.set()
        return True


@pytest.mark.parametrize(
    ("read", "also", "pause"),
    [(0.0, 0.0, 0.1), (0.02, 0.01, 0.03 * (1 / 0.11 - 1)), (5.0, 0.0, 1.0)],
    ids=["cheap", "a share of a core", "the longest"],
)
def test_the_pause_grows_with_the_cpu_time_of_a_read_and_of_the_work_after_it(
    read: float, also: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, pauses = iter((7.0, 7.0 + read)), Pauses()
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    feed(Hands(), "all", interval=0.1).follow(pauses, also_spent=lambda: also)
    assert pauses.seconds == pytest.approx(pause)
