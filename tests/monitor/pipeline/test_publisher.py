"""The publisher: an error of one record, source or step is reported, and the rest is published."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx
import pytest

from support import builders as b
from support import sources
from support.builders import EPOCH, NOW, SECOND
from support.daemon import daemon
from support.documents import status
from support.records import held, wait_until, warm, write_record
from support.values import replace
from warmwatch.shared.record import CompileCounts
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.budgets import REQUESTED_RUNS
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline import judging, slowdown
from warmwatch_monitor.pipeline.poller import (
    REFUSALS_OF_A_KIND,
    Assembly,
    Poller,
    RequestedRuns,
)
from warmwatch_monitor.server.api.app import Api

GOOD = RecordReading(folder="good", slot=b.WARM, alive=True, pid=1)
# No release writes these, and a reader that lets one through must not cost the others their answer.
POISONED = {
    "a phase that there is not": b.slot(
        compile=CompileCounts(begun=1, active_since_ns=1, active_phase=99), run="bad"
    ),
    "an end that there is not": b.slot(compile=CompileCounts(end_code=77), run="bad"),
    "GPUs that are numbers": b.slot(run="bad", gpus=(1,)),
    "the run of the good one": b.slot(run="gpt2", rank=1, gpus=(1,)),
}


class Hands:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.passed = 0.0

    def clock(self) -> Clock:
        return Clock(
            monotonic_ns=lambda: NOW + round(self.passed * SECOND),
            epoch=lambda: EPOCH + self.passed,
        )


def publisher(snapshot: Snapshot) -> SourceHealth:
    (found,) = (health for health in snapshot.sources if health.source == "publisher")
    return found


def poller(*readings: RecordReading, **rest: Any) -> Poller:
    return sources.poller(records=sources.records(*readings), host=sources.no_host, **rest)


@pytest.mark.parametrize("poison", POISONED)
def test_a_record_that_cannot_be_judged_is_one_refusal_and_the_rest_is_published(
    poison: str,
) -> None:
    bad = RecordReading(folder="bad", slot=POISONED[poison], alive=True, pid=2)
    snapshot = poller(bad, GOOD).poll_once()
    assert [(run.run, [rank.rank for rank in run.ranks]) for run in snapshot.runs] == [
        ("gpt2", [0])
    ]
    (refusal,) = snapshot.refusals
    assert refusal.path == "bad"
    assert refusal.reason.startswith("it cannot be judged: ")
    assert publisher(snapshot).up


@pytest.mark.parametrize("dtype", ["__class__", "__struct_fields__", "float64"])
def test_a_dtype_that_a_record_invents_has_no_peak_and_costs_no_answer(dtype: str) -> None:
    gpu = b.gpu(0)
    work = {"gpus": (gpu.uuid,), "dtype": dtype, "flops_per_step": 1e12}
    slot = replace(b.WARM, identity=replace(b.WARM.identity, run="bad", **work))
    bad = RecordReading(folder="bad", slot=slot, alive=True, pid=2)
    snapshot = poller(bad, GOOD, nvml=lambda _: (gpu,)).poll_once()
    assert publisher(snapshot).up
    peaks = {run["run"]: run["ranks"][0]["worth"]["peak_flops"] for run in status(snapshot)["runs"]}
    assert peaks == {"bad": None, "gpt2": None}
    assert b"warmwatch_mfu_ratio{" not in render(snapshot, None)[0]


def test_a_slower_period_that_cannot_be_described_costs_only_its_own_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow = slowdown.follow

    def broken(before: Any, slot: Any, *rest: Any) -> Any:
        speed = follow(before, slot, *rest)
        is_bad = slot.identity.run == "bad"
        return replace(speed, periods=(slowdown.Period(before=0.05),)) if is_bad else speed

    monkeypatch.setattr(slowdown, "follow", broken)
    bad = RecordReading(folder="bad", slot=b.slot(run="bad"), alive=True, pid=2)
    snapshot = poller(bad, GOOD).poll_once()
    assert [run.run for run in snapshot.runs] == ["gpt2"]
    assert [refusal.path for refusal in snapshot.refusals] == ["bad"]
    assert publisher(snapshot).up


def test_a_step_that_raises_omits_only_its_own_part_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("x" * 10_000)

    watching = poller(GOOD)
    monkeypatch.setattr(judging, "charge", broken)
    snapshot = watching.poll_once()
    assert len(snapshot.runs) == 1
    down = publisher(snapshot)
    assert not down.up
    assert down.error is not None
    assert down.error.startswith("adding up energy: ZeroDivisionError: xxx")
    assert len(down.error) < 1000
    monkeypatch.undo()
    assert publisher(watching.poll_once()).up


def test_the_publisher_continues_after_the_whole_assembly_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its thread, the last Snapshot would be the answer forever."""
    watching = poller(GOOD, values={"interval": 0.05})
    whole = Assembly.make

    def broken(*_: object) -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(Assembly, "make", broken)
    watching.start()
    try:
        wait_until(
            lambda: publisher(watching.latest()).error == "KeyError: 'nobody thought of this'"
        )
        monkeypatch.setattr(Assembly, "make", whole)
        wait_until(lambda: publisher(watching.latest()).up)
        assert watching.latest().runs
    finally:
        watching.stop()


