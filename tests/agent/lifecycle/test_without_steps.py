"""A process that marks no steps: warm after a quiet time, or when the program reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.ranks import SECOND, K, Rank
from support.trainings import result_of, run, training
from warmwatch.lifecycle import process_state
from warmwatch.shared import verdict
from warmwatch.shared.states import State

QUIET_SECONDS = 30


def compile_once(rank: Rank, seconds: float = 5) -> None:
    rank.ledger.begin("dynamo")
    rank.wait(seconds)
    rank.ledger.end("dynamo")


def test_a_process_without_steps_is_warm_after_the_recorded_silence() -> None:
    rank = Rank(quiet=QUIET_SECONDS)
    compile_once(rank)
    ended = rank.now
    rank.wait(QUIET_SECONDS - 0.001)
    assert (rank.judge().state, rank.judge().warm_by) == (State.WARMING, None)
    rank.wait(0.001)
    judged = rank.judge()
    assert (judged.state, judged.warm, judged.warm_by) == (State.WARM, True, "quiet")
    assert judged.since_ns == ended + QUIET_SECONDS * SECOND


@pytest.mark.parametrize("why", ["an optimizer", "a step", "off", "never compiled", "compiling"])
def test_silence_is_not_a_sign_if_steps_are_expected_or_nothing_compiled(
    why: str,
) -> None:
    rank = Rank(quiet=0 if why == "off" else QUIET_SECONDS)
    rank.pytorch.has_optimizer = why == "an optimizer"
    if why != "never compiled":
        compile_once(rank)
    if why == "a step":
        rank.step()
    if why == "compiling":
        rank.ledger.begin("dynamo")
    rank.wait(50)
    judged = rank.judge()
    assert not judged.warm
    assert judged.warm_by is None


def test_a_late_optimizer_ends_the_silence() -> None:
    rank = Rank(quiet=QUIET_SECONDS)
    compile_once(rank)
    rank.wait(10)
    rank.ledger.post("optimizer", {})
    rank.wait(50)
    assert rank.judge().state is State.WARMING


def test_ready_ends_the_warm_up_and_later_compilations_are_counted_separately() -> None:
    rank = Rank(quiet=QUIET_SECONDS)
    compile_once(rank)
    rank.wait(1)
    rank.ledger.post("settled", {"by": "ready"})
    assert (rank.judge().state, rank.judge().warm_by) == (State.WARM, "ready")
    compile = rank.slot().compile
    assert (compile.warmups, compile.recompiles_after_warm) == (1, 0)
    assert compile.first_warmup.ended_ns - compile.first_warmup.began_ns == 5 * SECOND
    rank.wait(600)
    rank.ledger.begin("dynamo")
    rank.wait(2)
    rank.ledger.post(
        "compilation", {"kind": "forward", "id": "0/1", "category": "shape", "reason": "size"}
    )
    assert rank.judge().state is State.RECOMPILING
    rank.ledger.end("dynamo")
    assert rank.slot().compile.recompiles_after_warm == 1
    rank.wait(QUIET_SECONDS - 1)
    assert rank.judge().state is State.RECOMPILING
    rank.wait(2)
    assert rank.judge().warm_by == "quiet"


def test_ready_without_a_compilation_is_eager() -> None:
    rank = Rank(quiet=QUIET_SECONDS)
    rank.ledger.post("settled", {"by": "ready"})
    judged = rank.judge()
    assert (judged.state, judged.warm, judged.warm_by) == (State.EAGER, True, "ready")


def test_steps_after_a_silence_are_warm_until_the_next_compilation() -> None:
    rank = Rank(quiet=QUIET_SECONDS)
    compile_once(rank)
    rank.wait(QUIET_SECONDS)
    rank.ledger.post("settled", {"by": "quiet", "at": rank.now, "activities": 1})
    for _ in range(K):
        rank.wait(0.1)
        rank.step()
        assert rank.judge().state is State.WARM
    assert rank.slot().steps.steps == K, "the reader takes no mark for granted"
    assert rank.slot().compile.warmups == 1


ASYNCHRONOUS = """
import time, torch._inductor.compile_fx as compile_fx
compiled = torch.compile(make(), backend="eager")
compiled(torch.randn(2, 8))
compile_fx.fx_compile_async = True
compiled(torch.randn(2, 4, 8))
time.sleep(1.5)  # the time after which it would be warm
began = time.process_time()
time.sleep(2)
result([time.process_time() - began, warmwatch.state()])
"""


def test_a_process_that_can_never_be_warm_does_not_poll(records: Path) -> None:
    env = {"WARMWATCH_QUIET": "1"}
    spent, state = result_of(records, "import warmwatch" + ASYNCHRONOUS, env=env)
    assert state == "warming"
    assert spent < 0.2


def test_the_agent_and_the_verdict_require_the_same_silence() -> None:
    assert process_state._QUIET_GAPS == verdict.QUIET_GAPS


SERVER = """
import threading, time, warmwatch
compiled = torch.compile(make(), backend="eager")
was_warm = []
warm = threading.Event()
warmwatch.on_warm(lambda: (was_warm.append(warmwatch.is_warm()), warm.set()))
with torch.no_grad():
    compiled(torch.randn(2, 8))
    before = warmwatch.is_warm()
    assert warm.wait(60)
    compiled(torch.randn(2, 8))
    after = warmwatch.state()
    gate("warm")
    compiled(torch.randn(2, 4, 8))
    result([before, was_warm, after, warmwatch.state(), threading.active_count()])
"""


def test_a_real_process_detects_by_itself_that_it_is_warm(records: Path) -> None:
    with training(records, SERVER, env={"WARMWATCH_QUIET": "1.5"}) as one:
        one.reach("warm")
        counts = slots.read(slots.only(records)).compile
        one.go()
        reported = one.result()
        assert one.wait() == 0, one.stderr
    assert reported == [False, [True], "warm", "recompiling", 1]
    assert (counts.warmups, counts.optimizers, counts.agent_errors) == (1, 0, 0)
    assert counts.first_warmup.ended_ns == counts.last_end_ns
    after = slots.read(slots.only(records)).compile
    assert after.recompiles_after_warm == 1
    (line,) = [e for e in slots.events(slots.only(records)) if e["event"] == "warm"]
    assert line["by"] == "quiet"


MADE = """
import os, warmwatch
{before}
import warmwatch.auto
import torch._dynamo
{after}
compiled = torch.compile(lambda x: x + 1, backend="eager")
compiled(torch.ones(2))
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(make().parameters())"


@pytest.mark.parametrize(("before", "after"), [(OPTIMIZER, ""), ("", OPTIMIZER), ("", "")])
def test_an_optimizer_is_detected_if_created_before_or_after_attaching(
    records: Path, before: str, after: str
) -> None:
    run(records, MADE.format(before=before, after=after), attach=False, plain=True)
    assert slots.read(slots.only(records)).compile.optimizers == bool(before or after)


def test_ahead_of_time_code_counts_as_compiled() -> None:
    rank = Rank(quiet=QUIET_SECONDS)
    rank.pytorch.ahead = {"aoti"}
    for _ in range(K):
        rank.wait(1)
        rank.step()
    assert (rank.judge().state, rank.judge().warm_by) == (State.WARM, "steps")
