"""Measured energy is never lost: after a failed poll, a pause, or a restart of a rank."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders as b
from support import sources
from support.builders import NOW, SECOND
from support.values import replace
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.sources.listed import NVML, RECORDS, Readings
from warmwatch_monitor.sources.records.source import RecordsReading

COMPILE_WATTS, TRAIN_WATTS = 118.0, 600.0
HAPPENS = ("seen", "failed", "refused", "directory refused", "gpu away", "restart", "compiles")


@dataclass
class Training:
    """One rank on one GPU, through its restarts, as a daemon sees it or fails to."""

    assembly: Assembly = field(default_factory=lambda: Assembly(sources.settings("/d")))
    passed: float = 0.0
    joules: float = 0.0
    start: int = 0
    compiles: bool = True
    steps: int = 0
    activities: int = 1
    compile_seconds: float = 0.0
    began: float = 0.0
    before: list[RecordReading] = field(default_factory=list)

    def passes(self, seconds: float) -> None:
        self.passed += seconds
        self.joules += seconds * (COMPILE_WATTS if self.compiles else TRAIN_WATTS)
        if self.compiles:
            self.compile_seconds += seconds
        else:
            self.steps += int(seconds * 10)

    def change(self) -> None:
        """From compiling to training, or back."""
        self.compiles = not self.compiles
        if self.compiles:
            self.activities, self.began = self.activities + 1, self.passed

    def restart(self) -> None:
        self.before.append(replace(self.reading(), alive=False, pid=None))
        self.start, self.steps, self.activities, self.compile_seconds = self.start + 1, 0, 1, 0.0
        self.compiles, self.began = True, self.passed

    def reading(self) -> RecordReading:
        now = self.now
        counts = CompileCounts(
            begun=self.activities,
            ended=self.activities - self.compiles,
            activities_seen=self.activities if self.steps else 0,
            active_since_ns=NOW + round(self.began * SECOND) if self.compiles else 0,
            active_phase=1 if self.compiles else 0,
            accounted_ns=now,
            last_end_ns=0 if self.compiles else now,
            phase_ns=b.phases(dynamo=self.compile_seconds),
        )
        slot = b.slot(StepCounts(steps=self.steps, last_step_ns=now), counts, attempt=self.start)
        header = replace(slot.header, attached_epoch_ns=10**18 + self.start)
        slot = replace(slot, header=header)
        return RecordReading(folder=f"/d/{self.start}", slot=slot, alive=True, pid=1)

    @property
    def now(self) -> int:
        return NOW + round(self.passed * SECOND)

    def look(self, how: str) -> Snapshot:
        gpu = b.gpu(energy_joules=self.joules, read_energy_ns=self.now)
        identity = replace(self.reading().slot.identity, gpus=(gpu.uuid,))
        mine = self.reading()
        mine = replace(mine, slot=replace(mine.slot, identity=identity))
        found = RecordsReading(records=(*self.before, mine))
        if how == "refused":
            torn = Refusal(path=mine.folder, reason="torn record")
            found = RecordsReading(records=tuple(self.before), refusals=(torn,))
        if how == "directory refused":
            found = RecordsReading(refusals=(Refusal(path="/d", reason="it cannot be listed"),))
        values: dict[str, object] = {RECORDS.name: found, NVML.name: (gpu,)}
        if how == "failed":
            del values[RECORDS.name]
        if how == "gpu away":
            del values[NVML.name]
        return self.assembly.make(Readings(values=values), (), self.now, 1.0).snapshot


def spent(snapshot: Snapshot) -> dict[str, tuple[float, float]]:
    """Joules of compiling and of clean steps, by record."""
    views = [view for run in snapshot.runs for view in run.ranks if view.spending]
    return {
        view.reading.folder: (view.spending.compile_joules, view.spending.clean_joules)
        for view in views
        if view.spending
    }


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(HAPPENS), st.floats(0.1, 2_000.0)), max_size=40),
)
def test_the_joules_of_a_record_never_fall(events: list[tuple[str, float]]) -> None:
    """This holds for any failure between two polls, of any length."""
    training = Training()
    most: dict[str, tuple[float, float]] = {}
    for how, seconds in [("seen", 1.0), *events, ("seen", 1.0), ("seen", 1.0)]:
        training.passes(seconds)
        if how == "restart":
            training.restart()
        if how == "compiles":
            training.change()
        seen = spent(training.look(how))
        for folder, (compiling, clean) in seen.items():
            before = most.get(folder, (0.0, 0.0))
            assert compiling >= before[0]
            assert clean >= before[1]
            most[folder] = (compiling, clean)
    assert set(most) >= set(spent(training.look("seen")))
    assert f"/d/{training.start}" in most
    assert sum(map(sum, most.values())) <= training.joules + 1e-6


def test_measured_joules_survive_a_failed_poll_and_a_paused_daemon() -> None:
    training = Training()
    training.look("seen")
    training.passes(1_000 / COMPILE_WATTS)
    assert spent(training.look("seen"))["/d/0"][0] == pytest.approx(1_000)
    for how in ("failed", "failed", "refused", "directory refused"):
        training.passes(3_600)
        assert "/d/0" not in spent(training.look(how))
    compiling, _ = spent(training.look("seen"))["/d/0"]
    meanwhile = 4 * 3_600 * COMPILE_WATTS
    assert compiling == pytest.approx(1_000 + meanwhile), "what it spent meanwhile as well"
