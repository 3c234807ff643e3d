"""Slower runs: the change-point detector over recorded steps, its cases and its false alarms."""

from __future__ import annotations

import json
import lzma
import math
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.figures.rank import Slower, SlowerPeriod
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.journal import LongStep
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.pipeline.slowdown import (
    Speed,
    first_poll,
    follow,
    is_slowing,
    slower,
    slower_periods,
)
from warmwatch_monitor.status.words.run import run_answer

POLL = 0.25
CAPTURES = Path(__file__).parents[2] / "captures"


class Watch(b.GrowingRecord):
    """A record that grows, polled every quarter of a second as a daemon does.

    After each ``first_polls`` steps a command without a daemon polls it too, and reports no change.
    """

    def __init__(self, first_polls: int | None = None) -> None:
        super().__init__()
        self.first_polls, self.looked = first_polls, 0.0
        self.speed: Speed | None = follow(None, self.slot())
        self.seen: list[tuple[float, int, Slower]] = []

    def first_poll(self, slowed: LongStep | None = None) -> tuple[SlowerPeriod, ...]:
        """The slower periods that a monitor without earlier polls finds."""
        self.speed = follow(None, self.slot(), slowed=slowed)
        return self.periods()

    def look(self, **counts: int) -> Slower | None:
        slot = self.slot(**counts)
        self.speed = follow(self.speed, slot)
        recent = slot.recent_step_ns
        found = slower(self.speed, recent / 1e9 if recent else None)
        if found:
            self.seen.append((self.now, self.steps, found))
        return found

    def periods(self, *, ended: bool = False) -> tuple[SlowerPeriod, ...]:
        assert self.speed is not None
        return slower_periods(self.speed, b.WARM.header, ended=ended)

    def run(self, lengths: Iterable[float], **counts: int) -> None:
        for seconds in lengths:
            self.mark(seconds)
            if self.now - self.looked >= POLL:
                self.looked = self.now
                self.look(**counts)
            if self.first_polls and self.steps % self.first_polls == 0:
                assert first_poll(self.slot()).periods == ()


def noisy(seconds: float, count: int, seed: int = 0, spread: float = 0.05) -> Iterator[float]:
    drawn = random.Random(seed)
    return (seconds * drawn.lognormvariate(0, spread) for _ in range(count))


def test_a_step_change_is_reported_within_its_first_30_seconds_with_its_step() -> None:
    watch = Watch()
    watch.run(noisy(0.024, 300))
    assert not watch.seen
    began = watch.now
    watch.run(noisy(0.4, 74))
    at, _, found = watch.seen[0]
    assert at - began <= 30
    assert found.since_step == 301, "the last fast step: the record begins with one"
    assert found.before == pytest.approx(0.024, rel=0.05)
    assert found.ratio == pytest.approx(400 / 24, rel=0.05)


@pytest.mark.parametrize("step", [0.002, 0.024, 0.3, 1.0, 1.15, 1.25, 3.0])
def test_steps_half_as_long_again_are_reported_within_30_seconds_and_ten_steps(step: float) -> None:
    watch = Watch()
    watch.run(noisy(step, max(100, round(60 / step)), spread=0.02))
    began, steps = watch.now, watch.steps
    watch.run(noisy(1.6 * step, math.ceil(max(10, 30 / (1.6 * step))), spread=0.02))
    assert watch.seen, "within those steps"
    assert watch.seen[0][0] - began <= max(30, 10.5 * 1.6 * step)
    assert watch.seen[0][1] > steps


def test_long_steps_at_regular_intervals_are_slow_steps_and_no_hangs() -> None:
    watch = Watch()
    watch.run(noisy(0.05, 300, spread=0.02))
    watch.run(6.0 if number % 7 == 6 else 0.15 for number in range(140))
    (period,) = watch.periods(ended=True)
    assert period.since_step == 301
    assert period.seconds == pytest.approx((6.0 + 6 * 0.15) / 7, rel=0.05)


