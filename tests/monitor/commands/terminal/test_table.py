"""The table of ``warmwatch status``: what is in it, in which order, and that it fits."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.documents import status
from support.records import compiling, environment, held, warm, write_record
from support.values import replace
from warmwatch.shared.states import State
from warmwatch_monitor.client.choice import only
from warmwatch_monitor.commands.terminal.reasons import reasons
from warmwatch_monitor.commands.terminal.table import functions, lines, row
from warmwatch_monitor.model import Compilation, FunctionCost, GraphBreak, RankView
from warmwatch_monitor.output.summary import STYLES, overview
from warmwatch_monitor.status.words.conditions import conditions
from warmwatch_monitor.status.words.repeating import (
    remedy_of_compilation,
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


def test_one_table_lists_live_runs_first_and_the_worst_of_them_on_top() -> None:
    states = [row[2] for row in table(shown(*every_state()))]
    assert states == list(STYLES)
    assert {state.value for state in State} == set(STYLES)


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


@pytest.mark.parametrize("width", [60, 80])
def test_a_name_that_is_too_long_for_a_column_has_its_own_line(width: int) -> None:
    views = [b.in_every_state(f"{LONG}-{i}")["warm"] for i in range(2)]
    output = shown(*views, width=width)
    assert f"{LONG}-0" in output
    header = next(line for line in output if " state " in line)
    assert cells(header)[:2] == ["rank", "state"]
    assert len(header) <= width


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


def test_a_single_run_has_no_name_column() -> None:
    assert cells(shown(b.in_every_state()["warm"])[1])[0] == "rank"


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


def test_ranks_that_are_one_step_apart_share_a_row_with_the_lower_step() -> None:
    steps = b.WARM.steps.steps
    (row,) = table(shown(*ranks(8, r3=steps + 1)))
    assert str(steps) in row


def test_a_few_ranks_each_have_a_row_with_their_pid() -> None:
    views = ranks(4)
    rows = table(shown(*views))
    expected = [(str(view.rank), str(view.reading.pid)) for view in views]
    assert [(row[0], row[-1]) for row in rows] == expected


def test_an_ended_run_has_no_count_of_clean_steps() -> None:
    head, row = shown(b.in_every_state("a")["finished"])[1:3]
    place = head.index("clean")
    assert row[place : place + len("clean")].strip() == ""


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


def test_ranks_with_different_errors_have_separate_rows() -> None:
    failed = b.in_every_state("a")["failed"]
    views = []
    for rank in range(8):
        life = replace(failed.figures.life, exception="KeyError" if rank == 3 else "ValueError")
        slot = b.as_rank(failed.record.slot, rank, 8)
        view = b.view(slot, alive=False)
        views.append(replace(view, figures=replace(view.figures, life=life)))
    assert [row[:3] for row in table(shown(*views))] == [
        ["0-2,4-7", "failed", "ValueError"],
        ["3", "failed", "KeyError"],
    ]


def test_the_table_and_the_sentence_show_the_same_step_duration() -> None:
    output = shown(b.in_every_state()["warm"])
    (length,) = re.findall(r"([\d.]+ m?s) a step", output[0])
    assert length in table(output)[0]


def test_a_recompile_is_reported_with_its_remedy() -> None:
    view = b.in_every_state()["recompiling"]
    known = replace(b.RECOMPILATION, step=11)
    output = shown(b.view(view.record.slot, compilations=(known,)))
    again = next(i for i, line in enumerate(output) if line.startswith("recompiled"))
    assert output[again].endswith(f", `forward` (model.py:31): {b.WHY}")
    assert "(shape, step 12, 1.0 s ago)" in output[again]
    assert output[again + 1].startswith("    ")
    output = shown(b.view(view.record.slot, compilations=(replace(known, evaluating=True),)))
    assert any("(shape, after step 11, 1.0 s ago)" in line for line in output)


def test_a_change_of_the_grad_mode_came_after_a_step_as_in_a_report() -> None:
    """An evaluation that nothing marks: the record does not know that it is none of a step."""
    slot = b.in_every_state()["recompiling"].record.slot
    for step, when in ((11, "grad_mode, after step 11, 1.0 s ago"), (0, "grad_mode, 1.0 s ago")):
        known = replace(b.RECOMPILATION, step=step, category="grad_mode", reason="GRAD_MODE")
        assert any(f"({when})" in line for line in shown(b.view(slot, compilations=(known,))))


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


def test_the_time_of_a_recompile_includes_only_its_own_backward() -> None:
    first = Compilation(id="0/2", kind="forward", at_ns=b.ago(9), seconds=70.0)
    backward = Compilation(id="0/2", kind="backward", at_ns=b.ago(5), seconds=10.0)
    known = (
        Compilation(id="0/2", kind="backward", at_ns=b.ago(9), seconds=6.0),
        replace(first, seconds=13.0, reason="why", category="shape"),
        Compilation(id="1/0", kind="backward", at_ns=b.ago(6), seconds=50.0),
        backward,
        Compilation(id="0/2", kind="autotune", at_ns=b.ago(4), seconds=1.0),
        replace(first, at_ns=b.ago(3)),
    )
    view = b.view(b.WARM, compilations=known)
    output = shown(view)
    assert any(line.startswith("recompiled in 24 s (shape, 9.0 s ago)") for line in output), output
    (rank,) = status(b.snapshot(view))["runs"][0]["ranks"]
    totals = [one["total_seconds"] for one in rank["compile"]["last"]]
    assert totals == [24.0, 50.0, None, None, 70.0]


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


def test_graph_breaks_are_reported_if_the_answer_has_reasons() -> None:
    answer = status(b.snapshot(b.in_every_state()["warm"]))
    rank = answer["runs"][0]["ranks"][0]
    rank["compile"]["breaks"] = [{"reason": "call to\nprint", "count": 3}]
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert output[-1] == "graph break, 3 times: call to print"
    left = {"reason": "call to print", "count": 1, "called": "loss (train.py:7)", "eager": "all"}
    rank["compile"]["breaks"] = [left]
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert output[-1] == "graph break, all of loss (train.py:7) runs eagerly: call to print"


def test_a_reason_of_many_ranks_is_reported_once_and_the_list_is_short() -> None:
    answer = status(b.snapshot(*map(again, ranks(8))))
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert sum(line.startswith("recompiled") for line in output) == 1
    for number, rank in enumerate(answer["runs"][0]["ranks"]):
        last = {**rank["compile"]["last"][0], "reason": str(number), "plain": None}
        rank["compile"]["last"] = [last]
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert sum(line.startswith("recompiled") for line in output) == 3
    advice = output.index(next(line for line in output if line.startswith("    ")))
    assert not [line for line in output[:advice][-2:] if not line.startswith("recompiled")]
    assert not [line for line in output[advice:] if line.startswith("recompiled")], "once"


def test_a_reason_of_several_ranks_has_the_times_of_the_rank_with_most() -> None:
    answer = status(b.snapshot(*map(again, ranks(3))))
    for rank, times in zip(answer["runs"][0]["ranks"], (1, 3, 2), strict=True):
        last = {**rank["compile"]["last"][0], "total_seconds": 2.0}
        rank["compile"].update(last=[last] * times, recompiles=times)
    (shown,) = [words for words, _ in reasons(answer["runs"]) if words.startswith("recompiled")]
    assert shown.startswith("recompiled 3 times in 6 s (")


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
    (run,) = answer["runs"]
    words = [words for words, _ in reasons([run, {**run, "run": "other"}], 1, remedies=1)]
    assert words[1:] == [
        "and 2 more recompiles: warmwatch report gpt2 -v",
        "and 3 more recompiles: warmwatch report other -v",
    ]


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


def test_the_recompile_in_progress_is_counted() -> None:
    answer = status(b.snapshot(again(b.in_every_state()["warm"])))
    (rank,) = answer["runs"][0]["ranks"]
    rank["compile"].update(
        recompiles=2, underway={"reason": "size", "category": "shape", "backward": False}
    )
    assert row(answer["runs"][0], [rank], NOW)["recompiles"] == "3"
    rank["compile"]["underway"]["backward"] = True
    assert row(answer["runs"][0], [rank], NOW)["recompiles"] == "2"


def test_the_dearest_recompile_is_shown_even_if_it_is_the_oldest() -> None:
    answer = status(b.snapshot(again(b.in_every_state()["warm"])))
    compile = answer["runs"][0]["ranks"][0]["compile"]
    last = compile["last"][0]
    compile["last"] = [
        {**last, "plain": plain, "advice": advice, "seconds": seconds, "total_seconds": seconds}
        for plain, advice, seconds in [
            *(("first", "dear", 30.0), ("b", "cheap", 2.0)),
            *(("c", "cheap", 2.0), ("d", "cheap", 2.0), ("newest", "cheap", 2.0)),
        ]
    ]
    compile["recompiles"] = 5
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert [line for line in output if line.startswith("    ")] == ["    dear"]
    shown = [words.rpartition(": ")[2] for words, _ in reasons(answer["runs"])]
    assert shown[:3] == ["first", "newest", "d"]


def test_a_wrapped_detail_has_a_hanging_indent() -> None:
    answer = {**status(b.snapshot(b.in_every_state()["warm"])), "details": ["word " * 30, "next"]}
    output = lines(answer, now=NOW, width=80, wrap=True, colour=False)
    details = [
        line for line in output if line.startswith("  ") and ("word" in line or "next" in line)
    ]
    assert [len(line) - len(line.lstrip()) for line in details] == [2, 4, 2]


@pytest.mark.parametrize(("recompiles", "more"), [(3, None), (4, "1 more recompile"), (10, "7 m")])
def test_recompiles_that_are_left_out_are_counted(recompiles: int, more: str | None) -> None:
    answer = status(b.snapshot(again(b.in_every_state()["warm"])))
    compile = answer["runs"][0]["ranks"][0]["compile"]
    last = {**compile["last"][0], "total_seconds": 12.0}
    other = {**last, "category": "new_instance"}  # PyTorch counts it, too
    compile["last"] = [last, last, other]  # the same reason twice is one line
    compile["recompiles"] = recompiles
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    (shown,) = [line for line in output if line.startswith("recompiled")]
    assert shown.startswith("recompiled 2 times in 24 s (")
    left = [line for line in output if line.startswith("and ")]
    assert [line.removeprefix("and ")[: len(more or "")] for line in left] == [more] * bool(more)
    assert all(line.endswith("warmwatch report gpt2 -v") for line in left)


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


def test_a_call_at_the_recompile_limit_is_not_called_a_recompile() -> None:
    answer = status(b.snapshot(again(b.in_every_state()["warm"])))
    compile = answer["runs"][0]["ranks"][0]["compile"]
    compile["last"] = [{**compile["last"][0], "at_limit": at} for at in (False, True)]
    compile["recompiles"] = 2
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    limit, recompiled = (line for line in output if b.WHY in line)
    assert limit.startswith("reached the recompile limit (shape), `forward`")
    assert recompiled.startswith("recompiled in ")


def test_graph_breaks_that_are_left_out_are_counted() -> None:
    answer = status(b.snapshot(b.in_every_state()["warm"]))
    compile = answer["runs"][0]["ranks"][0]["compile"]
    compile["breaks"] = [{"reason": f"call to {n}", "count": n} for n in range(1, 6)]
    compile["graph_breaks"] = 20
    output = lines(answer, now=NOW, width=80, wrap=False, colour=False)
    assert output[-1] == "and 14 more graph breaks: warmwatch report gpt2 -v"


def again(view: RankView) -> RankView:
    log = replace(view.figures.log, compilations=(b.RECOMPILATION,))
    return replace(view, figures=replace(view.figures, log=log))


def on_a_terminal(directory: Path, **variables: str) -> str:
    """What ``status`` writes on a terminal of 80 columns."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "warmwatch_monitor", "status", "--dir", str(directory)],
        stdout=slave,
        env=environment(TERM="xterm", COLUMNS="80", **variables),
    ) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other side has closed it
                break
            if not part:
                break
            output += part
        process.wait()
    os.close(master)
    return output.decode()


