"""Living runs of the same name are distinguished; a child process is never a rank of its run."""

from __future__ import annotations

from support import builders as b
from support import sources
from support.values import replace
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch.shared.states import State
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.pipeline.runs import Circumstances, group
from warmwatch_monitor.sources.listed import RECORDS, Readings
from warmwatch_monitor.sources.records.source import RecordsReading

STEPS = StepCounts(steps=5, last_step_ns=b.NOW)


def record(folder: str, *, alive: bool = True, pid: int = 1, **slot: object) -> RecordReading:
    known = {"launch": f"process:{pid}:4026531836:99", "pid": pid, **slot}
    return RecordReading(folder=f"/d/{folder}", slot=b.slot(**known), alive=alive, pid=pid)  # type: ignore[arg-type]


def members(
    assembly: Assembly, *records: RecordReading, unread: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """The folders that speak, by run."""
    refusals = tuple(Refusal(path=f"/d/{folder}", reason="it is torn") for folder in unread)
    reading = RecordsReading(records=records, refusals=refusals)
    readings = Readings(values={RECORDS.name: reading})
    snapshot = assembly.make(readings, (), b.NOW, b.EPOCH).snapshot
    return {
        run.run: [view.reading.folder.removeprefix("/d/") for view in run.ranks]
        for run in snapshot.runs
    }


def test_two_live_runs_of_one_name_are_shown_under_stable_names() -> None:
    """In any order of reading, and after the first one has ended."""
    assembly = Assembly(sources.settings("/d"))
    first, second = record("first", pid=1, attached=20), record("second", pid=2, attached=10)
    assert members(assembly, second, first) == {"gpt2": ["first"], "gpt2-2": ["second"]}
    assert members(assembly, first, second) == {"gpt2": ["first"], "gpt2-2": ["second"]}
    over = replace(first, alive=False)
    assert members(assembly, over, second) == {"gpt2": ["first"], "gpt2-2": ["second"]}
    assert members(assembly, second) == {"gpt2-2": ["second"]}
    third = record("third", pid=3, attached=5)
    assert members(assembly, third, unread=("second",)) == {"gpt2": ["third"]}
    assert members(assembly, second, third) == {"gpt2": ["third"], "gpt2-2": ["second"]}


def test_runs_that_lived_together_are_numbered_also_when_both_have_ended() -> None:
    """Without a daemon nothing has seen them live: a sweep whose parent trains too."""
    ended = {name: lived(name, *times) for name, times in LIVES.items()}
    found = members(Assembly(sources.settings("/d")), *ended.values())
    assert found == {"gpt2": ["parent"], "gpt2-2": ["child"], "gpt2-3": ["sibling"]}


LIVES = {"parent": (100, 10), "child": (90, 60), "sibling": (80, 50)}  # seconds ago


def lived(folder: str, began: int, ended: int) -> RecordReading:
    """A record of a process that ended."""
    steps = StepCounts(steps=5, last_step_ns=b.ago(ended))
    return record(folder, pid=began, alive=False, attached=began, steps=steps)


def test_a_child_that_is_not_a_rank_never_represents_its_parent() -> None:
    """It steps and ends before the parent reports anything: the run continues and is not warm."""
    parent = record("parent", pid=7, attached=20)
    living = record("child", pid=8, launch="process:7:4026531836:99", steps=STEPS)
    ended = record(
        "child",
        pid=8,
        launch="process:7:4026531836:99",
        steps=STEPS,
        compile=CompileCounts(end_code=1, ended_ns=b.NOW),
        alive=False,
    )
    for child in (living, ended):
        for rivals in ((parent, child), (child, parent)):
            (run,) = group(rivals, Circumstances(now_ns=b.NOW))
            assert [view.reading.folder for view in run.ranks] == ["/d/parent"]
            assert run.state is State.STARTING
