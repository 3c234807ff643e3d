"""Compilers below a rank, as readings of the process tree add them to its record."""

from __future__ import annotations

from typing import Any

import pytest

from support import builders as b
from support.builders import NOW, SECOND
from support.values import replace
from warmwatch.shared import verdict
from warmwatch.shared.record import KINDS, PHASES, Slot
from warmwatch_monitor.model.machine import Compiling, GpuReading, ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.pipeline import outside
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.pipeline.outside import OutsideActivity
from warmwatch_monitor.pipeline.runs import Circumstances, group
from warmwatch_monitor.status.words.requested import nothing_compiles

OUTSIDE, KIND = PHASES.index("outside"), KINDS.index("outside")
IDLE = ProcessReading(pid=7, cpu_seconds=9.0, resident_bytes=1, cpu_ratio=0.0, tree_read=True)
STEPS = b.WARM.steps.steps


def at(quiet: float, *, more: int = 0, slot: Slot = b.WARM, **counts: int) -> RecordReading:
    """A rank whose last step was ``quiet`` seconds ago."""
    steps = slot.steps
    now = replace(steps, steps=steps.steps + more, last_step_ns=b.ago(quiet))
    slot = slot._replace(steps=now, compile=slot.compile._replace(**counts))
    return RecordReading(folder="/r/a", slot=slot, alive=True, pid=7)


class Polls:
    """Polls of one rank, each of them at NOW plus a number of seconds."""

    def __init__(self) -> None:
        self.activity = OutsideActivity()

    def see(
        self,
        seconds: float,
        one: RecordReading,
        since: float | None,
        gpus: tuple[GpuReading, ...] = (),
        *,
        tree: float = 0.0,
        busy: float = 0.0,
        slot: float = 0.0,
        **process: object,
    ) -> RecordReading:
        """The record as judged; ``since``: for how long compilers have run below it.

        ``tree``, ``slot``: how many seconds ago these were read. ``busy``: for how long one was
        busy before the tree was read.
        """
        now_ns = NOW + round(seconds * SECOND)
        compiling = None
        if since is not None:
            read_ns = now_ns - round(tree * SECOND)
            compiling = Compiling(
                since_ns=now_ns - round(since * SECOND),
                busy_ns=read_ns - round(busy * SECOND),
                read_ns=read_ns,
            )
        reading = replace(IDLE, compiling=compiling, **process)
        read_ns = now_ns - round(slot * SECOND)
        (seen,) = self.activity.of([one], {7: reading}, gpus, now_ns, read_ns)
        self.activity.keep(None)
        return seen


def compile_seconds(one: RecordReading, seconds: float) -> float:
    """Its compile time, as all views show it."""
    (run,) = group([one], Circumstances(now_ns=NOW + round(seconds * SECOND)))
    found = run.ranks[0].figures.compile.seconds
    assert found is not None
    return found


def stretch(one: RecordReading, seconds: float) -> tuple[float, float] | None:
    """For how long it compiles, and for how long the compiler worked in that time."""
    (run,) = group([one], Circumstances(now_ns=NOW + round(seconds * SECOND)))
    found = run.stretch
    if found is None:
        return None
    assert found.compiler_seconds is not None
    return found.seconds, found.compiler_seconds


def state(one: RecordReading, seconds: float = 0.0) -> str:
    (run,) = group([one], Circumstances(now_ns=NOW + round(seconds * SECOND)))
    return run.state.value


def test_a_compiler_below_a_rank_that_does_not_step_is_activity_since_it_began() -> None:
    seen = Polls().see(0, at(10), 8)
    assert state(seen) == "recompiling"
    assert (seen.slot.compile.active_since_ns, seen.slot.compile.active_phase) == (
        b.ago(8),
        OUTSIDE + 1,
    )
    assert Polls().see(0, at(10), 60).slot.compile.active_since_ns == b.ago(10), "it stepped since"


@pytest.mark.parametrize(
    ("one", "process"),
    [
        (at(2), {}),  # it steps
        (at(10, evaluating_since_ns=b.ago(9)), {}),
        (at(10, saving_since_ns=b.ago(9)), {}),
        (at(10, between_cells_since_ns=b.ago(9)), {}),
        (at(10), {"cpu_ratio": 1.0}),  # it works
        (at(10), {"compiling": None}),
    ],
)
def test_what_nothing_waits_for_is_none(one: RecordReading, process: dict[str, object]) -> None:
    polls = Polls()
    if "compiling" in process:
        assert polls.see(0, one, None) is one
    else:
        assert polls.see(0, one, 8, **process) is one