def test_a_terminal_gets_a_color_for_each_state_and_no_line_that_wraps(
    tmp_path: Path,
) -> None:
    one = write_record(tmp_path, warm("a"), name="a")
    two = write_record(tmp_path, compiling("b"), name="b")
    with held(one), held(two):
        output = on_a_terminal(tmp_path)
        plain = on_a_terminal(tmp_path, NO_COLOR="1")
    assert "\x1b[1;32mwarm\x1b[0m" in output
    assert "\x1b[1;33mcompiling\x1b[0m" in output
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b" not in plain


def header(printed: list[str]) -> str:
    return next(line for line in printed if " state " in line)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_columns_do_not_depend_on_the_state_of_a_run(width: int) -> None:
    """So no column appears, disappears or moves between two polls."""
    heads = {header(shown(view, width=width)) for view in b.in_every_state().values()}
    assert len(heads) == 1


def test_at_80_columns_one_run_has_all_columns_up_to_recompiles() -> None:
    head = header(shown(b.in_every_state()["warm"], width=80))
    assert cells(head)[-3:] == ["a step", "compiled", "recompiles"]
    assert len(head) == 80


def test_hours_and_days_are_no_wider_than_minutes() -> None:
    """Else a column would give way to them, and come back on the hour."""
    heads = set()
    for age in (119.4 * 60, 3 * 3600 + 59 * 60, 47 * 3600, 9 * 86400):
        who = replace(b.WARM, compile=replace(b.WARM.compile, last_end_ns=b.ago(1)))
        view = b.view(who)
        progress = replace(view.figures.progress, state_since=NOW - age)
        view = replace(view, figures=replace(view.figures, progress=progress))
        heads.add(header(shown(view, width=80)))
    assert len(heads) == 1


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


