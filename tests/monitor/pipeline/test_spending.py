"""What compilation cost: joules from energy readings and recorded compile time."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders as b
from support.values import replace
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.pipeline.energy import EnergyUsed, charge, retained, updated

SECOND = b.SECOND
COMPILE_WATTS, TRAIN_WATTS = 118.0, 600.0
CAPTURE = Path(__file__).parents[2] / "captures" / "h100_gpt2_124m_default.json"


@dataclass(frozen=True)
class Past:
    """When a rank compiled and when it marked steps, in seconds; between them its GPU trains."""

    activities: tuple[tuple[float, float], ...]
    steps: tuple[float, ...]
    end: float

    def watts(self, at: float) -> float:
        if any(start <= at < end for start, end in self.activities):
            return COMPILE_WATTS
        return TRAIN_WATTS if self.steps and at >= self.steps[0] - 1 else COMPILE_WATTS

    def compile_seconds(self, until: float) -> float:
        return sum(max(0.0, min(end, until) - start) for start, end in self.activities)

    def edges(self) -> list[float]:
        marks = [edge for activity in self.activities for edge in activity]
        return sorted({0.0, *marks, *self.steps[:1], self.end})

    def joules(self, until: float) -> float:
        """The integral of the power; it is constant between the edges."""
        edges = [edge for edge in self.edges() if edge < until] + [until]
        return sum((b - a) * self.watts((a + b) / 2) for a, b in pairwise(edges))

    def compile_joules(self) -> float:
        return sum((end - start) * COMPILE_WATTS for start, end in self.activities)

    def view(self, now: float, read_energy: float) -> RankView:
        """The rank as a monitor sees it at ``now``, its GPU's counter read a little before."""
        begun = [one for one in self.activities if one[0] <= now]
        ended = [one for one in begun if one[1] <= now]
        active = begun[-1] if len(begun) > len(ended) else None
        done = sum(end - start for start, end in ended)
        counts = CompileCounts(
            begun=len(begun),
            ended=len(ended),
            active_since_ns=_ns(active[0]) if active else 0,
            active_phase=1 if active else 0,
            accounted_ns=_ns(active[0]) if active else 0,
            last_end_ns=_ns(ended[-1][1]) if ended else 0,
            phase_ns=b.phases(dynamo=done),
        )
        marked = bisect_right(self.steps, now)
        last = _ns(self.steps[marked - 1]) if marked else 0
        slot = b.slot(StepCounts(steps=marked, last_step_ns=last), counts)
        gpu = b.gpu(energy_joules=self.joules(read_energy), read_energy_ns=_ns(read_energy))
        return b.view(slot, gpus=(gpu,))


def _ns(seconds: float) -> int:
    return 10**12 + round(seconds * SECOND)


def follow(past: Past, looks: Sequence[float], lag: float = 0.0) -> EnergyUsed:
    account = EnergyUsed()
    for look in looks:
        now = look + lag
        account = updated(account, past.view(now, look), _ns(now))
    return account


def every(seconds: float, until: float) -> list[float]:
    return [seconds * i for i in range(int(until / seconds) + 1)]


TRAINING = Past(
    activities=((2.0, 39.4), (60.3, 70.8)),
    steps=tuple(40.0 + 0.036 * i for i in range(500)) + tuple(71 + 0.036 * i for i in range(500)),
    end=90.0,
)