def test_a_hang_is_no_part_of_a_slower_period() -> None:
    watch = Watch()
    watch.run(noisy(0.1, 600))
    watch.run((60.0, *noisy(0.3, 20)))
    assert not watch.seen, "8 s of slow steps"
    watch.run((*noisy(0.3, 80), 60.0, *noisy(0.3, 40)))
    (period,) = watch.periods(ended=True)
    assert period.since_step == 602, "after the first one"
    assert period.seconds == pytest.approx(0.3, rel=0.02)


@pytest.mark.parametrize(("fast", "slow"), [(0.05, 0.15), (0.2, 0.6)])
def test_a_daemon_and_a_command_without_one_agree_after_a_change(fast: float, slow: float) -> None:
    """Neither calls steps the real speed that are slower than before."""
    watch = Watch()
    watch.run(noisy(fast, 400))
    for seconds in range(10, 70, 10):
        watch.run(noisy(slow, round(10 / slow), seed=seconds))
        recent = (watch.slot().recent_step_ns or 0) / 1e9
        seen = [
            (is_slowing(one, recent), slower(one, recent) is not None)
            for one in (watch.speed, first_poll(watch.slot()))
        ]
        assert seen[0] == seen[1] == (seconds <= 20, seconds > 20)


def epoch(seconds: float) -> float:
    """When a Watch was at ``seconds``."""
    return b.WARM.header.epoch_seconds(b.NOW + round(seconds * 1e9))


def test_a_curriculum_that_recompiles_is_another_warm_up_each_time() -> None:
    watch = Watch()
    for stage, seconds in enumerate((0.02, 0.04, 0.08, 0.16)):
        watch.look(begun=10 + stage)
        watch.run(noisy(seconds, round(60 / seconds), seed=stage), begun=10 + stage)
    assert not watch.seen


def test_a_recompile_that_falls_back_to_eager_retains_the_reference() -> None:
    watch = Watch()
    watch.run(noisy(0.02, 1000))
    watch.run(noisy(0.05, 800), begun=b.WARM.compile.begun + 1, fallbacks=1)
    assert watch.seen[-1][2].before == pytest.approx(0.02, rel=0.1)


def test_the_start_of_long_steps_comes_from_the_journal_if_all_steps_since_were_slow() -> None:
    watch = Watch()
    watch.run(noisy(0.3, 1000))
    change = watch.now
    watch.run(noisy(1.5, 200))
    (period,) = watch.first_poll()
    assert (period.began_at, period.since_step) == (None, None)
    at_ns = b.NOW + round((change + 1.5) * 1e9)
    first = LongStep(at_ns=at_ns, step=1002, seconds=1.5, usual_seconds=0.3)
    (period,) = watch.first_poll(first)
    assert period.since_step == 1001
    assert period.began_at == pytest.approx(epoch(change), abs=0.01)
    (period,) = watch.first_poll(replace(first, step=702))
    assert period.since_step is None, "it was fast again after those"


@pytest.mark.parametrize(
    "lengths",
    [
        lambda: noisy(0.02, 5000),
        lambda: (0.3 if n % 10 == 9 else 0.02 for n in range(5000)),
        lambda: (*noisy(0.4, 500), *noisy(0.02, 5000)),
        lambda: (*noisy(0.02, 5000), *noisy(0.4, 20)),
        lambda: (*noisy(1.0, 300, spread=0.01), *noisy(1.33, 100, spread=0.01)),
        lambda: (x for n in range(10) for x in (*noisy(0.02, 2000, n), *noisy(0.06, 50, n))),
        lambda: (*noisy(0.9, 3000, spread=0.3), *noisy(1.3, 60, spread=0.15)),
    ],
    ids=[
        "alike",
        "every tenth",
        "faster than before",
        "for eight seconds",
        "a third longer",
        "bursts",
        "steps that vary",
    ],
)
def test_a_command_without_a_daemon_reports_no_false_change(
    lengths: Callable[[], Iterable[float]],
) -> None:
    watch = Watch()
    watch.run(lengths())
    assert watch.first_poll() == ()
    recompiled = watch.slot(warmups=2, clean_after=100, clean_sum_before_ns=1)
    assert first_poll(recompiled).periods == ()


