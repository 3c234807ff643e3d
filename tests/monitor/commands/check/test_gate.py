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
from warmwatch_monitor.commands.check.comparison import ComparedNumber, Comparison, compared
from warmwatch_monitor.commands.check.output import (
    CheckDocument,
    changes,
    document,
    markdown,
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


def result_of(comparison: Comparison) -> CheckDocument:
    return document("base.json", comparison)


def grew(comparison: Comparison) -> list[ComparedNumber]:
    return result_of(comparison).grew


def is_incomplete(comparison: Comparison) -> bool:
    return bool(result_of(comparison).problems)


def remarks(comparison: Comparison, *expected: str) -> list[str]:
    """The remarks, each of which has to contain the expected text at its place."""
    texts = [remark.text for remark in comparison.remarks]
    assert len(texts) == len(expected), texts
    assert all(part in whole for part, whole in zip(expected, texts, strict=True)), texts
    return texts


def test_a_run_passes_against_its_own_baseline() -> None:
    comparison = against(DONE, DONE)
    result = result_of(comparison)
    assert (result.grew, result.fell, comparison.remarks) == ([], [], ())
    assert [one.measure for one in comparison.numbers] == [
        *("graphs", "graph_breaks", "recompiles", "recompiles_after_warm", "fallbacks"),
        *("failures", "kernels", "cudagraph_skips", "warmup_ratio"),
    ]
    ratio = comparison.numbers[-1]
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
    (grown,) = grew(against(DONE, counting(**counts)))
    assert (grown.measure, grown.words) == (measure, words)
    back = result_of(against(counting(**counts), DONE))
    assert (back.grew, [one.measure for one in back.fell]) == ([], [measure])


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
    (grown,) = grew(comparison)
    assert (grown.measure, grown.baseline, grown.now) == ("kernels", 9, 11)
    assert [(cause.words, cause.advice) for cause in grown.causes] == [
        ("forward (model.py): 2 compilations, 9 kernels; was 2 compilations, 7 kernels", None)
    ]


def test_the_warm_up_may_grow_by_the_tolerance_in_steady_steps() -> None:
    def with_warmup(seconds: float) -> b.Slot:
        warmup = replace(DONE.compile.first_warmup, ended_ns=DONE.compile.first_warmup.began_ns)
        warmup = replace(warmup, ended_ns=warmup.began_ns + round(seconds * b.SECOND))
        return counting(first_warmup=warmup)

    assert not grew(against(with_warmup(100), with_warmup(195)))
    (grown,) = grew(against(with_warmup(100), with_warmup(205)))
    assert grown.measure == "warmup_ratio"
    strict = held(*run_of(with_warmup(100)), tolerance=0.1)
    assert grew(compared(run_of(with_warmup(115)), strict))
    assert not grew(compared(run_of(with_warmup(115)), strict, tolerance=0.2))
    ignoring = held(*run_of(with_warmup(100)), ignore=("warmup_ratio",))
    assert not grew(compared(run_of(with_warmup(900)), ignoring))
    # measured in the same job, it is in seconds, whatever the file's ratio was
    file = held(*run_of(with_warmup(1)))
    seconds = compared(run_of(with_warmup(300)), file, beside=run_of(with_warmup(100)))
    (grown,) = grew(seconds)
    assert grown.words == "warm-up: 300 s, was 100 s (may be 200 s)"


def test_a_warm_up_in_steps_of_less_than_5_ms_is_noise_and_is_not_compared() -> None:
    def with_steps(seconds: float) -> tuple[MeasuredRun, ...]:
        return run_of(replace(DONE, clean_bins=b.bins(*[round(seconds * b.SECOND)] * 400)))

    short, usual = with_steps(0.0004), with_steps(0.02)
    for before, now in ((short, short), (usual, short)):
        comparison = compared(now, held(*before))
        remarks(comparison, "its steady step takes 0.393 ms")
        assert not is_incomplete(comparison)
        assert "warmup_ratio" not in {one.measure for one in comparison.numbers}
    assert "warmup_ratio" not in baseline.written(baseline.of(short))
    assert compared(short, held(*short, ignore=("warmup_ratio",))).remarks == ()
    beside = compared(short, held(*short), beside=short)
    assert [one.measure for one in beside.numbers][-1] == "warmup_seconds"
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
    found = {
        one.measure: [(cause.words, cause.advice) for cause in one.causes] for one in result.grew
    }
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
    remarks(more, "gpt2: rank 1 is not in the baseline, so it is not compared")
    assert not is_incomplete(more)
    fewer = compared(one, held(*two))
    remarks(fewer, "gpt2: rank 1 of the baseline did not start")
    assert is_incomplete(fewer)
    other = run_of(replace(DONE, identity=replace(DONE.identity, run="other")))
    renamed = compared(other, held(*one))  # the one and the other, whatever the name
    words = "other: compared with gpt2, as each side has one run"
    assert remarks(renamed, words) == [words]  # a file's baseline, or another command's
    assert not is_incomplete(renamed)
    assert compared((*one, *other), held(*one, *other)).remarks == ()
    gone = compared(one, held(*one, *other))
    remarks(gone, "other: this run of the baseline did not start")
    assert is_incomplete(gone)
    new = compared((*one, *other), held(*one))
    remarks(new, "other: this run is not in the baseline, so it is not compared")
    assert not is_incomplete(new)


def test_a_count_that_torch_does_not_report_is_not_0() -> None:
    missing = replace(DONE, identity=replace(DONE.identity, missing=("kernels", "compilations")))
    comparison = against(DONE, missing)
    texts = [remark.text for remark in comparison.remarks]
    assert all("this torch does not report" in words for words in texts)
    assert is_incomplete(comparison)
    assert not any("eagerly" in words for words in texts)
    texts = [remark.text for remark in against(missing, DONE).remarks]
    assert texts
    assert all("the baseline does not limit the number of" in words for words in texts)


def test_lost_journal_lines_do_not_pass_a_comparison_of_kernels() -> None:
    comparison = against(DONE, counting(journal_dropped=1))
    remarks(comparison, "lines of its journal could not be written")
    assert is_incomplete(comparison)
    assert "kernels" not in {one.measure for one in comparison.numbers}


def test_a_run_that_never_compiled_or_was_never_warm_does_not_pass() -> None:
    eager = against(DONE, b.ended("finished", b.EAGER))
    remarks(eager, "nothing was compiled, unlike in the baseline")
    warming = against(DONE, b.ended("finished", b.WARMING))
    assert any("it never became warm" in words for words in result_of(warming).problems)


def test_another_torch_version_is_reported_and_changes_no_result() -> None:
    newer = replace(DONE, identity=replace(DONE.identity, torch="2.14.0"))
    comparison = against(DONE, newer)
    remarks(comparison, "torch is 2.14.0, was ")
    assert not is_incomplete(comparison)


def test_counts_of_an_agent_with_errors_do_not_pass() -> None:
    comparison = against(DONE, counting(DONE, agent_errors=1))
    remarks(comparison, "the agent caught 1 error of its own: counts may be low")
    assert is_incomplete(comparison)


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