@pytest.mark.parametrize("interval", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("lag", [0.0, 0.2])
def test_the_joules_of_compilation_do_not_depend_on_the_poll_interval(
    interval: float, lag: float
) -> None:
    """Each activity has two mixed windows at most, and they are split by known powers."""
    spent = follow(TRAINING, every(interval, TRAINING.end), lag).spending
    allowed = 4 * (interval + lag) * (TRAIN_WATTS - COMPILE_WATTS) * 0.25
    assert spent.compile_joules == pytest.approx(TRAINING.compile_joules(), abs=allowed)
    assert spent.compile_seconds == pytest.approx(37.4 + 10.5, abs=0.01 + lag)


MARKS = tuple(2.0 + 0.1 * i for i in range(480))


@pytest.mark.parametrize(
    "activities",
    [((20.3, 20.7),), ((3.0, 8.0), (20.3, 20.7)), ((20.3, 20.5), (30.6, 30.8))],
    ids=["the power of steps is known", "that of compiling is known", "twice"],
)
def test_a_recompile_within_one_window_costs_its_own_energy(
    activities: tuple[tuple[float, float], ...],
) -> None:
    """It is shorter than the interval of polls: the rest of the window is subtracted."""
    brief = Past(activities=activities, steps=MARKS, end=50.0)
    spent = follow(brief, every(1.0, brief.end)).spending
    assert spent.compile_joules == pytest.approx(brief.compile_joules(), rel=1e-6)
    assert spent.compile_seconds == pytest.approx(sum(b - a for a, b in activities))


def test_a_clean_step_costs_the_energy_drawn_in_its_time() -> None:
    spent = follow(TRAINING, every(1.0, TRAINING.end)).spending
    assert spent.clean_joules / spent.clean_steps == pytest.approx(TRAIN_WATTS * 0.036, rel=0.03)


def test_steps_of_many_seconds_are_not_idle_time() -> None:
    """21 s a step, a poll a second: most windows contain no mark, and all their energy counts."""
    marks = tuple(21.0 + 21 * i for i in range(20))
    slow = Past(activities=((1.0, 20.0),), steps=marks, end=430.0)
    spent = follow(slow, every(1.0, slow.end)).spending
    assert spent.clean_joules / spent.clean_steps == pytest.approx(TRAIN_WATTS * 21, rel=0.01)


def test_energy_after_the_last_step_belongs_to_no_step() -> None:
    stopped = replace(TRAINING, end=400.0)
    spent = follow(stopped, every(1.0, stopped.end)).spending
    assert spent.clean_joules / spent.clean_steps == pytest.approx(TRAIN_WATTS * 0.036, rel=0.06)


def test_the_cost_of_a_recorded_h100_training_matches_its_intervals() -> None:
    """Its real activities, with a GPU that draws 118 W in them and 600 W else."""
    reported = json.loads(CAPTURE.read_text())["events"]
    activities = tuple(_intervals(reported))
    end = activities[-1][1] + 20
    past = Past(activities=activities, steps=(activities[0][1] + 60, end - 1), end=end)
    spent = follow(past, every(1.0, end), lag=0.1).spending
    assert spent.compile_joules == pytest.approx(past.compile_joules(), rel=0.05)
    assert spent.compile_seconds == pytest.approx(past.compile_seconds(end), rel=0.01)


def _intervals(events: Sequence[dict[str, object]]) -> Iterator[tuple[float, float]]:
    """When any phase was open."""
    depth, began = 0, 0.0
    for event in events:
        change = {"ph_start": 1, "ph_end": -1}.get(str(event["kind"]), 0)
        at = float(str(event["t"]))
        if change and not depth:
            began = at
        depth += change
        if change and not depth:
            yield began, at


edges = st.lists(st.floats(0.1, 8.0), min_size=2, max_size=12)


@settings(deadline=None)  # a busy machine is no finding
@given(edges, st.floats(0.05, 3.0), st.floats(0.0, 0.4))
def test_costs_are_never_negative_never_shrink_and_never_exceed_the_total(
    lengths: list[float], interval: float, lag: float
) -> None:
    """Activities and pauses of any length, polled at any rate."""
    at, activities, steps = 0.0, [], []
    for number, length in enumerate(lengths):
        if number % 2:
            activities.append((at, at + length))
        else:
            steps += [at + length * part / 4 for part in range(1, 4)]
        at += length
    past = Past(activities=tuple(activities), steps=tuple(steps), end=at)
    account, before = EnergyUsed(), EnergyUsed().spending
    looks = every(interval, at)
    for look in looks:
        account = updated(account, past.view(look + lag, look), _ns(look + lag))
        spent = account.spending
        assert spent.compile_joules >= before.compile_joules >= 0
        assert spent.clean_joules >= before.clean_joules >= 0
        assert spent.compile_seconds >= before.compile_seconds >= 0
        before = spent
    assert before.compile_joules + before.clean_joules <= past.joules(looks[-1]) + 1e-6
    assert before.compile_seconds <= past.compile_seconds(at + lag) + 1e-6


def test_a_summary_remains_while_its_record_exists_and_then_for_the_retention() -> None:
    views = b.runs(TRAINING.view(1.0, 1.0))
    reading = views[0].ranks[0].reading
    assert reading is not None
    folder = reading.folder
    accounts, runs = charge({}, views, _ns(1.0))
    assert list(accounts) == [folder]
    assert runs[0].ranks[0].spending is not None
    assert charge(accounts, (), _ns(2.0)) == (accounts, ())
    nobody_looked = retained(accounts, None, _ns(9_999.0), 900 * SECOND)
    assert nobody_looked == accounts
    gone = retained(accounts, (), _ns(2.0), 900 * SECOND)
    assert list(gone) == [folder]
    assert retained(gone, {folder}, _ns(3.0), 900 * SECOND) == accounts, "it is there again"
    assert list(retained(gone, (), _ns(902.0), 900 * SECOND)) == [folder]
    assert retained(gone, (), _ns(902.1), 900 * SECOND) == {}
