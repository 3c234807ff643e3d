"""Sixteen threads compile concurrently: compares the agent, PyTorch's records and its trace.

Not compared: how PyTorch's records divide the time between threads that share a lock (each counts
its waiting), and the phase that the agent chooses while threads are in several (that of the thread
which has been in its phase longest).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import slots, truth
from support.torch_versions import TORCH
from support.trainings import run, training
from warmwatch.shared.record import KINDS

THREADS = 16
BODY = """
import threading
from support import truth
truth.begin()
meet = threading.Barrier({threads})
failed = []

def make_function(number):
    def function(x):
        return (x * number + number).sin().sum()
    # code of its own: what compiles one function again for another number is a recompile
    function.__code__ = function.__code__.replace(co_name=f"function_{{number}}")
    return torch.compile(function, backend={backend!r})

def work(number):
    try:
        compiled = make_function(number)
        meet.wait()
        compiled(torch.ones(number + 2, requires_grad=True)).backward()
    except BaseException as error:
        failed.append(repr(error))

threads = [threading.Thread(target=work, args=(number,)) for number in range({threads})]
for thread in threads: thread.start()
for thread in threads: thread.join()
result({{"failed": failed, **truth.recorded()}})
gate("compiled")
"""


@pytest.mark.long
@pytest.mark.skipif(TORCH.threads < 2, reason="this PyTorch crashes where a second thread compiles")
def test_concurrent_compilations_of_sixteen_threads_are_counted_as_pytorch_counts_them(
    records: Path, tmp_path: Path
) -> None:
    body = BODY.format(threads=THREADS, backend="aot_eager")
    trace = tmp_path / "trace"
    with training(records, body, env={"TORCH_TRACE": str(trace)}) as started:
        recorded: dict[str, Any] = started.result()
        started.reach("compiled")
        slot = slots.read(slots.only(records))
        events = slots.events(slots.only(records))
        started.go()
        assert started.wait() == 0, started.stderr
    assert recorded["failed"] == []
    traced = truth.traced(trace, recorded["pid"])
    kinds = dict(zip(KINDS, slot.compile.compilations, strict=True))
    forward = sum(one["is_forward"] is not False for one in recorded["compilations"])
    assert kinds["forward"] == forward
    assert kinds["backward"] == len(recorded["compilations"]) - forward
    assert slot.compile.graphs == recorded["graphs"] == traced["graphs"] >= THREADS
    assert traced["records"] == len(recorded["compilations"])
    assert (slot.compile.failures, slot.compile.agent_errors) == (0, 0)
    assert not slot.compile.active_since_ns
    assert slot.compile.begun == slot.compile.ended
    _same_time(recorded, slot, events, truth.monotonic(recorded, traced))


def _same_time(
    recorded: dict[str, Any], slot: Any, events: list[dict[str, Any]], open_: list[truth.Interval]
) -> None:
    """The agent's activity covers PyTorch's records, and no more than PyTorch's trace.

    The two clocks are read at different moments, each by a thread that may have lost its core.
    """
    begun = {one["activity"]: one["t"] for one in events if one["event"] == "begin"}
    ours = truth.merged(
        (begun[one["activity"]], one["t"]) for one in events if one["event"] == "end"
    )
    agent = sum(slot.compile.phase_ns) / 1e9
    assert agent == pytest.approx(truth.seconds(ours), abs=0.001)
    whole = truth.merged([*truth.intervals(recorded), *open_])
    print(
        f"agent {agent:.3f} s, records {truth.seconds(truth.intervals(recorded)):.3f} s, ", end=""
    )
    print(f"trace {truth.seconds(open_):.3f} s, both {truth.seconds(whole):.3f} s")
    apart = _without(truth.intervals(recorded), ours) + _without(ours, whole)
    assert apart < 0.25 * truth.seconds(whole)


def _without(parts: list[truth.Interval], others: list[truth.Interval]) -> float:
    """Seconds of ``parts`` that are in none of ``others``."""
    return truth.seconds([*parts, *others]) - truth.seconds(others)


FIRST = """
import threading, warmwatch
meet = threading.Barrier(8)

def work():
    meet.wait()
    for _ in range(500): warmwatch.step()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_that_make_their_first_step_concurrently_share_one_record(records: Path) -> None:
    """Nothing of theirs is lost, though nobody has made it before."""
    run(records, FIRST, plain=True)
    slot = slots.read(slots.only(records))
    assert slot.steps.steps == 8 * 500
    assert sum(slot.clean_bins) == 8 * 500 - 1