def test_it_ends_with_the_step_that_waited_and_counts_from_then_on() -> None:
    polls, before = Polls(), at(10)
    polls.see(0, before, 8)
    polls.see(5, before, 13)
    stepped = replace(
        before,
        slot=before.slot._replace(
            steps=replace(before.slot.steps, steps=STEPS + 1, last_step_ns=NOW + 6 * SECOND)
        ),
    )
    seen = polls.see(6.5, stepped, None)
    counts = seen.slot.compile
    assert counts.phase_ns[OUTSIDE] == 14 * SECOND, "from 8 s before to the step"
    assert counts.compilations[KIND] == 1
    assert (counts.clean_after, counts.active_since_ns) == (STEPS + 1, 0)
    assert state(seen, 6.5) == "recompiling"
    assert verdict.clean_steps(seen.slot.steps, counts) == 0
    for more in (2, 3, 4):
        steps = replace(stepped.slot.steps, steps=STEPS + more)
        seen = polls.see(
            6.5 + more, replace(stepped, slot=stepped.slot._replace(steps=steps)), None
        )
    assert state(seen, 11) == "warm"
    assert seen.slot.compile.phase_ns[OUTSIDE] == 14 * SECOND


def test_activity_that_the_agent_records_takes_its_place() -> None:
    polls, one = Polls(), at(10)
    polls.see(0, one, 8)
    own = replace(one, slot=one.slot._replace(compile=b.RECOMPILING.compile))
    seen = polls.see(1, own, 9)
    assert seen.slot.compile.active_phase == b.RECOMPILING.compile.active_phase


def test_compile_time_never_shrinks_when_a_build_is_over() -> None:
    polls, one = Polls(), at(10)
    seen, shown = [], []
    for poll in range(80):
        now = poll / 4
        tree = now % 2  # it is read every 2 s, and shows a compiler until second 4 and from 12 on
        since = 8 + now if now - tree <= 4 else now - 11 if now - tree >= 12 else None
        reading = polls.see(now, one, since, tree=tree)
        seen.append(compile_seconds(reading, now))
        shown += [(now, spent)] if (spent := stretch(reading, now)) else []
    assert seen == sorted(seen)
    assert seen[39] - seen[0] == pytest.approx(4, abs=0.01), "until it was last seen"
    whole, compiler = zip(*(spent for _, spent in shown), strict=True)
    assert whole == pytest.approx([8 + now for now, _ in shown]), "no step was made"
    assert list(compiler) == sorted(compiler)
    assert compiler[-1] == pytest.approx(seen[-1] - seen[0] + compiler[0])


@pytest.mark.parametrize("own", [True, False], ids=["its own since the step", "older"])
def test_the_time_of_the_compiler_has_what_was_compiled_since_the_step(own: bool) -> None:
    """Of the compile time before the last step, it has none."""
    since = b.ago(9 if own else 20)
    counts = {"compiling_since_ns": since, "compiling_before_ns": 30 * SECOND}
    counts["episode_began_ns"] = since if own else 0
    seen = Polls().see(0, at(10, phase_ns=b.phases(inductor=33), **counts), 5)
    assert stretch(seen, 0) == pytest.approx((9, 3 + 5) if own else (5, 5))


def test_a_rank_that_waits_for_a_forked_child_that_compiles_is_not_idle() -> None:
    """The child is a run of its own; of what it compiles, its parent's agent knows nothing."""
    launch = {"launch": "process:7:1:2", "pid": 7}
    parent = at(10, slot=b.WARM._replace(identity=replace(b.WARM.identity, **launch)))
    identity = replace(parent.slot.identity, run="gpt2.fork-1", pid=8, world_size=None)
    counts = b.WARM.compile._replace(active_since_ns=b.ago(8), active_phase=1)
    child = RecordReading(
        folder="/r/b", slot=b.WARM._replace(identity=identity, compile=counts), alive=True, pid=8
    )
    others = OtherReadings(now_ns=NOW, processes={7: IDLE})
    runs, _ = Judging().of([parent, child], others, None)
    (own,) = [run for run in runs if run.run == "gpt2"]
    assert own.state.value == "recompiling"
    assert b.head(own.ranks[0]).endswith("for 8.0 s: its child process `gpt2.fork-1` compiles")

    stepping = at(0.01, slot=parent.slot)
    runs, _ = Judging().of([stepping, child], others, None)
    (own,) = [run for run in runs if run.run == "gpt2"]
    assert own.state.value == "warm", "it does not wait for it"
    assert nothing_compiles(own.ranks[0]) == "its child process `gpt2.fork-1` compiles"

    over = replace(child, slot=child.slot._replace(compile=b.WARM.compile))
    runs, _ = Judging().of([stepping, over], others, None)
    assert nothing_compiles(runs[0].ranks[0]) == "nothing compiles"


def test_a_record_of_which_it_cannot_be_followed_costs_only_its_own_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = outside.follow

    def broken(before: outside.Outside, reading: RecordReading, *rest: Any) -> outside.Outside:
        if reading.folder == "/r/bad":
            raise ValueError
        return follow(before, reading, *rest)

    monkeypatch.setattr(outside, "follow", broken)
    compiling = replace(IDLE, compiling=Compiling(since_ns=b.ago(8), busy_ns=NOW, read_ns=NOW))
    bad = RecordReading(folder="/r/bad", slot=b.slot(run="bad"), alive=True, pid=8)
    others = OtherReadings(now_ns=NOW, processes={7: compiling, 8: IDLE})
    judging = Judging()
    for _ in range(2):
        runs, (refusal,) = judging.of([bad, at(10)], others, None)
        assert refusal.path == "/r/bad"
        assert [(run.run, run.state.value) for run in runs] == [("gpt2", "recompiling")]