def shared(seed: int, count: int) -> Iterator[float]:
    """Steps on a shared machine: a heavy tail, and bursts in which everything takes longer."""
    drawn = random.Random(seed)
    base, spread = drawn.choice((0.004, 0.02, 0.15, 0.9)), drawn.choice((0.02, 0.1, 0.3))
    burst = 0.0
    for _ in range(count):
        length = base * drawn.lognormvariate(0, spread)
        if drawn.random() < 0.01:
            length *= drawn.uniform(2, 10)
        if burst <= 0 and drawn.random() < base / 120:  # every two minutes
            burst = drawn.uniform(0.5, 12)
        if burst > 0:
            length *= drawn.uniform(1.2, 2.5)
            burst -= length
        yield length


def alternating(seed: int, count: int) -> Iterator[float]:
    """Sequence lengths at random: steps are short or long, as the batch is."""
    drawn = random.Random(seed)
    return (drawn.choice((0.5, 0.6, 1.0, 1.4)) for _ in range(count))


SERIES = [
    *[
        pytest.param(made, seed, 20_000, id=f"{name}-{seed}", marks=[pytest.mark.long] * (seed > 0))
        for made, name, seeds in ((shared, "shared", 14), (alternating, "lengths", 6))
        for seed in range(seeds)
    ],
    *[
        pytest.param(made, seed, 100_000, id=f"{name}-{seed}-long", marks=pytest.mark.long)
        for made, name in ((shared, "shared"), (alternating, "lengths"))
        for seed in range(2)
    ],
]


@pytest.mark.slow
@pytest.mark.parametrize(("made", "seed", "steps"), SERIES)
def test_twenty_series_without_a_change_raise_no_alarm(
    made: Callable[[int, int], Iterator[float]], seed: int, steps: int
) -> None:
    watch = Watch(first_polls=499)
    watch.run(made(seed, steps))
    assert watch.seen == []


# Trainings of 50 s on two CPUs, and three of 100,000 steps, whose lengths have two digits. The load
# was 8 to 19: other processes took more and less CPU time all along.
REAL = {
    one["training"]: [length / 1e6 for length in one["microseconds"]]
    for one in json.loads(lzma.decompress((CAPTURES / "real_steps.json.xz").read_bytes()))
}
# Four really lost the CPU, the last two at the same moment as each other. By their medians over
# 2 to 4 s: between which steps, how.
CHANGED = {
    "convolutions, batch 64": (1302, 2313, 3.0),  # 3.5 to 7 ms, then 13 to 52 ms
    "mlp of 512, a log line at every tenth step": (100, 151, 3.0),  # 27 ms, then 72 to 137 ms
    "convolutions, evaluated after 200 steps": (2420, 3080, 1.5),  # 3 to 6 ms, then 7 to 19 ms
    "gpt of 2 layers, evaluated before 50 steps": (447, 587, 2.5),  # 25 ms, then 40 to 120 ms
}
UNCHANGED = sorted(set(REAL) - set(CHANGED))
LONG = [name for name in UNCHANGED if len(REAL[name]) > 99_000]


def test_there_are_twenty_real_trainings_without_a_change() -> None:
    assert (len(UNCHANGED), len(LONG)) == (20, 3)


@pytest.mark.parametrize("training", UNCHANGED)
def test_a_real_training_without_a_change_raises_no_alarm(training: str) -> None:
    watch = Watch(first_polls=499 if training in LONG else 11)
    watch.run(REAL[training])
    assert watch.now > 45, "long enough for two levels"
    assert watch.seen == []


