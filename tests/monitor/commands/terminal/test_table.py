"""The table of ``warmwatch status``: what is in it, in which order, and that it fits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.states import State
from warmwatch_monitor.client.choice import only
from warmwatch_monitor.commands.terminal.reasons import reasons
from warmwatch_monitor.commands.terminal.table import brief, functions, lines, rows
from warmwatch_monitor.model.journal import Compilation, GraphBreak
from warmwatch_monitor.model.records import FunctionCost
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.summary import STYLES, overview
from warmwatch_monitor.status.words.conditions import conditions
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.repeating import (
    remedy_of_repeating,
    repeating_head,
    why_repeating,
)
from warmwatch_monitor.status.words.states import state_words

NOW = b.EPOCH
LONG = "pretraining-of-the-largest-model-so-far-2026-11-21-attempt-3"


def shown(*views: RankView, width: int = 120, **how: Any) -> list[str]:
    options = {"now": NOW, "width": width, "wrap": False, "colour": False, **how}
    return lines(status(b.snapshot(*views)), **options)


def every_state(name: str = "run") -> list[RankView]:
    return [b.in_every_state(f"{name}-{state.value}")[state.value] for state in State]


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def table(printed: list[str]) -> list[list[str]]:
    """The rows below the header, cell by cell."""
    header = next(i for i, line in enumerate(printed) if " state " in line)
    below = (cells(line) for line in printed[header + 1 :])
    return [row for row in below if set(row) & set(STYLES)]


@pytest.mark.parametrize("before", [0, 1])
def test_what_compiled_before_the_agent_attached_is_not_none(before: int) -> None:
    slot = replace(b.EAGER, compile=replace(b.EAGER.compile, graphs_before=before))
    (row,) = table(shown(b.view(slot)))
    assert ("none" in row) is not bool(before)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_exceeds_the_width_and_no_cell_is_truncated(width: int) -> None:
    widest = shown(*every_state(), width=250)
    whole = {cell for row in table(widest) for cell in row}
    output = shown(*every_state(), width=width)
    header = next(i for i, line in enumerate(output) if " state " in line)
    lines_of_table = output[header : header + 1 + len(State)]
    assert max(map(len, lines_of_table)) <= width
    rows = [cells(line) for line in lines_of_table[1:]]
    assert {cell for row in rows for cell in row} <= whole


def test_the_line_above_several_runs_counts_them_and_hides_no_unread_record() -> None:
    views = [b.in_every_state(name)["warm"] for name in ("gpt2", LONG)]
    lost = replace(b.HEALTH, up=False, error="/run/warmwatch has disappeared")
    answer = status(b.snapshot(*views, sources=(lost,)))
    assert overview(answer) == "2 runs: 2 warm; some records cannot be read"
    assert overview(only(answer, answer["runs"][:1])).count("cannot be read") == 1
    crowded = {**answer, "details": ["some records cannot be read", *answer["details"]]}
    assert overview(crowded) == "2 runs: 2 warm", "the details below have it"
    slower = replace(views[1], judgement=replace(views[1].judgement, conditions=("slower",)))
    words = overview(status(b.snapshot(views[0], slower)))
    assert words == f"2 runs: 1 warm, 1 {state_words(slower)}"


def ranks(count: int, **odd: Any) -> list[RankView]:
    slots = [b.as_rank(b.WARM, rank, count) for rank in range(count)]
    for rank, steps in odd.items():
        slot = slots[int(rank[1:])]
        slots[int(rank[1:])] = replace(slot, steps=replace(slot.steps, steps=steps))
    return [b.view(slot) for slot in slots]


def test_equal_ranks_share_a_row() -> None:
    assert [row[0] for row in table(shown(*ranks(64)))] == ["0-63"]
    assert [row[0] for row in table(shown(*ranks(64, r17=7)))] == ["0-16,18-63", "17"]
    assert len(table(shown(*ranks(64), every_rank=True))) == 64


@pytest.mark.parametrize(
    ("state", "life", "cause"),
    [
        ("failed", {"exception": "ValueError", "exit_code": 1}, "ValueError"),
        ("failed", {"exception": None, "exit_code": 3}, "exit code 3"),
        ("finished", {"end": "interrupted", "exception": "KeyboardInterrupt"}, "interrupted"),
        ("finished", {"end": "finished", "exit_code": 0}, "12 s"),  # when, and nothing between
    ],
)
def test_the_cause_of_an_end_is_in_its_row(state: str, life: dict[str, Any], cause: str) -> None:
    view = b.in_every_state("a")[state]
    figures = replace(view.figures, life=replace(view.figures.life, **life))
    assert table(shown(replace(view, figures=figures)))[0][1:3] == [state, cause]


def test_a_rank_killed_by_the_oom_killer_shows_it_in_its_row() -> None:
    view = replace(b.in_every_state("a")["lost"], oom_killed=True)
    assert table(shown(view))[0][1:3] == ["lost", "out of memory"]


def test_the_evidence_of_a_single_rank_is_shown_with_a_row_for_each() -> None:
    views = [b.view(b.as_rank(b.WARM, rank, 2)) for rank in range(2)]
    (first, *_) = evidence(views[0])
    assert first not in shown(views[0])
    assert first in shown(views[0], every_rank=True)
    assert first not in shown(*views, every_rank=True)


@pytest.mark.parametrize("between", [0, 9])
@pytest.mark.parametrize(("own", "when"), [(False, "after step 11"), (True, "step 12")])
def test_a_copy_that_is_called_without_gradients_compiled_after_a_step(
    own: bool, when: str, between: int
) -> None:
    """As in a report: the entry with a backward did not match. The copy's own backward proves a
    step. ``between``: compilations since that backward, of which `/status` has the last ones only.
    """
    slot = b.in_every_state()["recompiling"].record.slot
    why = {"category": "new_instance", "reason": "0/0: GLOBAL_STATE changed: grad_mode "}
    known = [
        Compilation(id=id, kind="backward", at_ns=b.ago(9), seconds=1.0)
        for id in ("0/0", *["0/1"] * own, *(f"{number}/0" for number in range(1, between + 1)))
    ]
    known += [replace(b.RECOMPILATION, id="0/1", step=11, **why)]
    output = shown(b.view(slot, compilations=tuple(known)))
    assert any(f"(new_instance, {when}, " in line for line in output)


def test_a_stalled_rank_that_is_exiting_is_shown_as_that() -> None:
    answer = status(b.snapshot(b.in_every_state()["stalled"]))
    (rank,) = answer["runs"][0]["ranks"]
    rank["conditions"] = [{"condition": "exiting", "words": "exiting"}]
    (cells,) = (
        line
        for line in lines(answer, now=NOW, width=120, wrap=False, colour=False)
        if " stalled " in line
    )
    assert "exiting" in cells


def test_only_the_remedy_that_would_save_most_is_shown_and_the_others_are_counted() -> None:
    answer = status(b.snapshot(again(b.in_every_state()["warm"])))
    compile = answer["runs"][0]["ranks"][0]["compile"]
    last = compile["last"][0]
    compile["last"] = [
        {**last, "plain": plain, "advice": advice, "seconds": seconds, "total_seconds": seconds}
        for plain, advice, seconds in [("a", "cheap", 3.0), ("b", "dear", 2.0), ("c", "dear", 2.0)]
    ]
    compile["recompiles"] = 3
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert [line for line in output if line.startswith("    ")] == ["    dear"]
    assert output[-1] == "and 1 more remedy: warmwatch report gpt2 -v"
    assert [advice for _, advice in reasons(answer["runs"]) if advice] == ["dear", "cheap"]
    above = [advice for _, advice in reasons(answer["runs"], above=["dear"]) if advice]
    assert above == ["cheap"]
    (run,) = answer["runs"]
    words = [words for words, _ in reasons([run, {**run, "run": "other"}], 1, remedies=1)]
    assert words[1:] == [
        "and 2 more recompiles: warmwatch report gpt2 -v",
        "and 3 more recompiles: warmwatch report other -v",
    ]


def test_a_rank_that_compiles_shows_for_how_long_as_the_sentence_does() -> None:
    """It is in its state since an earlier recompile, and has made steps since."""
    answer = status(b.snapshot(b.in_every_state()["recompiling"]))
    (run,) = answer["runs"]
    run["ranks"][0]["since"] = NOW - 92
    of_sentence = brief(run["compiling_seconds"])
    assert f"for {of_sentence}" in run["summary"]
    (row,) = rows(answer["runs"], NOW, every_rank=False)
    assert row["since"] == of_sentence
    run["compiling_since"] = None
    assert rows(answer["runs"], NOW, every_rank=False)[0]["since"] == "92 s"


def test_the_recompiles_of_a_run_that_has_long_been_warm_are_one_line() -> None:
    answer = status(b.snapshot(again(b.in_every_state()["warm"])))
    (rank,) = answer["runs"][0]["ranks"]
    rank["compile"].update(recompiles=2)
    rank["since"] = NOW - 599
    assert any(words.startswith("recompiled") for words, _ in reasons(answer["runs"], now=NOW))
    rank["since"] = NOW - 900
    assert reasons(answer["runs"], now=NOW) == [
        ("2 recompiles, none in the last 15 min: warmwatch report gpt2 -v", "")
    ]
    rank["compile"]["last"][0]["at_limit"] = True
    assert len(reasons(answer["runs"], now=NOW)) > 1


def test_a_wrapped_detail_has_a_hanging_indent() -> None:
    answer = {**status(b.snapshot(b.in_every_state()["warm"])), "details": ["word " * 30, "next"]}
    output = lines(answer, now=NOW, width=80, wrap=True, colour=False)
    details = [
        line for line in output if line.startswith("  ") and ("word" in line or "next" in line)
    ]
    assert [len(line) - len(line.lstrip()) for line in details] == [2, 4, 2]


def test_the_recompiles_of_all_runs_add_up_to_those_of_their_rows() -> None:
    """The same reason in two functions is two lines: each names its function."""
    views = [again(b.in_every_state(name)["warm"]) for name in ("a", "b")]
    answer = status(b.snapshot(*views))
    for run, (count, names) in zip(answer["runs"], ((8, "fgg"), (2, "g")), strict=True):
        compile = run["ranks"][0]["compile"]
        compile["last"] = [{**compile["last"][0], "name": name} for name in names]
        compile["recompiles"] = count
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    shown = [line for line in output if ": recompiled" in line]
    counts = [int((re.findall(r"recompiled (\d+) times", line) or [1])[0]) for line in shown]
    assert counts == [2, 1, 1]
    assert [line.partition(":")[0] for line in output[-2:]] == [
        "and 5 more recompiles",
        "and 1 more recompile",
    ]


def again(view: RankView) -> RankView:
    log = replace(view.figures.log, compilations=(b.RECOMPILATION,))
    return replace(view, figures=replace(view.figures, log=log))


def header(printed: list[str]) -> str:
    return next(line for line in printed if " state " in line)


def test_the_cost_of_functions_names_callers_graph_breaks_and_fallbacks() -> None:
    inner = FunctionCost(
        name="helper", file="generic.py", line=12, compilations=2, caller="train.py:31"
    )
    journal = {
        "functions": (inner, replace(inner, name="lone", caller=""), replace(inner, caller=None)),
        "breaks": (GraphBreak(reason="call to print", count=2, name="f", file="model.py", line=7),),
    }
    slot = replace(b.WARM, compile=replace(b.WARM.compile, fallbacks=1))
    view = b.view(slot, journal=journal)
    rows = functions(status(b.snapshot(view))["runs"], 120)
    assert rows[2].startswith("helper (generic.py:12), called from train.py:31")
    assert rows[3].startswith("lone (generic.py:12), called by library code alone")
    assert rows[4].startswith("helper (generic.py:12)  ")
    assert rows[5] == "2 graph breaks in f (model.py:7): call to print"
    assert rows[6:] == [conditions(view)["fallback"].text]
    assert len(rows) == 7


@pytest.mark.parametrize("exported", [True, False])
def test_what_pytorch_had_dropped_is_compiled_again_for_that_reason(exported: bool) -> None:
    one = Compilation(
        id="1/0",
        kind="forward",
        at_ns=b.ago(1),
        seconds=0.25,
        step=16,
        again=True,
        exported=exported,
        name="forward",
        file="model.py",
        line=31,
    )
    slot = b.in_every_state()["recompiling"].record.slot
    counts = slot.compile._replace(active_since_ns=0)
    view = b.view(replace(slot, compile=counts), compilations=(one,))
    by = "torch.export(strict=True)" if exported else "torch._dynamo.reset()"
    output = shown(view)
    where = "`forward` (model.py:31)"
    assert f"recompiled {where}" in output[0]
    assert any(f"{by} dropped what was compiled" in line for line in output[:3]), output
    (line,) = [line for line in output if line.startswith("compiled again")]
    expected = f"250 ms (step 17, 1.0 s ago), {where}: {by} dropped what was compiled"
    assert line == f"compiled again in {expected}"
    assert any("strict=False" in line for line in output) == exported
    each_step = replace(one, in_a_row=3)
    steps = replace(view.figures.steps, repeated=3)
    log = replace(view.figures.log, compilations=(each_step,))
    figures = replace(view.figures, steps=steps, log=log)
    assert why_repeating(figures).text == f"{by} dropped what was compiled"
    advice = remedy_of_repeating(figures)
    assert advice is not None
    assert ("strict=False" in advice) == exported


def test_one_failure_after_recompiles_in_a_row_is_no_failure_in_every_step() -> None:
    counts = replace(b.WARM.compile, repeated=3, repeated_step=b.WARM.steps.steps)
    again = replace(b.RECOMPILATION, at_ns=b.ago(2), in_a_row=3)
    failed = replace(again, at_ns=b.ago(1), failure="RuntimeError", in_a_row=1)
    view = b.view(replace(b.WARM, compile=counts), compilations=(again, failed))
    assert repeating_head(view.figures).startswith("recompiles in every step (3rd time)")
