"""From a Prometheus' samples to figures: what no series tells is not known."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support.values import replace
from warmwatch.shared.verdict import State
from warmwatch_monitor.fleet import assemble
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model import RankView, Sample, Snapshot
from warmwatch_monitor.status.document import status
from warmwatch_monitor.status.words.sentence import summary

STATES = b.in_every_state()


def samples(snapshot: Snapshot) -> list[Sample]:
    """As the daemon's series reach Prometheus."""
    families = text_string_to_metric_families(render(snapshot, None)[0].decode())
    return [
        Sample(
            name=sample.name.removeprefix("warmwatch_"),
            labels={**sample.labels, "instance": "node7:10464"},
            value=sample.value,
        )
        for family in families
        for sample in family.samples
    ]


def through_prometheus(view: RankView) -> RankView:
    (run,) = assemble(samples(b.snapshot(view)), b.EPOCH).runs
    return run.ranks[0]


@pytest.mark.parametrize("state", STATES)
def test_the_sentence_is_the_same_less_what_no_series_tells(state: str) -> None:
    """Reasons are in no label: they are not bounded."""
    snapshot = b.snapshot(STATES[state])
    what, reason = " `forward` (model.py:31)", ": batch size (dim 0 of `i`) went from 16 to 14"
    told = summary(assemble(samples(snapshot), b.EPOCH))
    whole = summary(snapshot).replace(reason, "").replace(what, "")
    assert told == whole


@pytest.mark.parametrize("state", STATES)
def test_figures_are_those_of_the_record_or_not_known(state: str) -> None:
    known, told = STATES[state].figures, through_prometheus(STATES[state]).figures
    assert told.steps.clean.median == known.steps.clean.median
    assert told.progress.stall_limit_seconds == known.progress.stall_limit_seconds
    assert told.compile.seconds == pytest.approx(known.compile.seconds)
    assert told.compile.recompiles == known.compile.recompiles
    assert told.warmups.latest == known.warmups.latest
    assert told.steps.clean.count == known.steps.clean.count
    assert told.steps.clean.upto is told.steps.clean.p99 is None
    assert told.steps.first_seconds is told.steps.last_seconds is told.steps.first_at is None
    assert told.steps.touched_lately is told.steps.touched.count is None
    assert told.warmups.count is told.warmups.first is told.agent.errors is None
    assert told.life.alive == (state not in {"finished", "failed", "lost"})
    assert (told.life.end, told.steps.batches) == (known.life.end, known.steps.batches)
    assert told.who.attempt is told.life.pid is None


def test_what_no_series_tells_is_null_in_the_answer() -> None:
    (run,) = status(assemble(samples(b.snapshot(STATES["warm"])), b.EPOCH))["runs"]
    (rank,) = run["ranks"]
    assert run["compile_joules"] is rank["energy"] is rank["process"] is rank["attempt"] is None
    assert rank["cost"]["beyond_steady_seconds"] is rank["cost"]["steps_touched"] is None


def test_a_count_that_its_torch_does_not_keep_is_not_known_here_either() -> None:
    identity = replace(b.WARM.identity, missing=("compilations", "recompile_limit"))
    figures = through_prometheus(b.view(replace(b.WARM, identity=identity))).figures
    assert figures.compile.graphs is figures.compile.recompiles is figures.compile.fallbacks is None
    assert figures.agent.missing == ("compilations", "recompile_limit")


def test_a_rank_of_which_no_state_is_told_is_left_out() -> None:
    kept = [s for s in samples(b.snapshot(STATES["warm"])) if s.name != "state"]
    assert assemble(kept, b.EPOCH).runs == ()


def test_a_state_is_taken_over_and_never_judged_anew() -> None:
    """Its last step is long past what this clock would call a stall."""
    (run,) = assemble(samples(b.snapshot(STATES["warm"])), b.EPOCH + 1000).runs
    assert run.state is State.WARM


def called(label: str) -> tuple[str, str | None, str | None]:
    slot = replace(b.WARM, identity=replace(b.WARM.identity, run=label))
    (run,) = status(assemble(samples(b.snapshot(b.view(slot))), b.EPOCH))["runs"]
    return run["run"], run["name"], run["owner"]


@pytest.mark.parametrize(
    ("label", "name", "owner"),
    [
        ("gpt2", "gpt2", None),
        ("gpt2@alice", "gpt2", "alice"),
        ("gpt2@10001", "gpt2", "10001"),
        ("gpt2@alice@bob", "gpt2@alice", "bob"),
        ("@alice", "@alice", None),
    ],
)
def test_the_label_of_a_run_has_its_own_name_and_its_owner(
    label: str, name: str, owner: str | None
) -> None:
    """Whatever a user calls his run, what is behind the last @ is whose it is."""
    assert called(label) == (label, name, owner)
