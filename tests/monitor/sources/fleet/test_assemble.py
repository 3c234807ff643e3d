"""Figures from the samples of a Prometheus: a value without a series is unknown."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.states import CONDITIONS
from warmwatch_monitor.figures.compile import Compile
from warmwatch_monitor.figures.declared import figures as declared
from warmwatch_monitor.figures.rank import Slower
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.machine import Sample
from warmwatch_monitor.model.snapshot import RankView, Snapshot
from warmwatch_monitor.sources.fleet import assemble
from warmwatch_monitor.sources.fleet.samples import CLOCK_BEHIND, queries
from warmwatch_monitor.status.words.conditions import conditions
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
def test_the_sentence_is_the_same_except_for_values_without_a_series(state: str) -> None:
    """Reasons are in no label: they are not bounded. The last step's length has no series, nor has
    the compilation that an end cut off."""
    snapshot = b.snapshot(STATES[state])
    reported = summary(assemble(samples(snapshot), b.EPOCH))
    whole = summary(snapshot)
    for unknown in (" `forward` (model.py:31)", f": {b.WHY}", ", in a compilation"):
        whole = whole.replace(unknown, "")
    assert reported == whole.replace("last step 40 ms", "40 ms a step")


def test_each_condition_has_words_without_the_numbers_that_have_no_series() -> None:
    view = b.view(b.WARM)
    for name in CONDITIONS:
        judgement = view.judgement._replace(conditions=(name,))
        (clause,) = conditions(through_prometheus(replace(view, judgement=judgement))).values()
        assert clause.text, name


def quiet(seconds: float) -> RankView:
    return b.view(replace(b.WARM, steps=replace(b.WARM.steps, last_step_ns=b.ago(seconds))))


def slower() -> RankView:
    known = Slower(seconds=0.4, ratio=400 / 24, before=0.024, since_step=300, causes=("load 9",))
    return b.view_of(b.view(b.WARM).record, slower=known)


@pytest.mark.parametrize(
    "view",
    [
        *(pytest.param(view, id=state) for state, view in STATES.items()),
        pytest.param(quiet(38), id="silent"),
        pytest.param(slower(), id="slower"),
        pytest.param(
            b.view(
                replace(
                    b.WARM,
                    compile=replace(b.WARM.compile, memory=(1, 2, 3, 4), memory_ns=b.ago(9)),
                    identity=replace(b.WARM.identity, collective_timeout=600.0),
                )
            ),
            id="memory",
        ),
        pytest.param(
            b.view(
                replace(
                    b.WARM,
                    compile=replace(
                        b.WARM.compile,
                        saving_ns=5 * b.SECOND,
                        saving_since_ns=b.ago(4),
                        evaluating_ns=5 * b.SECOND,
                        evaluating_since_ns=b.ago(4),
                        evaluations=2,
                    ),
                )
            ),
            id="pausing",
        ),
    ],
)
def test_every_series_that_is_read_is_queried(view: RankView) -> None:
    """An unrequested value would be missing only with a real server."""
    reported = samples(b.snapshot(view))
    requested = [
        re.compile("|".join(re.findall(r'__name__=~"([^"]+)"', query))) for query in queries(None)
    ]
    fetched = [
        one
        for one in reported
        if any(names.fullmatch(f"warmwatch_{one.name}") for names in requested)
        or one.name == "rank_gpu_info"
    ]
    assert len(fetched) < len(reported), "histograms are not fetched"
    assert assemble(fetched, b.EPOCH) == assemble(reported, b.EPOCH)


def test_a_rank_that_waits_for_one_that_compiles_on_another_host_is_not_silent() -> None:
    waits = b.view(b.as_rank(quiet(38).record.slot, 0, 2))
    compiles = b.view(b.as_rank(b.RECOMPILING, 1, 2))
    assert "silent" in waits.judgement.conditions
    (run,) = assemble(samples(b.snapshot(waits, compiles)), b.EPOCH).runs
    assert [view.judgement.conditions for view in run.ranks] == [(), ()]


@pytest.mark.parametrize("state", STATES)
def test_figures_equal_those_of_the_record_or_are_unknown(state: str) -> None:
    known, reported = STATES[state].figures, through_prometheus(STATES[state]).figures
    assert reported.steps.clean.typical == known.steps.clean.typical
    assert reported.steps.clean.median is None
    assert reported.progress.stall_limit_seconds == known.progress.stall_limit_seconds
    assert reported.compile.seconds == pytest.approx(known.compile.seconds)
    for name, figure in declared(Compile).items():
        if figure.metric or figure.label:
            assert getattr(reported.compile, name) == getattr(known.compile, name), name
    assert reported.warmups.latest == known.warmups.latest
    assert reported.steps.clean.count == known.steps.clean.count
    assert reported.steps.last_second == known.steps.recent
    assert reported.steps.clean.upto is reported.steps.clean.p99 is None
    assert reported.steps.first is reported.steps.last is reported.steps.first_at is None
    assert reported.steps.touched_lately is reported.steps.touched.count is None
    assert reported.warmups.count is reported.warmups.first is reported.agent.errors is None
    assert reported.life.alive == (state not in {"finished", "failed", "lost"})
    assert (reported.life.end, reported.steps.batches) == (known.life.end, known.steps.batches)
    assert reported.who.attempt is reported.life.pid is None


def test_values_without_a_series_are_null_in_the_answer() -> None:
    (run,) = status(assemble(samples(b.snapshot(STATES["warm"])), b.EPOCH))["runs"]
    (rank,) = run["ranks"]
    assert run["compile_joules"] is rank["energy"] is rank["process"] is rank["attempt"] is None
    assert rank["cost"]["beyond_steady_seconds"] is rank["cost"]["steps_touched"] is None


def test_a_count_that_torch_lacks_is_unknown_in_a_fleet_too() -> None:
    identity = replace(b.WARM.identity, missing=("compilations", "recompile_limit"))
    figures = through_prometheus(b.view(replace(b.WARM, identity=identity))).figures
    assert figures.compile.graphs is figures.compile.recompiles is figures.compile.fallbacks is None
    assert figures.agent.missing == ("compilations", "recompile_limit")


def test_a_rank_without_a_state_is_left_out() -> None:
    retained = [s for s in samples(b.snapshot(STATES["warm"])) if s.name != "state"]
    assert assemble(retained, b.EPOCH).runs == ()


def test_a_host_whose_clock_is_wrong_changes_nothing() -> None:
    reported = samples(b.snapshot(STATES["compiling"]))
    behind = [
        replace(one, value=one.value - 480) if one.name.endswith("_timestamp_seconds") else one
        for one in reported
    ]
    clock = Sample(name=CLOCK_BEHIND, labels={"instance": "node7:10464"}, value=480)
    assert behind != reported
    assert assemble([*behind, clock], b.EPOCH) == assemble(reported, b.EPOCH)
