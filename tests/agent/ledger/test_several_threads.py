"""Compile facts and step marks on several threads, interleaved at every possible point."""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from support.ranks import K, Rank
from warmwatch.ledger.activities import Activities
from warmwatch.ledger.counters import PytorchState
from warmwatch.process.settings import Settings
from warmwatch.recorder import writer
from warmwatch.recorder.writer import OwnRecord
from warmwatch.shared import record
from warmwatch.shared.states import State
from warmwatch.steps import steps as _steps

Trace = Callable[[FrameType, str, Any], Any]


@pytest.fixture(name="others")
def _others() -> Iterator[list[ThreadPoolExecutor]]:
    """Threads that stay alive until the test is over."""
    pools = [ThreadPoolExecutor(1) for _ in range(3)]
    yield pools
    for pool in pools:
        pool.shutdown()


def test_activity_may_end_on_another_thread(others: list[ThreadPoolExecutor]) -> None:
    """Without this, a thread that never marks a step keeps the rank compiling for ever."""
    rank = Rank()
    others[0].submit(rank.ledger.begin, "callback ").result()
    assert rank.judge().compiling
    rank.ledger.end("callback ")
    assert not rank.judge().compiling


def test_an_end_closes_the_event_of_its_own_thread_first(others: list[ThreadPoolExecutor]) -> None:
    rank = Rank()
    others[0].submit(rank.ledger.begin, "dynamo").result()
    rank.ledger.begin("dynamo")
    rank.ledger.end("dynamo")
    assert rank.judge().compiling
    rank.ledger.end("unheard of")
    assert rank.judge().compiling
    others[0].submit(rank.ledger.end, "dynamo").result()
    assert not rank.judge().compiling


@contextmanager
def between(
    code: CodeType, turn: int, happening: Callable[[], object], places: set[int] | None = None
) -> Iterator[list[int]]:
    """Let ``happening`` come before the ``turn``-th instruction of ``code``, of ``places`` only."""
    entered: list[int] = []

    def inside(frame: FrameType, event: str, _arg: Any) -> Trace:
        if event == "opcode" and (places is None or frame.f_lasti in places):
            entered.append(frame.f_lasti)
            if len(entered) == turn:
                happening()
        return inside

    def enter(frame: FrameType, _event: str, _arg: Any) -> Trace | None:
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        return inside

    before = sys.gettrace()
    # Python 3.12 traces opcodes only if a frame enabled them before it traces
    sys._getframe().f_trace_opcodes = True
    sys.settrace(enter)
    try:
        yield entered
    finally:
        sys.settrace(before)


def inner(function: Callable[..., Any], name: str) -> CodeType:
    """The code of the function ``name`` that ``function`` makes."""
    codes = (code for code in function.__code__.co_consts if isinstance(code, CodeType))
    return next(code for code in codes if code.co_name == name)


# where a step that may not be clean is judged, and where it is stored
JUDGED = _steps._WarmUp.judge_irregular.__code__
STORED = inner(_steps.make_steps, "mark_closely")


def _stepped() -> Rank:
    """A rank whose next step is looked at closely, and would be clean but for what comes."""
    rank = Rank()
    for _ in range(2):
        rank.ledger.begin("dynamo")
        rank.ledger.end("dynamo")
        rank.wait(1)
        rank.step()
    rank.wait(1)
    rank.step()
    rank.ledger.begin("dynamo")
    rank.ledger.end("dynamo")
    return rank


def _held_activity(rank: Rank, steps: int) -> None:
    """Compile activity that began in or before step ``steps`` ended after the next one.

    Too few steps are known to call the one in which it ended as short as usual.
    """
    assert rank.judge().state is not State.WARM
    for clean in range(K):
        assert not rank.judge().warm, f"{clean} clean steps"
        rank.wait(1)
        rank.step()
    assert rank.judge().state is State.WARM
    assert rank.slot().steps.steps == steps + 2 + K
    assert steps + 2 in rank.slot().compile.touched_steps
    assert not rank.slot().compile.background_since_ns


@pytest.mark.parametrize("code", [JUDGED, STORED], ids=["judged", "stored"])
def test_no_activity_is_missed_that_begins_while_a_step_is_marked_closely(
    code: CodeType, others: list[ThreadPoolExecutor]
) -> None:
    """On another thread, before each instruction in turn; it goes on for a step."""
    for turn in itertools.count(1):
        rank = _stepped()
        rank.wait(1)
        begin = others[0].submit
        with between(code, turn, lambda: begin(rank.ledger.begin, "dynamo").result()) as entered:  # noqa: B023
            rank.step()
        if len(entered) < turn:
            break
        steps = rank.slot().steps.steps
        rank.wait(1)
        rank.step()
        others[0].submit(rank.ledger.end, "dynamo").result()
        rank.wait(1)
        rank.step()
        _held_activity(rank, steps)
    assert turn > 40


@pytest.mark.parametrize("entering", [Activities.begin, PytorchState.at_begin])
def test_no_activity_is_missed_if_a_step_is_marked_during_its_begin(
    entering: FunctionType, others: list[ThreadPoolExecutor]
) -> None:
    """A step is marked on another thread before each instruction with which it is entered."""
    for turn in itertools.count(1):
        rank = _stepped()
        step = others[0].submit
        step(rank.step).result()
        with between(
            entering.__code__,
            turn,
            lambda: step(rank.step).result(),  # noqa: B023
        ) as entered:
            rank.ledger.begin("dynamo")
        if len(entered) < turn:
            break
        steps = rank.slot().steps.steps
        rank.wait(1)
        others[0].submit(rank.step).result()
        rank.ledger.end("dynamo")
        rank.wait(1)
        rank.step()
        _held_activity(rank, steps)
    assert turn > 12


