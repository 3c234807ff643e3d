"""Compilations compared with a baseline; the baseline's file; how the result is shown."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import builders as b
from support.values import replace
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.breaks import plain_break
from warmwatch.shared.fallbacks import LIMIT, REMEDIES
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.commands.check import baseline
from warmwatch_monitor.commands.check.baseline import (
    Baseline,
    MeasuredRun,
    measured,
    named,
    numbers,
)
from warmwatch_monitor.commands.check.comparison import Comparison, Kind, compared
from warmwatch_monitor.commands.check.output import (
    CheckDocument,
    causes_of,
    changes,
    document,
    headline,
    markdown,
    remark,
    text,
)
from warmwatch_monitor.model.journal import (
    NOTHING,
    Compilation,
    CudagraphSkip,
    Fallback,
    GraphBreak,
    ParsedJournal,
)
from warmwatch_monitor.model.records import FunctionCost
from warmwatch_monitor.output.json_text import as_json

DONE = b.ended("finished")
FIRST = Compilation(id="0/0", kind="forward", at_ns=1, name="forward", file="model.py", line=31)
AGAIN = replace(b.RECOMPILATION, name="forward", file="model.py", line=31)


def run_of(
    *slots: b.Slot, recorded: ParsedJournal = NOTHING, **journal: object
) -> tuple[MeasuredRun, ...]:
    """What ranks with these slots compiled; all of one journal."""
    views = [b.view(slot, alive=False, gone=10, journal=dict(journal)) for slot in slots]
    return measured(b.runs(*views), {view.record.folder: recorded for view in views})


def counting(base: b.Slot = DONE, **counts: object) -> b.Slot:
    return replace(base, compile=replace(base.compile, **counts))


def held(*runs: MeasuredRun, **settings: object) -> Baseline:
    """The baseline that those runs make, through its file."""
    made = baseline.parsed(baseline.written(baseline.of(runs, Baseline(**settings))))  # type: ignore[arg-type]
    assert baseline.written(made) == baseline.written(baseline.of(runs, Baseline(**settings)))  # type: ignore[arg-type]
    return made


def against(before: b.Slot, now: b.Slot, **more: object) -> Comparison:
    return compared(run_of(now, **more), held(*run_of(before)))  # type: ignore[arg-type]


def kinds(comparison: Comparison) -> list[Kind]:
    return [one.kind for one in comparison.remarks]


def test_a_run_passes_against_its_own_baseline() -> None:
    comparison = against(DONE, DONE)
    assert (comparison.grew, comparison.fell, comparison.remarks) == ((), (), ())
    assert [one.measure for one in comparison.held] == [
        *("graphs", "graph_breaks", "recompiles", "recompiles_after_warm", "fallbacks"),
        *("failures", "kernels", "cudagraph_skips", "warmup_ratio"),
    ]
    ratio = comparison.held[-1]
    assert ratio.now == pytest.approx(120 / 0.036, rel=0.05)  # to a bin, and three digits


@pytest.mark.parametrize(
    ("measure", "counts", "words"),
    [
        ("graphs", {"graphs": 2}, "graphs: 2, was 1"),
        ("graph_breaks", {"graph_breaks": 3}, "graph breaks: 3, was 0"),
        (
            "recompiles",
            {"recompiles_by_category": b.categories(shape=1, dtype=1)},
            "recompiles: 2, was 0",
        ),
        ("recompiles_after_warm", {"recompiles_after_warm": 1}, "recompiles after warm: 1, was 0"),
        ("fallbacks", {"fallbacks": 1}, "functions left to run eagerly: 1, was 0"),
        ("failures", {"failures": 1}, "failed compilations: 1, was 0"),
        ("cudagraph_skips", {"cudagraph_skips": 4}, "CUDA graphs left out: 4, was 0"),
    ],
)
def test_a_count_that_grew_fails_and_one_that_fell_does_not(
    measure: str, counts: dict[str, object], words: str
) -> None:
    (grown,) = against(DONE, counting(**counts)).grew
    assert (grown.measure, headline(grown)) == (measure, words)
    back = against(counting(**counts), DONE)
    assert (back.grew, [one.measure for one in back.fell]) == ((), [measure])


def test_the_causes_of_more_kernels_name_the_functions() -> None:
    def functions(**kernels: int) -> tuple[FunctionCost, ...]:
        return tuple(
            FunctionCost(name=name, file="model.py", line=number, compilations=2)
            for number, name in enumerate(kernels)
        )

    def with_kernels(**kernels: int) -> tuple[MeasuredRun, ...]:
        costs = tuple(
            replace(one, cost=replace(one.cost, kernels=kernels[str(one.name)]))
            for one in functions(**kernels)
        )
        return run_of(DONE, functions=costs)

    # after a graph break, whose line has moved
    rest = "torch_dynamo_resume_in_loss_at_{}".format
    now = with_kernels(forward=9, **{rest(17): 2})
    comparison = compared(now, held(*with_kernels(forward=7, **{rest(16): 2})))
    (grown,) = comparison.grew
    assert (grown.measure, grown.was, grown.now) == ("kernels", 9, 11)
    assert causes_of(grown) == [
        ("forward (model.py): 2 compilations, 9 kernels; was 2 compilations, 7 kernels", None)
    ]


def test_the_warm_up_may_grow_by_the_tolerance_in_steady_steps() -> None:
    def with_warmup(seconds: float) -> b.Slot:
        warmup = replace(DONE.compile.first_warmup, ended_ns=DONE.compile.first_warmup.began_ns)
        warmup = replace(warmup, ended_ns=warmup.began_ns + round(seconds * b.SECOND))
        return counting(first_warmup=warmup)

    assert not against(with_warmup(100), with_warmup(195)).grew
    (grown,) = against(with_warmup(100), with_warmup(205)).grew
    assert grown.measure == "warmup_ratio"
    strict = held(*run_of(with_warmup(100)), tolerance=0.1)
    assert compared(run_of(with_warmup(115)), strict).grew
    assert not compared(run_of(with_warmup(115)), strict, tolerance=0.2).grew
    ignoring = held(*run_of(with_warmup(100)), ignore=("warmup_ratio",))
    assert not compared(run_of(with_warmup(900)), ignoring).grew
    # measured in the same job, it is in seconds, whatever the file's ratio was
    file = held(*run_of(with_warmup(1)))
    (grown,) = compared(run_of(with_warmup(300)), file, beside=run_of(with_warmup(100))).grew
    assert headline(grown) == "warm-up: 300 s, was 100 s (may be 200 s)"


def test_a_warm_up_in_steps_of_less_than_5_ms_is_noise_and_is_not_compared() -> None:
    def with_steps(seconds: float) -> tuple[MeasuredRun, ...]:
        return run_of(replace(DONE, clean_bins=b.bins(*[round(seconds * b.SECOND)] * 400)))

    short, usual = with_steps(0.0004), with_steps(0.02)
    for before, now in ((short, short), (usual, short)):
        comparison = compared(now, held(*before))
        assert kinds(comparison) == [Kind.SHORT_STEPS]
        assert "its steady step takes 0.393 ms" in remark(comparison.remarks[0])
        assert not comparison.incomplete
        assert "warmup_ratio" not in {one.measure for one in comparison.held}
    assert "warmup_ratio" not in baseline.written(baseline.of(short))
    assert compared(short, held(*short, ignore=("warmup_ratio",))).remarks == ()
    beside = compared(short, held(*short), beside=short)
    assert [one.measure for one in beside.held][-1] == "warmup_seconds"
    assert beside.remarks == ()
    file = baseline.written(baseline.of(short))
    found = changes("base.json", compared(short, baseline.parsed(file)), first=True)
    assert "note: gpt2: its steady step takes 0.393 ms" in found


def test_each_cause_is_reported_once_with_its_remedy() -> None:
    mutated = "skipping cudagraphs due to mutated inputs"
    skip = replace(FIRST, cudagraph_skip=mutated)
    ran = CudagraphSkip(at_ns=5, reason=mutated, name="step", file="train.py", line=8)
    failed, early = replace(FIRST, failure="InductorError"), replace(AGAIN, after_warm=False)
    refused = replace(early, at_limit=True)  # no recompile: it counts as a fallback
    recorded = ParsedJournal(
        compilations=(FIRST, early, AGAIN, refused, failed, skip),
        breaks=(GraphBreak(reason="generic_jump TensorVariable()", count=2),),
        fallbacks=(Fallback(at_ns=1, step=4, name="forward", limit=8, setting="recompile_limit"),),
        skips=(ran,),
    )
    now = counting(
        recompiles_by_category=b.categories(shape=2),
        recompiles_after_warm=1,
        graph_breaks=2,
        fallbacks=1,
        failures=1,
        cudagraph_skips=2,
    )
    comparison = against(DONE, now, recorded=recorded)
    result = document("base.json", comparison)
    assert [shown(result).count("Pad the size") for shown in (text, markdown)] == [1, 1]
    found = {one.measure: causes_of(one) for one in comparison.grew}
    why = f"`forward` (model.py:31): {b.WHY}"
    ((again, pad),) = found["recompiles"]
    assert again == f"{why} (2 times)"
    assert pad is not None
    assert pad.startswith(ADVICE["shape"])
    assert found["recompiles_after_warm"] == [(why, pad)]
    assert found["graph_breaks"][0][0] == f"{plain_break('generic_jump')} (2 times)"
    limited = "new inputs of `forward` run eagerly: the recompile limit of 8 was reached"
    assert found["fallbacks"] == [(f"{limited} (recompile_limit)", REMEDIES[LIMIT])]
    assert found["failures"][0][0] == "`forward` (model.py:31): InductorError"
    skipped = "`forward` (model.py:31): a compiled function changes its inputs in place"
    assert [words for words, _ in found["cudagraph_skips"]] == [
        skipped,
        skipped.replace("`forward` (model.py:31)", "`step` (train.py:8)"),
    ]


def ranks(*slots: b.Slot) -> tuple[b.Slot, ...]:
    return tuple(b.as_rank(slot, rank, len(slots)) for rank, slot in enumerate(slots))


def test_ranks_and_runs_of_one_side_alone_are_reported() -> None:
    one, two = run_of(DONE), run_of(*ranks(DONE, DONE))
    more = compared(two, held(*one))
    assert kinds(more) == [Kind.UNKNOWN_RANKS]
    assert not more.incomplete
    fewer = compared(one, held(*two))
    assert kinds(fewer) == [Kind.NO_RANKS]
    assert fewer.incomplete
    other = run_of(replace(DONE, identity=replace(DONE.identity, run="other")))
    renamed = compared(other, held(*one))  # the one and the other, whatever the name
    assert (kinds(renamed), renamed.incomplete) == ([Kind.ANOTHER_NAME], False)
    words = "other: compared with gpt2, as each side has one run"
    assert remark(renamed.remarks[0]) == words  # a file's baseline, or another command's
    assert kinds(compared((*one, *other), held(*one, *other))) == []
    assert kinds(compared(one, held(*one, *other))) == [Kind.NO_RUN]


def test_a_count_that_torch_does_not_report_is_not_0() -> None:
    missing = replace(DONE, identity=replace(DONE.identity, missing=("kernels", "compilations")))
    comparison = against(DONE, missing)
    assert set(kinds(comparison)) == {Kind.NO_COUNT}
    assert comparison.incomplete
    assert "fallbacks" not in {one.what for one in comparison.remarks}
    assert set(kinds(against(missing, DONE))) == {Kind.UNKNOWN_COUNT}


def test_lost_journal_lines_do_not_pass_a_comparison_of_kernels() -> None:
    comparison = against(DONE, counting(journal_dropped=1))
    assert kinds(comparison) == [Kind.LOST_LINES]
    assert comparison.incomplete
    assert "could not be written" in remark(comparison.remarks[0])
    assert "kernels" not in {one.measure for one in comparison.held}


def test_a_run_that_never_compiled_or_was_never_warm_does_not_pass() -> None:
    assert kinds(against(DONE, b.ended("finished", b.EAGER))) == [Kind.NOT_COMPILED]
    assert Kind.NEVER_WARM in kinds(against(DONE, b.ended("finished", b.WARMING)))


def test_another_torch_version_is_reported_and_changes_no_result() -> None:
    newer = replace(DONE, identity=replace(DONE.identity, torch="2.14.0"))
    comparison = against(DONE, newer)
    assert kinds(comparison) == [Kind.ANOTHER_TORCH]
    assert not comparison.incomplete
    assert all(map(remark, comparison.remarks))


def test_counts_of_an_agent_with_errors_do_not_pass() -> None:
    comparison = against(DONE, counting(DONE, agent_errors=1))
    assert kinds(comparison) == [Kind.AGENT_ERRORS]
    assert comparison.incomplete
    assert "counts may be low" in remark(comparison.remarks[0])


def of_rank(**held: object) -> str:
    return json.dumps({"schema": 1, "runs": {"a": {"ranks": {"0": held}}}})


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ('{"schema":', "it is no baseline: Input data was truncated"),
        ('{"schema": 2}', "this release reads 1"),
        ("{}", "its schema is None"),
        ('{"schema": 1, "rnus": {}}', "unknown field `rnus`"),
        ('{"schema": 1, "ignore": ["kernel"]}', "ignore takes a list of graphs"),
        ('{"schema": 1, "tolerance": -1}', "Expected `float` >= 0.0 - at `$.tolerance`"),
        ('{"schema": 1, "runs": 3}', "Expected `object`, got `int` - at `$.runs`"),
        ('{"schema": 1, "runs": {"a": {"ranks": {"x": {}}}}}', "write 0, 0-3 or 0-3,6"),
        ('{"schema": 1, "runs": {"a": {"ranks": {"0-999999999": {}}}}}', "write 0, 0-3 or 0-3,6"),
        (
            json.dumps(
                {"schema": 1, "runs": {name: {"ranks": {"0-60000": {}}} for name in ("a", "b")}}
            ),
            "it has more than 100,000 ranks",
        ),
        (of_rank(counts={"graphs": 1.5}), "Expected `int`, got `float`"),
        (of_rank(counts={"graphs": -1}), "Expected `int` >= 0"),
        (of_rank(functions={"f": {"compilations": -1}}), "Expected `int` >= 0"),
        (of_rank(functions={"f": 3}), "Expected `object`, got `int`"),
    ],
)
def test_an_invalid_baseline_file_is_refused_with_the_place(file: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        baseline.parsed(file)


@given(st.sets(st.integers(0, 2_000), min_size=1))
def test_written_ranks_are_read_back_unchanged(of: set[int]) -> None:
    assert numbers(named(of)) == sorted(of)


@given(st.text(min_size=1, max_size=20))
def test_any_run_name_is_read_back_unchanged(name: str) -> None:
    found = run_of(DONE)
    assert list(held(replace(found[0], run=name)).runs) == [name]


def result() -> CheckDocument:
    recorded = ParsedJournal(compilations=(replace(AGAIN, name="<|>_forward_"),))
    now = counting(recompiles_by_category=b.categories(shape=1))
    return document("ci/base.json", against(DONE, now, recorded=recorded))


def test_the_outcome_is_text_markdown_and_json() -> None:
    failed = result()
    shown = text(failed, "again")
    assert "failed: 1 number grew beyond ci/base.json" in shown
    assert "  gpt2, rank 0: recompiles: 1, was 0\n    `<|>_forward_` (model.py:31): " in shown
    assert "To make this the baseline: again" in shown
    table = [line for line in markdown(failed).splitlines() if line.startswith("|")]
    assert all(line.replace(r"\|", "").count("|") == 5 for line in table)
    assert "❌ recompiles | gpt2, rank 0 | 0 | 1 |" in markdown(failed)
    printed = json.loads(as_json(failed))
    assert printed["passed"] is False
    assert [one["measure"] for one in printed["compared"] if one["grew"]] == ["recompiles"]


def test_an_impossible_comparison_is_a_failure_in_every_format() -> None:
    failed = document("ci/base.json", Comparison(), "no run was seen")
    assert "failed: it cannot be compared" in text(failed)
    assert "no run was seen" in markdown(failed)
    assert failed.passed is False


def test_an_update_notes_that_the_speed_had_not_settled() -> None:
    """A later check may fail by such a warm-up in steps; that check notes it too."""

    def of(seconds: float, settled: bool) -> tuple[MeasuredRun, ...]:
        (one,) = run_of(DONE)
        return (replace(one, warmup_ratio=seconds, unsettled=None if settled else 12),)

    note = "note: gpt2: its speed had not settled after 12 clean steps"
    found = compared(of(100, settled=False), held(*of(100, settled=True)))
    assert note in changes("base.json", found, first=True)
    assert note not in text(document("base.json", found)), "it passes"
    grown = compared(of(900, settled=False), held(*of(100, settled=True)))
    assert note in text(document("base.json", grown))
    assert compared(of(100, settled=True), held(*of(100, settled=True))).remarks == ()
