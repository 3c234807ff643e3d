"""Trainings on GPUs whose loop does not wait for the GPU in each step: the real speed is wall time.

Their steps launch kernels; every so often one waits for all that are queued.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from support import builders as b
from support.values import replace
from warmwatch.shared import record
from warmwatch_monitor.model.journal import LongStep
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.pipeline.figures import forget_gone
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings

RECORDED = Path(__file__).parents[2] / "captures" / "queued_steps_h100.json.xz"
GPU = "GPU-00000000-0000-4000-8000-000000000000"
ON_GPU = replace(b.WARM, identity=replace(b.WARM.identity, gpus=(GPU,)))


class Training(b.GrowingRecord):
    """A training on a GPU, polled each second by a daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.judging, self.polled = Judging(), 0.0
        self.views: list[RankView] = []
        self.long_steps: tuple[LongStep, ...] = ()

    def poll(self, judging: Judging) -> RankView:
        slot = self.slot(ON_GPU, irregular_step_ns=b.NOW, clean_sum_ns=0)
        reading = replace(b.view(slot).record, long_steps=self.long_steps)
        now = OtherReadings(now_ns=slot.steps.last_step_ns)
        (run,), refused = judging.of([reading], now, {reading.folder})
        assert not refused
        return run.ranks[0]

    def run(self, lengths: Iterator[float]) -> RankView:
        """Mark steps of these lengths; the last view of the daemon."""
        for seconds in lengths:
            self.mark(seconds)
            if seconds > 1:
                self.long_step(seconds)
            if self.now - self.polled >= 1:
                self.polled = self.now
                self.views.append(self.poll(self.judging))
        return self.views[-1]

    def long_step(self, seconds: float) -> None:
        """A line of the agent's journal, as the monitor stores it."""
        usual = (record.median_ns(record.recent_lengths(self.slot().recent)) or 0.0) / 1e9
        at_ns = b.NOW + round(self.now * 1e9)
        new = LongStep(at_ns=at_ns, step=self.steps, seconds=seconds, usual_seconds=usual)
        longest = max((*self.long_steps[:1], new), key=lambda one: one.seconds)
        self.long_steps = longest, *(*self.long_steps[1:], new)[-5:]

    def first_look(self) -> float | None:
        """The recent speed for a command without a daemon."""
        forget_gone(())
        return self.poll(Judging()).figures.steps.recent


def queued(real: float, every: int, seconds: float, launch: float = 0.0014) -> Iterator[float]:
    """Steps that take ``real`` on the GPU; each ``every``-th synchronizes."""
    drawn = random.Random(0)
    for _ in range(round(seconds / real / every)):
        launches = [launch * drawn.uniform(0.95, 1.05) for _ in range(every)]
        yield from launches[:-1]
        yield every * real - sum(launches[:-1])


@pytest.mark.parametrize("every", [1, 2, 10, 25, 40, 100, 300])
@pytest.mark.parametrize("real", [0.0019, 0.02, 0.08])
def test_the_speed_is_the_wall_time_of_a_step(real: float, every: int) -> None:
    training = Training()
    view = training.run(queued(real, every, 120))
    assert view.figures.steps.recent == pytest.approx(real, rel=0.1)
    assert training.first_look() == pytest.approx(real, rel=0.1)
    assert not [one for one in training.views if one.slower]


def test_a_loop_that_synchronizes_less_often_is_neither_faster_nor_slower() -> None:
    training = Training()
    for every in (1, 100, 1, 10, 1):
        view = training.run(queued(0.02, every, 60))
        assert view.figures.steps.recent == pytest.approx(0.02, rel=0.1)
    assert not [one for one in training.views if one.slower]


@pytest.mark.parametrize("every", [1, 10, 100])
def test_a_gpu_that_becomes_slower_is_reported_with_both_speeds(every: int) -> None:
    training = Training()
    training.run(queued(0.02, every, 90))
    view = training.run(queued(0.05, every, 60))
    assert view.figures.steps.recent == pytest.approx(0.05, rel=0.1)
    assert view.slower is not None
    assert view.slower.before == pytest.approx(0.02, rel=0.1)
    assert view.slower.seconds == pytest.approx(0.05, rel=0.1)
    assert view.slower.since_step == pytest.approx(4500, abs=250)


def test_a_recorded_loop_has_the_speed_of_the_gpu_within_seconds_of_each_change() -> None:
    """Recorded on an H100 with CUDA events: 7 ms a step, from 20 s on 48 ms, from 40 s on 7 ms.

    The loop reads its loss every 50 steps. So the last 64 show one or two synchronizations.
    """
    recorded = json.loads(lzma.decompress(RECORDED.read_bytes()))
    training, polled = Training(), 0.0
    on_gpu = list(accumulate(recorded["gpu_us"], initial=recorded["gpu_lag_us"]))
    done, slow = 0, []
    for microseconds in recorded["steps_us"]:
        training.mark(microseconds / 1e6)
        while on_gpu[done] < training.now * 1e6 and done < len(on_gpu) - 1:
            done += 1
        if training.now - polled < 0.2:
            continue
        polled = training.now
        recent = training.poll(training.judging).figures.steps.recent
        true = (on_gpu[done] - on_gpu[max(0, done - 50)]) / min(done, 50) / 1e6
        if training.steps > 100 and recent != pytest.approx(true, rel=0.15):
            slow.append(polled)
    assert [at for at in slow if not (20 < at < 24 or 40 < at < 45)] == []


def test_a_record_that_cannot_be_judged_does_not_change_the_speed_of_others() -> None:
    """Each record is then judged alone, which must not forget the earlier polls of the others."""

    class BesideDamaged(Training):
        def poll(self, judging: Judging) -> RankView:
            slot = self.slot(ON_GPU, irregular_step_ns=b.NOW, clean_sum_ns=0)
            one = b.view(slot).record
            identity = replace(slot.identity, run="other", launch="other")
            other = replace(one, folder="/other", slot=replace(slot, identity=identity))
            damaged = replace(one, folder="/damaged", slot=replace(slot, steps=None))
            now = OtherReadings(now_ns=slot.steps.last_step_ns)
            runs, refused = judging.of([one, other, damaged], now, None)
            assert [each.path for each in refused] == ["/damaged"]
            return next(run.ranks[0] for run in runs if run.run == slot.identity.run)

    training = BesideDamaged()
    training.run(queued(0.02, 300, 60))
    view = training.run(queued(0.06, 300, 80))
    assert view.figures.steps.recent == pytest.approx(0.06, rel=0.1)