def after_calls(code: CodeType) -> set[int]:
    """The instructions before which Python may change threads: those that follow a call."""
    pairs = itertools.pairwise(dis.get_instructions(code))
    return {after.offset for before, after in pairs if before.opname.startswith("CALL")}


@pytest.mark.parametrize(
    ("code", "before"),
    [
        (inner(_steps.make_steps, "on_step"), 2 * K),
        (inner(_steps.make_steps, "on_step"), K - 1),
        (inner(_steps.make_steps, "judge"), K - 1),
        (inner(_steps.make_steps, "mark"), K - 1),
        (JUDGED, K - 1),
        (STORED, K - 1),
    ],
    ids=lambda value: getattr(value, "co_name", value),
)
def test_threads_that_mark_steps_lose_no_step_and_no_bin(
    code: CodeType, before: int, others: list[ThreadPoolExecutor]
) -> None:
    """Another thread's step runs at every possible switch: both count, and warm comes once."""
    places = after_calls(code)
    for turn in itertools.count(1):
        rank = Rank()
        clock = itertools.count(rank.now, 1000)
        rank.tick = lambda: next(clock)  # noqa: B023
        for _ in range(before):
            rank.step()
        if code in (JUDGED, STORED):
            rank.ledger.begin("dynamo")
            rank.ledger.end("dynamo")
        step = others[0].submit
        with between(code, turn, lambda: step(rank.step).result(), places) as entered:  # noqa: B023
            rank.step()
        if len(entered) < turn:
            break
        for _ in range(K):
            rank.step()
        slot = rank.slot()
        assert slot.steps.steps == before + 2 + K
        assert sum(slot.clean_bins) + sum(slot.compile_bins) == slot.steps.steps - 1
        assert rank.warm_calls == 1, f"before instruction {entered[turn - 1]}"
        assert rank.judge().warm
    assert turn > 1


def test_a_query_while_another_thread_makes_the_record_returns() -> None:
    """From attaching on: without a header, and with one that no name follows yet."""
    own = OwnRecord(Settings(), version="0", options={}, attached=(1, 1))
    assert own.image().steps.steps == 0
    packed = record.pack_header(own.header)
    own.writer.buffer[: len(packed)] = packed
    assert own.image().steps.steps == 0


def test_facts_recorded_by_another_thread_survive_a_refresh_of_the_identity(
    others: list[ThreadPoolExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded machine takes long to look up the versions."""
    own = OwnRecord(Settings(), version="0", options={}, attached=(1, 1))
    monkeypatch.setattr(own.writer, "open", lambda *_, **__: None)  # in plain memory

    def slow() -> dict[str, str]:
        others[0].submit(own.set_flops, 466_944, (), {"float8": 466_944}).result()
        return {"torch": "2.6.0"}

    own.open((), ())
    monkeypatch.setattr(writer, "versions", slow)
    own.note("warm", 2, {})
    identity = own.image().identity
    assert (identity.flops_counted, identity.torch) == (466_944, "2.6.0")


def test_a_step_that_completes_while_another_thread_compiles_is_clean(
    others: list[ThreadPoolExecutor],
) -> None:
    """The other thread begins and ends nested events while it compiles."""
    rank = Rank()
    for _ in range(20):
        rank.wait(1)
        rank.step()
    compiler = others[0].submit
    compiler(rank.ledger.begin, "dynamo").result()
    assert rank.judge().compiling
    for _ in range(20):
        rank.wait(1)
        rank.step()
        compiler(rank.ledger.begin, "inductor_compile").result()
        compiler(rank.ledger.end, "inductor_compile").result()
        judged = rank.judge()
        assert (judged.warm, judged.compiling, judged.conditions) == (True, False, ("background",))
    rank.wait(1)
    compiler(rank.ledger.end, "dynamo").result()
    rank.step()
    counts = rank.slot().compile
    assert rank.judge().conditions == ()
    assert rank.judge().clean_steps == 41
    assert (counts.begun, counts.background, counts.background_ns) == (1, 1, 21 * 10**9)
    assert sum(rank.slot().clean_bins) == 40


def test_a_rank_that_waits_for_a_background_compilation_is_not_warm(
    others: list[ThreadPoolExecutor],
) -> None:
    """The time without a step decides, and the step that ends at last was held up."""
    rank = Rank()
    for _ in range(20):
        rank.wait(1)
        rank.step()
    others[0].submit(rank.ledger.begin, "dynamo").result()
    rank.wait(1)
    rank.step()
    rank.wait(9)
    assert rank.judge().warm
    rank.wait(2)
    assert not rank.judge().warm
    others[0].submit(rank.ledger.end, "dynamo").result()
    rank.step()
    assert rank.judge().clean_steps == 0
    for _ in range(K):
        rank.wait(1)
        rank.step()
    assert rank.judge().warm
    assert rank.slot().compile.touched_steps[0] == 22