@pytest.mark.parametrize("training", CHANGED)
def test_a_change_in_a_real_training_is_reported_with_its_step(training: str) -> None:
    earliest, latest, least = CHANGED[training]
    watch = Watch()
    watch.run(REAL[training])
    found = watch.seen[0][2]
    assert found.since_step is not None
    assert earliest <= found.since_step <= latest
    assert found.ratio >= least


@pytest.mark.parametrize("training", sorted(set(UNCHANGED) - set(LONG)))
def test_a_real_training_that_becomes_four_times_as_slow_raises_an_alarm(training: str) -> None:
    """Without this, the detector could ignore every change of such noisy series."""
    watch = Watch()
    watch.run(REAL[training])
    watch.run(4 * length for length in REAL[training])
    assert watch.seen


def slowed(**counts: object) -> RankView:
    known = Slower(seconds=0.4, ratio=16.7, before=0.024, since_step=300, **counts)  # type: ignore[arg-type]
    return b.view_of(b.view(b.WARM).record, slower=known)


def test_the_sentence_contains_start_amount_and_cause_of_a_slowdown() -> None:
    words = run_answer(b.snapshot(slowed(causes=("load 8.9 on 2 CPUs",))).runs[0])
    assert words.summary == (
        "gpt2: warm but slower: 400 ms a step since step 301 (24 ms before, 17x); "
        "PyTorch compiles nothing; load 8.9 on 2 CPUs"
    )
    assert not any("slower" in one for one in words.details)
    assert "no known cause" in run_answer(b.snapshot(slowed()).runs[0]).summary


def test_the_answer_the_metrics_and_the_conditions_agree() -> None:
    snapshot = b.snapshot(slowed(causes=("load 8.9 on 2 CPUs",)))
    rank = status(snapshot)["runs"][0]["ranks"][0]
    assert rank["slower"] == {
        "ratio": 16.7,
        "seconds": 0.4,
        "before": 0.024,
        "since_step": 300,
        "causes": ["load 8.9 on 2 CPUs"],
    }
    assert rank["state"] == "warm"
    assert [one["condition"] for one in rank["conditions"]] == ["slower"]
    assert (
        'warmwatch_slower_ratio{rank="0",run="gpt2"} 16.7'
        in render(snapshot, None, version="0.1.0")[0].decode()
    )


def test_a_slowdown_is_detected_over_the_polls_of_a_daemon() -> None:
    """The code path of a daemon, with the load of the host as the cause."""
    judging, watch, ratios = Judging(), Watch(), []
    for length in (*noisy(0.05, 600), *noisy(0.2, 160)):
        watch.run([length])
        host = Host(
            memory_total_bytes=1,
            memory_available_bytes=1,
            cpus=2,
            load_1m=0.5 if watch.steps < 600 else 9.0,
        )
        if watch.steps % 5 == 0:
            now = OtherReadings(now_ns=b.NOW, host=host)
            found, refused = judging.of([b.view(watch.slot()).record], now, None)
            assert not refused
            ratios.append(found[0].ranks[0].slower)
    assert ratios[118] is None
    last = ratios[-1]
    assert last is not None
    assert last.ratio == pytest.approx(4, rel=0.1)
    assert last.causes == ("load 9.0 on 2 CPUs",)
    over = b.view(b.ended("finished", watch.slot()), alive=False).record
    run = judging.of([over], OtherReadings(now_ns=b.NOW, host=host), None)[0][0]
    (rank,) = run.ranks
    assert rank.slower is None
    assert "slower" not in rank.judgement.conditions
    (period,) = rank.slower_periods
    assert period.ratio == pytest.approx(4, rel=0.1)
    assert period.until_step == watch.steps
    assert period.causes == ("load 9.0 on 2 CPUs",)
    snapshot = replace(b.snapshot(), runs=(run,))
    assert status(snapshot)["runs"][0]["ranks"][0]["slower_periods"][0]["causes"]
    assert "warmwatch_slower_ratio{" not in render(snapshot, None, version="0.1.0")[0].decode()