def probe(path: str, latest: Callable[[], Snapshot]) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=Api(latest, "0.1.0"))
        async with httpx.AsyncClient(transport=transport, base_url="http://monitor") as http:
            return await http.get(path)

    return asyncio.run(ask())


@pytest.mark.parametrize(("interval", "patience"), [(0.2, 5.0), (10.0, 60.0)])
def test_an_old_snapshot_is_neither_ready_nor_healthy_and_its_age_is_reported(
    interval: float, patience: float
) -> None:
    """Its age is judged on each request, because no other task runs."""
    hands = Hands()
    watching = poller(GOOD, clock=hands.clock(), values={"interval": interval})
    published = watching.poll_once()
    hands.passed = patience - 0.1
    assert watching.latest() is published
    assert [probe(path, watching.latest).status_code for path in ("/-/ready", "/-/healthy")] == [
        200,
        200,
    ]
    hands.passed = patience + 7
    late = publisher(watching.latest())
    expected = f"nothing has been published for {patience + 7:.0f} s"
    assert (late.up, late.error, late.last_success) == (False, expected, EPOCH)
    for path in ("/-/ready", "/-/healthy"):
        answer = probe(path, watching.latest)
        assert (answer.status_code, answer.text) == (503, expected + "\n")
    text = probe("/metrics", watching.latest).text
    assert 'warmwatch_source_up{source="publisher"} 0.0' in text


def test_a_step_that_raises_makes_it_unready_and_not_unhealthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restart would not help."""
    watching = poller(GOOD)
    monkeypatch.setattr(judging, "charge", lambda *_: 1 // 0)
    watching.poll_once()
    assert probe("/-/ready", watching.latest).status_code == 503
    assert probe("/-/healthy", watching.latest).status_code == 200


def test_a_daemon_with_a_poisoned_record_and_20_000_stray_files_still_answers(
    tmp_path: Path,
) -> None:
    """Each Snapshot is a new one, the good run is in it, and the answer stays small."""
    write_record(tmp_path, POISONED["GPUs that are numbers"], name="bad")
    for number in range(20_000):
        (tmp_path / f"stray{number}").touch()
    with held(write_record(tmp_path, warm(), name="good")), daemon(tmp_path) as url:

        def answer() -> dict[str, Any]:
            with urlopen(f"{url}/status", timeout=60) as reply:
                text = reply.read()
            assert len(text) < 30_000
            return dict(json.loads(text))

        first = answer()
        assert [run["run"] for run in first["runs"]] == ["gpt2"]
        assert first["more_refusals"] == 20_000 - REFUSALS_OF_A_KIND
        assert str(tmp_path / "bad") in [refusal["path"] for refusal in first["refusals"]]

        def published() -> float:
            (found,) = (one for one in answer()["sources"] if one["source"] == "publisher")
            assert found["up"]
            return float(found["last_success"])

        since = published()
        wait_until(lambda: published() > since)
        with urlopen(f"{url}/metrics", timeout=60) as reply:
            assert "warmwatch_records_refused 20001.0" in reply.read().decode()


# Which runs count as requested, and for how long


def test_the_names_that_were_requested_last_are_kept() -> None:
    runs = RequestedRuns(Clock())
    for number in range(1000):
        runs.note(f"flood{number}")
    assert runs.names() == {f"flood{n}" for n in range(1000 - REQUESTED_RUNS, 1000)}