def test_a_compilation_that_fails_in_each_step_has_the_remedy_of_its_failure() -> None:
    failed = Compilation(id="1/0", kind="forward", at_ns=b.ago(1), name="f", failure="Unsupported")
    for times in (1, 3):
        advice = remedy_of_compilation(replace(failed, in_a_row=times)) or ""
        assert advice.startswith("Stop compiling `f`"), "it is no reset() that compiles it again"


def test_one_failure_after_recompiles_in_a_row_is_no_failure_in_every_step() -> None:
    counts = replace(b.WARM.compile, repeated=3, repeated_step=b.WARM.steps.steps)
    again = replace(b.RECOMPILATION, at_ns=b.ago(2), in_a_row=3)
    failed = replace(again, at_ns=b.ago(1), failure="RuntimeError", in_a_row=1)
    view = b.view(replace(b.WARM, compile=counts), compilations=(again, failed))
    assert repeating_head(view.figures).startswith("recompiles in every step (3rd time)")


def test_a_failed_compilation_that_the_program_caught_has_a_line() -> None:
    """The training goes on eagerly, and nothing else says so."""
    forward = Compilation(id="0/0", kind="forward", at_ns=b.ago(9), name="loss", step=0)
    failed = Compilation(id="0/0", kind="backward", at_ns=b.ago(8), step=0, failure="RuntimeError")
    views = b.in_every_state()
    warm, ended = views["warm"].record.slot, views["failed"].record.slot
    output = shown(b.view(warm, compilations=(forward, failed)))
    line = next(i for i, line in enumerate(output) if line.startswith("failed to compile"))
    assert output[line].endswith(", the backward of `loss`: RuntimeError")
    assert output[line + 1].strip().startswith("Stop compiling it, or mend what fails")
    output = shown(b.view(ended, compilations=(forward, failed)))
    assert not any(line.startswith("failed to compile") for line in output), "its end says it"
