"""Series of batches and of ends, and the same values read back from a Prometheus."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as plain

from support import builders as b
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.machine import Sample
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot
from warmwatch_monitor.pipeline.runs import Circumstances, group
from warmwatch_monitor.sources.fleet import assemble

FED = replace(
    b.WARM,
    steps=replace(
        b.WARM.steps, batches=3610, batch_wait_ns=round(2.5 * b.SECOND), last_batch_ns=b.ago(3)
    ),
)


def samples(snapshot: Snapshot) -> list[Sample]:
    """All of /metrics, named as the Prometheus source names them."""
    body, _ = render(snapshot, None)
    return [
        Sample(name=s.name.removeprefix("warmwatch_"), labels=dict(s.labels), value=s.value)
        for family in plain(body.decode())
        for s in family.samples
    ]


def values(view: RankView, name: str) -> list[tuple[dict[str, str], float]]:
    """The samples of a series, without the rank's labels."""
    found = [sample for sample in samples(b.snapshot(view)) if sample.name == name]
    rank = ("run", "rank")
    return [({k: v for k, v in s.labels.items() if k not in rank}, s.value) for s in found]


def back(snapshot: Snapshot) -> RunView:
    """The one run of ``snapshot`` as read from a Prometheus that scraped it."""
    (run,) = assemble(samples(snapshot), b.EPOCH).runs
    return run


def left(how: str, code: int | None = None) -> Slot:
    slot = b.ended(how)
    return replace(slot, compile=replace(slot.compile, exit_code=0 if code is None else 1 + code))


@pytest.mark.parametrize(
    ("view", "end", "code"),
    [
        (b.view(left("finished", 0), alive=False), "finished", "0"),
        (b.view(left("failed", 3), alive=False), "failed", "3"),
        (b.view(left("failed"), alive=False), "failed", ""),
        (b.view(left("interrupted"), alive=False), "interrupted", ""),
        (b.view(left("detached")), "detached", ""),
        (b.view(b.WARM, alive=False, gone=5), "lost", ""),
    ],
)
def test_an_end_has_its_exit_code_if_known(view: RankView, end: str, code: str) -> None:
    known = {"end": end, "exit_code": code, "signal": "", "exception": ""}
    assert values(view, "end_info") == [(known, 1)]


def _run(*ends: float | None) -> Snapshot:
    """A run of ranks that were lost so many seconds ago; ``None``: that one lives."""
    views = [
        b.view(b.as_rank(b.WARM, rank, len(ends)), alive=ago is None, gone=ago)
        for rank, ago in enumerate(ends)
    ]
    snapshot = b.snapshot(*views)
    return replace(
        snapshot, runs=group([view.record for view in views], Circumstances(now_ns=b.NOW))
    )


@pytest.mark.parametrize(
    ("ends", "together"),
    [
        ((20, 25), True),
        ((20, 31), False),
        ((20, None), False),
        ((None, None), None),
    ],
)
def test_whether_the_ranks_of_a_run_ended_together_is_a_series_of_the_run(
    ends: tuple[float | None, ...], together: bool | None
) -> None:
    snapshot = _run(*ends)
    found = [s for s in samples(snapshot) if s.name == "run_ended_together"]
    expected = [] if together is None else [({"run": "gpt2"}, float(together))]
    assert [(s.labels, s.value) for s in found] == expected
    assert back(snapshot).ended_together is together


def test_batches_and_the_end_are_read_back_from_a_prometheus() -> None:
    fed = back(b.snapshot(b.view(FED))).ranks[0].figures.steps
    assert (fed.batches, fed.batch_wait_seconds, fed.last_batch_at) == (3610, 2.5, b.EPOCH - 3)
    for how, code in (("failed", 3), ("interrupted", None)):
        life = back(b.snapshot(b.view(left(how, code), alive=False))).ranks[0].figures.life
        assert (life.end, life.exit_code, life.alive) == (how, code, False)
    lost = back(b.snapshot(b.view(b.WARM, alive=False, gone=5))).ranks[0].figures.life
    assert (lost.end, lost.alive) == (None, False)


ENDED = b.snapshot(b.view(left("finished", 0), alive=False))


def test_counters_of_an_ended_rank_are_read_back_from_a_prometheus() -> None:
    whole, settled = back(ENDED), back(replace(ENDED, epoch=ENDED.epoch + 180))
    before, after = whole.ranks[0].figures.compile, settled.ranks[0].figures.compile
    assert after.caches == before.caches
    assert after.seconds == before.seconds
    assert after.recompiles == before.recompiles
