"""For how long a run compiles: one figure for all its ranks, which never runs backwards."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from support import builders as b
from support.documents import status
from support.ranks import SECOND, Rank
from support.values import replace
from warmwatch.shared.phrases import duration
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.runs import Circumstances, group
from warmwatch_monitor.sources.fleet.assembly import assemble
from warmwatch_monitor.sources.fleet.samples import Sample
from warmwatch_monitor.status.words.sentence import summary

_POLL = 0.5  # seconds
_METRIC = "warmwatch_run_compiling_start_timestamp_seconds"


class World:
    """Ranks on one clock, each with the real ledger."""

    def __init__(self, count: int) -> None:
        self.ranks = [Rank() for _ in range(count)]
        for rank in self.ranks:
            rank.pytorch.has_optimizer = True

        self._readings: dict[int, RecordReading] = {}

    def happen(self, number: int, what: str, now: int) -> None:
        rank = self.ranks[number]
        rank.now = now
        happen(rank, what)
        self._readings.pop(number, None)

    def at(self, now: int) -> Snapshot:
        for number in range(len(self.ranks)):
            self._readings[number] = self._readings.get(number) or self._reading(number)
        epoch = self._readings[0].slot.header.epoch_seconds(now)
        runs = group(self._readings.values(), Circumstances(now_ns=now))
        return Snapshot(epoch=epoch, now_ns=now, runs=runs)

    def _reading(self, number: int) -> RecordReading:
        slot = self.ranks[number].slot()
        identity = slot.identity._replace(rank=number, world_size=len(self.ranks))
        slot = slot._replace(identity=identity)
        return RecordReading(folder=str(number), slot=slot, alive=True, pid=None)


Event = tuple[float, str]


def iteration(chance: random.Random, begin: float) -> tuple[list[Event], float]:
    """What one rank does until it waits for the others: compilations, with pauses between."""
    at, events = begin + chance.uniform(0.01, 0.5), list[Event]()
    if evaluates := chance.random() < 0.2:
        events.append((at, "evaluate"))
        at += 0.01
    for _ in range(chance.choice((0, 0, 1, 2, 4))):
        events.append((at, "begin"))
        at += chance.uniform(0.1, 12.0)
        events.append((at, "end"))
        at += chance.choice((0.01, 0.3, chance.uniform(1.0, 6.0)))
    if evaluates:
        events.append((at, "evaluated"))
        for _ in range(chance.choice((0, 1, 2))):
            events += [(at + 0.1, "begin"), (at := at + chance.uniform(0.2, 9.0), "end")]
            at += 0.05
    return events, at


def history(chance: random.Random, count: int) -> list[tuple[float, int, str]]:
    """Of ranks that wait for each other in every step, and mark it up to 0.3 s apart."""
    found, begins = list[tuple[float, int, str]](), [0.0] * count
    for _ in range(6):
        waits = []
        for rank in range(count):
            events, until = iteration(chance, begins[rank])
            waits.append(until)
            found += [(at, rank, what) for at, what in events]
        begins = [max(waits) + chance.uniform(0.0, 0.3) for _ in range(count)]
        found += [(at, rank, "step") for rank, at in enumerate(begins)]
    return sorted(found)


def happen(rank: Rank, what: str) -> None:
    if what == "begin":
        rank.ledger.begin("dynamo")
    elif what == "end":
        rank.ledger.post("compilation", {"kind": "forward", "id": "0/0"})
        rank.ledger.end("dynamo")
    elif what == "step":
        rank.step()
    elif what == "evaluate":
        rank.ledger.post("pause_began", {"what": "evaluating"})
    else:
        rank.ledger.post("pause_ended", {"what": "evaluating"})


def polls(chance: random.Random, count: int) -> Iterator[tuple[float, bool, Snapshot]]:
    """Time, whether a step of any rank fell between, and the snapshot."""
    world, events = World(count), history(chance, count)
    begin, at, marked = world.ranks[0].now, 0.0, False
    while events:
        at += _POLL
        while events and events[0][0] <= at:
            then, rank, what = events.pop(0)
            world.happen(rank, what, begin + round(then * SECOND))
            marked |= what == "step"
        yield at, marked, world.at(begin + round(at * SECOND))
        marked = False


def scraped(snapshot: Snapshot) -> Snapshot:
    """What a Prometheus server makes of it."""
    samples = []
    for line in render(snapshot, None)[0].decode().splitlines():
        if (found := re.fullmatch(r"warmwatch_(\w+?)(?:\{(.*)\})? (\S+)", line)) is not None:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
            labels["instance"] = "one"
            samples.append(Sample(name=found[1], labels=labels, value=float(found[3])))
    return assemble(samples, snapshot.epoch)


@pytest.mark.parametrize("seed", range(7))
def test_consecutive_answers_differ_by_the_time_between_them(seed: int) -> None:
    before: tuple[float, float] | None = None
    compiled = 0
    for at, marked, snapshot in polls(random.Random(seed), 2 + seed % 7):
        (run,) = snapshot.runs
        if marked:
            before = None  # it may begin anew
        if (stretch := run.stretch) is None:
            continue
        if before is not None:
            assert stretch.seconds - before[1] == pytest.approx(at - before[0], abs=0.001)
        before, compiled = (at, stretch.seconds), compiled + 1
        if compiled % 10 == 0:
            all_views_agree(snapshot)
    assert compiled > 20


def all_views_agree(snapshot: Snapshot) -> None:
    (run,) = status(snapshot)["runs"]
    seconds, since = run["compiling_seconds"], run["compiling_since"]
    assert run["compiling"]
    if run["state"] in ("compiling", "recompiling"):
        assert f" for {duration(seconds)}" in run["summary"]
    assert since == pytest.approx(snapshot.epoch - seconds, abs=0.001)
    assert 0 < run["compiler_seconds"] <= seconds + 0.001
    (value,) = re.findall(rf'{_METRIC}{{run="t"}} (\S+)', render(snapshot, None)[0].decode())
    assert float(value) == pytest.approx(since, abs=0.001)


@pytest.mark.parametrize("seed", range(3))
def test_a_prometheus_server_has_the_same_time(seed: int) -> None:
    for at, _, snapshot in polls(random.Random(seed), 2):
        if at % 5:
            continue
        (here,) = snapshot.runs
        (there,) = scraped(snapshot).runs
        if here.stretch is None:
            assert there.stretch is None
        elif there.stretch is not None:
            assert there.stretch.seconds == pytest.approx(here.stretch.seconds, abs=0.01)


def test_a_long_pause_without_a_step_has_the_time_of_the_compiler() -> None:
    counts = replace(
        b.COMPILING.compile,
        active_since_ns=b.ago(2),
        accounted_ns=b.ago(2),
        compiling_since_ns=b.ago(40),
        phase_ns=b.phases(inductor=30),
        compiling_before_ns=29 * SECOND,
    )
    view = b.view(replace(b.COMPILING, compile=counts))
    words = summary(b.snapshot(view))
    assert words == "gpt2: compiling for 40 s (inductor); compiled 3.0 s of that"


def test_the_time_of_an_evaluation_before_step_1_goes_on_until_the_step() -> None:
    """At its end "compiling for 8.3 s" was 587 ms at the next poll."""
    world = World(1)
    begin, shown = world.ranks[0].now, []

    def shows(at: float) -> float | None:
        (run,) = world.at(begin + round(at * SECOND)).runs
        return run.stretch.seconds if run.stretch else None

    for at, what in (
        (0, "evaluate"),
        (1, "begin"),
        (9.2, "end"),
        (9.3, "evaluated"),
        (9.4, "begin"),
    ):
        world.happen(0, what, begin + round(at * SECOND))
        shown.append(shows(at + 0.1))
    assert shown == [None, pytest.approx(0.1), None, None, pytest.approx(8.5)]
    for at, what in ((20, "end"), (21, "step"), (22, "begin")):
        world.happen(0, what, begin + round(at * SECOND))
    assert shows(22.5) == pytest.approx(0.5)
