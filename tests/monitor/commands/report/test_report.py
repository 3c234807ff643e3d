"""A report: every second in one place, the unknown absent, each kind of run in good words."""

from __future__ import annotations

import io
import json
import re
import shlex
import signal
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders as b
from support import reported as a
from support.builders import EPOCH
from support.values import replace
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.fallbacks import REFUSALS
from warmwatch.shared.record import Slot
from warmwatch_monitor.commands.report import goodput
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.brief import SIGNS, brief
from warmwatch_monitor.commands.report.command import picture
from warmwatch_monitor.commands.report.goodput import LATER
from warmwatch_monitor.commands.report.html import html, samples
from warmwatch_monitor.commands.report.parts import Break, Remedy, Report
from warmwatch_monitor.commands.report.wording import costs, facts, page, short
from warmwatch_monitor.commands.report.wording_compilations import breaks as section_of_breaks
from warmwatch_monitor.commands.report.wording_compilations import failure
from warmwatch_monitor.commands.report.wording_compilations import (
    recompiles as section_of_recompiles,
)
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.model.journal import GraphBreak, TracedPlace, Wrapping
from warmwatch_monitor.model.records import Death
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.output.console import draw
from warmwatch_monitor.output.console import plain as cleaned
from warmwatch_monitor.output.document import lines, markdown, printed
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.status.words.conditions import conditions
from warmwatch_monitor.status.words.requested import remedy_of_calls

SECONDS = st.floats(0, 400)
LONG_STEP = {
    **{f"{part}_seconds": 0.0 for part in ("usual", "checkpoint", "evaluation", "between_cells")},
    "data_seconds": None,
    "evaluation": False,
}
HOSTILE = "<img src=x onerror=alert(1)> | `x` [a](http://b) \x1b[31m\u202e"


def text(account: RunSummary) -> str:
    made = cleaned(report(account))
    return picture(page(made), made)


def shares(made: Report) -> dict[str, float]:
    assert made.goodput is not None
    return {one.name: one.seconds for one in made.goodput.shares}


def test_the_time_before_a_first_compilation_that_the_end_cut_off_is_a_share() -> None:
    """Killed in its first compilation: PyTorch has no record of it, and nobody saw its death."""
    plain = a.finished(compiled=())
    (rank,) = plain.ranks
    answers = {
        "state": "lost",
        "attached_at": rank.answer["since"] - 30.0,
        "since": None,
        "end": {"how": "lost", "compiling_since": rank.answer["since"] - 20.0},
        "warmup.first": None,
        "step_seconds.first_at": None,
        "step_seconds.clean_seconds": 0.0,
        "compile.seconds": 20.0,
    }
    made = replace(a.finished(compiled=(), answers=answers), seen=rank.answer["since"])
    found = shares(report(made))
    assert found["before the first step"] == pytest.approx(10.0)
    assert found["unaccounted"] == pytest.approx(0.0, abs=1e-6)


def test_compile_time_within_an_evaluation_is_counted_once() -> None:
    twice = tuple(replace(one, evaluating=one.category is not None) for one in a.TWICE)
    answers = {"pauses.evaluation_seconds": 20.0}
    found = shares(report(a.finished(compiled=twice, answers=answers)))
    assert (found[LATER], found["evaluation"]) == (14.0, pytest.approx(6.0))
    words = " ".join(text(a.finished(compiled=twice, answers=answers)).split())
    assert "Evaluations: 20 s; 14 s of it counts as compiling." in words  # as other views have it
    found = shares(report(a.finished(compiled=a.TWICE, answers=answers)))
    assert (found[LATER], found["evaluation"]) == (14.0, pytest.approx(20.0))


def test_an_evaluation_within_the_warm_up_is_counted_once() -> None:
    answers = {"pauses.evaluation_seconds": 20.0, "step_seconds.clean_seconds": 60.0}
    before, whole = shares(report(a.finished(answers=answers))), a.finished(answers=answers)
    answers |= {"pauses.warmup_seconds": 4.0, "pauses.before_seconds": 1.0}
    within = a.finished(answers=answers)
    found = shares(report(within))
    assert found["evaluation"] == before["evaluation"] == 20.0
    assert found["warm-up"] == pytest.approx(before["warm-up"] - 4.0)
    assert found["before the first step"] == pytest.approx(before["before the first step"] - 1.0)
    assert found["unaccounted"] == pytest.approx(before["unaccounted"] + 5.0)
    words = "Warm-up: 120 s by the clock; 4 s of it counts as evaluation or saving."
    assert words in " ".join(text(within).split())
    short = a.finished(answers={**answers, "pauses.warmup_seconds": 0.4})
    for unseen in (whole, short):  # 120 s less 0.4 s is 120 s
        assert "by the clock" not in text(unseen)


@given(save=SECONDS, evaluate=SECONDS, data=SECONDS, compile=SECONDS, clean=SECONDS, long=SECONDS)
@settings(max_examples=200, deadline=None)
def test_shares_add_up_and_none_is_negative_for_any_record(
    save: float, evaluate: float, data: float, compile: float, clean: float, long: float
) -> None:
    answers = {
        "pauses.checkpoint_seconds": save,
        "pauses.evaluation_seconds": evaluate,
        "pauses.data_seconds": data,
        "compile.seconds": compile,
        "step_seconds.clean_seconds": clean,
        "long_steps": [{**LONG_STEP, "seconds": long, "usual_seconds": 0.036}],
    }
    found = shares(report(a.finished(answers=answers)))
    assert sum(found.values()) == pytest.approx(288)
    assert min(found.values()) >= 0


def test_a_step_has_its_share_of_what_came_between() -> None:
    """The run ends 228 s after its warm-up, and after 114 further steps."""
    summary = a.finished()
    (rank,) = summary.ranks
    first = {**rank.answer["warmup"]["first"], "ended_at": rank.answer["attached_at"] + 60}
    answer = {**rank.answer, "steps": 115, "warmup": {**rank.answer["warmup"], "first": first}}
    made = report(replace(summary, ranks=(replace(rank, answer=answer),)))
    assert made.whole_step_seconds == pytest.approx(2.0)
    shown = " ".join(picture(page(made), made).split())
    assert "since the warm-up: 2 s a step, 1,800 steps an hour" in shown
    as_long_as_clean = replace(made, whole_step_seconds=made.steady.seconds)
    assert "an hour" not in picture(page(as_long_as_clean), as_long_as_clean)
    early = {**answer["step_seconds"], "first_at": first["ended_at"] - first["seconds"] - 2.0}
    eager = replace(rank, answer={**answer, "step_seconds": early})  # the warm-up lacks these steps
    assert report(replace(summary, ranks=(eager,))).whole_step_seconds is None


def test_recompiles_have_one_cost_in_a_report() -> None:
    """PyTorch's records lack the time around them, which is in all compiling."""
    length, recorded = report(a.finished()).warmup_seconds, 14.0
    assert length is not None
    made = report(a.finished(answers={"compile.seconds": length + recorded + 0.2}))
    warmup, again, _ = made.costs
    assert again.seconds == shares(made)[LATER] == recorded
    assert sum(one.seconds for one in made.recompiled if one.after_warm) == recorded
    assert warmup.seconds == length == pytest.approx(shares(made)["warm-up"])
    section = costs(made)
    assert section is not None
    assert section.table is not None
    rows = [row[0] for row in section.table.rows]
    assert rows[1:] == ["compiling after the warm-up", "all compiling"], "not all recompile"


def test_an_unexplained_long_step_is_a_gap_and_not_a_stall() -> None:
    """It may be an evaluation in a ``no_grad`` loop without ``eval()``, which nothing reports."""
    long = {**LONG_STEP, "seconds": 20.0}
    answers = {"long_steps": [long], "step_seconds.clean_seconds": 100.0}
    found = shares(report(a.finished(answers=answers)))
    assert (found["unexplained gaps"], found["stalls"]) == (20.0, 0.0)
    made = report(a.finished(answers={**answers, "pauses.evaluation_seconds": None}))
    within = "Not measured, so within clean steps, unexplained gaps or unaccounted: "
    assert within in lines(page(made), width=200, colour=False)
    waited = {"pauses.between_cells_seconds": 3.0}
    answers = {**answers, **waited, "long_steps": [{**long, "between_cells_seconds": 19.0}]}
    found = shares(report(a.finished(answers=answers)))
    assert found["unexplained gaps"] == 1.0, "a pause between two cells of a notebook explains it"
    assert found["between the cells of a notebook"] == 3.0
    prompt = {"long_steps": [{**long, "prompt": True}]}
    for values in (waited, prompt):
        made = report(a.finished(answers=values))
        assert made.whole_step_seconds is None, "the wait for the user is no cost of a step"
        assert made.goodput is not None
        assert (goodput.PROMPT in made.goodput.untold) is (values is prompt)
    stalled = {"state": "stalled", "since": EPOCH - 30, "step_seconds.clean_seconds": 100.0}
    found = shares(report(a.warm(answers=stalled, state="stalled")))
    assert (found["unexplained gaps"], found["stalls"]) == (0.0, pytest.approx(30))


def test_the_last_batch_of_an_epoch_has_its_remedy_in_the_warm_up_too() -> None:
    """The next run has it again."""
    early = [replace(one, ended=one.ended - 1200, step=2) for one in (a.AGAIN, a.AGAIN_BACK)]
    early[0] = replace(early[0], last_batch=(44, 64))
    made = report(a.finished(compiled=(*a.FIRST, *early)))
    (remedy,) = [one for one in made.do if "recompile" in one.about]
    assert remedy.what.startswith("The last batch of an epoch had 44 of 64: pass drop_last=True")
    assert remedy.saves == made.recompiled[0].seconds


@pytest.mark.parametrize("in_a_row", [1, 3])
def test_a_model_that_is_made_anew_saves_time_only_if_each_step_makes_it(in_a_row: int) -> None:
    """Each trial of a sweep compiles its model, with torch._dynamo.reset() too."""
    new = replace(a.AGAIN, category="new_instance", anew=True, in_a_row=in_a_row)
    made = report(a.finished(compiled=(*a.FIRST, new, a.AGAIN_BACK)))
    (remedy,) = [one for one in made.do if "recompile" in one.about]
    assert "torch._dynamo.reset() between trials" in remedy.what
    assert (remedy.saves is not None) is (in_a_row == 3)


def test_a_setting_that_helps_from_the_second_change_on_saves_no_single_recompile() -> None:
    hint = "# a.py:3 in f HINT: torch.compile considers ... (allow_unspec_int_on_nn_module)"
    new = replace(a.AGAIN, category="python_value", reason=f"0/0: self.n == 1  {hint}")
    made = report(a.finished(compiled=(*a.FIRST, new)))
    (remedy,) = [one for one in made.do if "recompile" in one.about]
    assert "two values of it during the warm-up" in remedy.what
    assert remedy.saves is None


def test_what_a_reset_dropped_is_an_item_that_a_sweep_may_need() -> None:
    again = [
        replace(one, reason=None, category=None, again=True) for one in (a.AGAIN, a.AGAIN_BACK)
    ]
    made = report(a.finished(compiled=(*a.FIRST, *again)))
    (remedy,) = [one for one in made.do if "dropped" in one.about]
    assert remedy.about.endswith("torch._dynamo.reset() dropped what was compiled")
    assert remedy.what.startswith("Move torch._dynamo.reset() out of the loop")
    assert remedy.saves is None


def test_lists_that_are_cut_say_how_many_are_left_out() -> None:
    made = report(a.finished(compiled=a.TWICE))
    (group,) = made.recompiled
    callers = tuple(f"train.py:{line}" for line in range(5))
    breaks = tuple(Break(reason=f"call to f{n}", count=2) for n in range(13))
    todo = tuple(Remedy(about=f"cause {n}", what="Do it.") for n in range(5))
    group = replace(group, callers=callers)
    made = replace(made, recompiled=(group,), graph_breaks=26, breaks=breaks, do=todo)
    recompiles, broken = section_of_recompiles(made), section_of_breaks(made)
    assert recompiles is not None
    assert broken is not None
    assert "train.py:2 and 2 more" in recompiles.items[0].words
    assert broken.items[-1].words == "3 other reasons, 6 times"
    fewer = section_of_breaks(replace(made, breaks=(*breaks[:10], Break(reason="call", count=1))))
    assert fewer is not None
    assert fewer.items[-1].words == "1 other reason, once"
    last = printed(brief(made, 100, made.run), width=100, colour=False).splitlines()[-1]
    assert last.startswith("All of it (2 more to do): warmwatch report ")


def test_a_single_item_that_is_left_out_is_in_the_singular() -> None:
    compiled = tuple(replace(a.FORWARD, id=f"{n}/0", name=f"f{n}") for n in range(13))
    whole = text(a.run_summary(*(b.view(b.as_rank(b.WARM, n, 17)) for n in range(17))))
    assert "1 more rank, which compiled no longer than these." in whole
    assert re.search(r"^ *1 other +1 ", text(a.finished(compiled=compiled)), re.MULTILINE)
    what, answers = replace(a.H100, caches={"inductor": "warm"}), {"compile.compilations": 1}
    account = a.finished(compiled=[a.FORWARD], what=what, answers=answers)
    caches = "inductor not empty at the start; 0 of 1 compilation cached"
    assert dict(facts(report(account)))["caches"] == caches


COLD = replace(a.H100, caches={"inductor": "cold"})


def test_remedies_are_ordered_by_their_savings() -> None:
    answers = {"pauses.data_seconds": 90.0, "step_seconds.clean_seconds": 129.0}
    made = report(a.finished(answers=answers, what=COLD), before=a.finished(id="before"))
    saves = [one.saves for one in made.do if one.saves]
    assert saves == sorted(saves, reverse=True)
    assert len(saves) == 3
    assert "cold" in made.do[0].about  # all of its compile time


@pytest.mark.parametrize(
    ("how", "kind", "ops"),
    [
        ("interrupted", "forward", None),
        ("interrupted", "forward", 9),
        ("interrupted", "triton", None),  # which has no graph
        ("finished", "forward", None),
    ],
)
def test_what_ctrl_c_cut_off_is_in_no_cache(how: str, kind: str, ops: int | None) -> None:
    cut_off = replace(a.AGAIN, kind=kind, ops=ops)
    made = report(a.finished(answers={"end.how": how}, compiled=(*a.FIRST, cut_off), what=COLD))
    (saving,) = (one.what for one in made.do if "cold" in one.about)
    whole = (how, kind, ops) != ("interrupted", "forward", None)
    assert saving.endswith(f"that saves the next run up to {'110 s' if whole else '100 s'}.")


@pytest.mark.parametrize("library", [None, "transformers"])
def test_evaluations_of_the_original_model_have_a_remedy_unless_a_trainer_makes_them(
    library: str | None,
) -> None:
    answers = {"compile.uncompiled_evaluations": 3, "compile.graphs": 2}
    what = replace(COLD, wrappings=(Wrapping(library=library),))
    found = [
        one for one in report(a.finished(answers=answers, what=what)).do if "eval" in one.about
    ]
    assert [one.about for one in found] == (
        [] if library else ["3 evaluations called no compiled function"]
    )


@pytest.mark.parametrize(
    ("processes", "at_once", "seconds", "waited", "saves"),
    [(3, 1, 0.85, 1.04, (0.85,)), (4, 2, 4.0, 40.0, (38.0, 2.0)), (2, 2, 0.1, 40.0, (39.95,))],
)
def test_of_the_waits_for_data_what_workers_compile_has_a_remedy_of_its_own(
    processes: int, at_once: int, seconds: float, waited: float, saves: tuple[float, ...]
) -> None:
    """More workers are the remedy for the rest. Workers compile at the same time."""
    answers = {
        "pauses.data_seconds": waited,
        "step_seconds.clean_seconds": waited + 0.1,
        "compiling_workers": {"processes": processes, "at_once": at_once, "seconds": seconds},
    }
    waits = [one for one in report(a.finished(answers=answers)).do if "waiting for" in one.about]
    assert [one.saves for one in waits] == pytest.approx(saves)
    for one in waits:
        assert ("more workers" in one.what) is not ("compiled" in one.about)


def test_a_failed_compilation_comes_before_savings_only_if_the_run_failed() -> None:
    """Then it may have ended the run; else it saves nothing that is known."""
    made = report(a.finished(answers={"compile.failures": 1, "state": "failed"}))
    assert made.do[0].about == "1 compilation failed"
    assert made.do[1].saves
    made = report(a.finished(answers={"compile.failures": 1}))
    assert made.do[0].saves
    assert "1 compilation failed" in [one.about for one in made.do]


def test_the_remedy_of_a_failure_in_every_step_has_its_type_and_its_cost() -> None:
    failed = [
        replace(
            a.FORWARD,
            id=f"1/{row}",
            name="loss",
            line=7,
            seconds=0.5,
            failure="torch._dynamo.exc.Unsupported",
            failure_reason="Data-dependent branching",
            failure_hint="Use `torch.cond` to express dynamic control flow.",
            failed_at=TracedPlace(name="clip", file="model.py", line=3),
            in_a_row=row,
        )
        for row in range(1, 13)
    ]
    answers = {"compile.failures": 12, "conditions": [IN_VAIN]}
    made = report(a.finished(compiled=(*a.FIRST, *failed), answers=answers))
    (found,) = [one for one in made.do if "failed" in one.about]
    words = "compilation of `loss` (model.py:7) failed in 12 steps in a row"
    why = "Unsupported: it branches on a tensor's value, at clip (model.py:3)"
    assert found.about == f"{words}: {why}"
    assert found.what.startswith("Choose with torch.where instead of an `if` on a tensor's value")
    assert found.what.endswith(
        " Or compile `loss` without fullgraph=True (or error_on_graph_break)."
    )
    assert found.saves == 6.0
    assert not any("eager speed" in one.about for one in made.do)  # it is the same fault
    once = replace(failed[0], in_a_row=1)
    in_vain = {**IN_VAIN, "advice": found.what}
    made = report(a.finished(compiled=(once,), answers={"conditions": [in_vain]}))
    assert [one.about for one in made.do if one.what == found.what] == [IN_VAIN["words"]]
    made = report(a.finished(compiled=(*a.FIRST, once)))
    (found,) = [one for one in made.do if "failed" in one.about]
    assert (found.about.partition(" of ")[0], found.saves) == ("1 compilation", None)
    assert made.do[-1] is found
    refused = replace(once, failure="torch._dynamo.exc.FailOnRecompileLimitHit")
    made = report(a.finished(compiled=(*a.FIRST, refused), answers={"compile.failures": 1}))
    assert not any("failed" in one.about for one in made.do)  # the limit has the remedy


@pytest.mark.parametrize(
    ("wrappers", "conditions", "number"), [(0, [], 0), (1, [], 1), (1, ["never_compiled"], 1)]
)
def test_what_was_passed_to_torch_compile_and_never_compiled_has_one_remedy(
    wrappers: int, conditions: list[str], number: int
) -> None:
    """Such as a generator."""
    advice = remedy_of_calls()
    held = [
        {"condition": name, "words": "it never compiled", "advice": advice} for name in conditions
    ]
    answers = {"compile.wrappers": wrappers, "conditions": held}
    made = report(a.eager(answers=answers))
    assert [one.what for one in made.do].count(advice) == number
    workers = {"processes": 2, "seconds": 4.0}  # of a DataLoader: they called it
    made = report(a.eager(answers={**answers, "compiling_workers": workers}))
    assert [one.what for one in made.do].count(advice) == len(conditions)


def test_a_build_that_the_training_waits_for_has_a_remedy() -> None:
    build = replace(a.FORWARD, kind="outside", name="g++", id=None, seconds=40.0)
    (found,) = [
        one for one in report(a.finished(compiled=(*a.FIRST, build))).do if "g++" in one.about
    ]
    assert found.saves == 40.0


def test_calls_under_a_stance_have_a_remedy_after_the_stance_has_gone() -> None:
    made = report(a.finished(answers={"compile.on_recompile_calls": 3}))
    (found,) = [one for one in made.do if "3 calls" in one.about]
    assert "eager_on_recompile" in found.about
    made = report(a.finished(answers={"compile.disabled": "eager_on_recompile"}))
    assert not any("turned off" in one.about for one in made.do)  # what fits still runs compiled


def test_a_report_names_what_turned_compilation_off() -> None:
    account = a.finished(answers={"compile.disabled": "environment"})
    account = replace(account, what=replace(account.what, disabled="environment"))
    (found,) = [one for one in report(account).do if "turned off" in one.about]
    assert found.about == "compilation was turned off by TORCHDYNAMO_DISABLE"
    row = re.search(r"^torch.compile +(.*)$", text(account), re.MULTILINE)
    assert row is not None
    assert row[1].endswith("turned off by TORCHDYNAMO_DISABLE")


IN_VAIN = {"condition": "nothing_captured", "words": "this is eager speed", "advice": "Find out."}


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("`flex_attention` runs unfused in train.py:9: it is called uncompiled", "compiled code"),
        (
            "new inputs of `flex_attention_block` run eagerly: the recompile limit was reached",
            "recompile_limit",
        ),
    ],
)
def test_the_remedy_of_a_fallback_is_that_of_its_reason(words: str, remedy: str) -> None:
    held = {"condition": "fallback", "words": words, "advice": f"Change {remedy}."}
    answers = {"conditions": [held]}
    (found,) = [one for one in report(a.finished(answers=answers)).do if one.about == words]
    assert remedy in found.what


def test_a_remedy_that_saves_nothing_notable_is_not_first() -> None:
    """Compiling an evaluation earlier saves nothing. The list of recompiles has the advice."""
    evaluation = replace(a.AGAIN, category="grad_mode", reason="GLOBAL_STATE changed: grad_mode ")
    for late, first in (
        (a.AGAIN, True),
        (replace(a.AGAIN, seconds=0.5), False),
        (evaluation, False),
    ):
        made = report(a.finished(compiled=(*a.FIRST, late)))
        assert any(f"({late.category})" in one.about for one in made.do) is first
        recompiles = section_of_recompiles(made)
        assert recompiles is not None
        (item,) = recompiles.items
        (found,) = made.recompiled
        assert found.advice
        assert bool(item.remedy) is first
        assert (found.advice in item.more) is not first


def test_unknown_costs_are_absent_and_known_ones_add_up() -> None:
    bare = report(a.finished()).costs
    assert [(one.what, one.gpu_seconds, one.joules) for one in bare] == [
        (what, None, None) for what in ("warm-up", LATER, "compiling")
    ]
    answers = {
        "gpus": ["GPU-1", "GPU-2"],
        "energy": {
            "compile_joules": 11320.0,
            "covered_seconds": 113.2,
            "joules_per_clean_step": 24.9,
        },
    }
    warming, again, whole = report(a.finished(answers=answers)).costs
    assert again.gpu_seconds == 28.0
    assert whole.joules == 11320.0
    assert not whole.estimated
    assert warming.joules is not None
    assert again.joules is not None
    assert warming.estimated
    assert warming.joules + again.joules == pytest.approx(whole.joules)


def test_places_of_graph_breaks_are_where_dynamo_resumed() -> None:
    once = "torch_dynamo_resume_in_forward_at_47"
    again = f"torch_dynamo_resume_in_{once}_at_52"
    resumed = [replace(a.FORWARD, id=f"{name}/0", name=name, line=31) for name in (once, again)]
    answers = {
        "compile.graph_breaks": 2,
        "compile.breaks": [{"reason": "Unsupported", "count": 2, "advice": "Set capture_it."}],
    }
    output = text(a.finished(compiled=(*a.FIRST, *resumed), answers=answers))
    assert "Dynamo resumed at `forward` (model.py:47), `forward` (model.py:52)." in output
    assert "Set capture_it." in output


KINDS: dict[str, Any] = {
    **{state: lambda view=view: a.run_summary(view) for state, view in b.in_every_state().items()},
    "compiled twice": a.finished,
    "never compiled": a.eager,
    "no rank": lambda: RunSummary(id="x", run="gone", began=EPOCH, seen=EPOCH, state="lost"),
    "hostile": lambda: a.finished(
        run=HOSTILE, summary=HOSTILE, compiled=(replace(a.AGAIN, name=HOSTILE * 9, file=HOSTILE),)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_fits_80_columns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    account = KINDS[kind]()
    made = cleaned(report(account))
    for document in (page(made), short(made)):
        output = picture(document, made)
        assert max(map(len, output.splitlines())) <= 80, output
        assert "…" not in output
        assert "None" not in output
        assert "\x1b" not in output
        assert "Where the time went" in output
        assert markdown(document)
    whole = html(page(made), made, account)
    assert "<img" not in whole
    assert "\x1b" not in whole
    json.loads(as_json(made))


def test_a_remedy_of_all_graphs_is_not_repeated_for_the_break_that_has_it() -> None:
    caught = replace(b.WARM.compile, graphs=0, graph_breaks=3, compilations=b.kinds(forward=3))
    journal = {"breaks": (GraphBreak(reason="Unsupported Tensor.item() call", count=3),)}
    ended = b.ended("finished", replace(b.WARM, compile=caught))
    made = report(a.run_summary(b.view(ended, alive=False, journal=journal)))
    of_all, of_break = (item.what for item in made.do if "graph break" in item.about)
    assert (of_all[:22], of_break) == ("Keep the number a tens", "As above.")


def test_an_ended_run_retains_its_findings() -> None:
    caught = replace(
        b.WARM.compile,
        graphs=0,
        graph_breaks=3,
        compilations=b.kinds(forward=3),
    )
    view = b.view(b.ended("finished", replace(b.WARM, compile=caught)), alive=False)
    output = " ".join(text(a.run_summary(view)).split())
    assert conditions(view)["nothing_captured"].text in output
    assert "TORCH_LOGS=graph_breaks" in output
    assert "compile the container before you wrap it" in output  # see tests/process/test_compiling
    assert "3 compilations" in output
    assert "compilations of graphs" not in output
    assert "it ran eagerly" in text(a.eager())
    assert "uncaught exception" in text(a.run_summary(b.in_every_state()["failed"]))


def test_a_slower_period_is_in_the_text_and_shaded_on_the_chart_of_steps() -> None:
    account = a.finished(answers={"slower_periods": [a.SLOWER]}, samples=a.steps())
    began = account.ranks[0].samples.epochs[0]  # type: ignore[union-attr]
    words = "steps 301 to 400: 400 ms a step (24 ms before, 17x); load 8.9 on 2 CPUs"
    assert f"Slower than before for 40 s, {words}." in " ".join(text(account).split())
    period = {**a.SLOWER, "began_at": began + 1, "ended_at": began + 2}
    account = a.finished(answers={"slower_periods": [period]}, samples=a.steps())
    (band,) = re.findall(r'<rect class="slower"[^>]*>', whole_html(account))
    assert float(re.search(r' x="([^"]*)%"', band)[1]) > 0  # type: ignore[index]
    for unseen in ({"began_at": None, "since_step": None}, {"began_at": EPOCH + 900}):
        one = a.finished(answers={"slower_periods": [{**period, **unseen}]}, samples=a.steps())
        assert '<rect class="slower"' not in whole_html(one), "it is outside of the chart"
    assert "Slower" not in text(a.finished())


def test_the_chart_of_compile_time_has_the_slowest_kernels_below_their_phase() -> None:
    kernels = (("triton_poi_fused_gelu_0", 9.0), ("triton_red_fused_sum_1", 3.0))
    page_of = whole_html(a.finished(compiled=(replace(a.FORWARD, slowest_kernels=kernels),)))
    (phase,) = re.findall(
        r'<rect class="kernel_compile" x="([^"]*)%"[^>]* width="([^"]*)%"', page_of
    )
    drawn = re.findall(r'<rect class="i-kernel" x="([^"]*)%"[^>]* width="([^"]*)%"', page_of)
    assert drawn[0][0] == phase[0]
    widths = [float(wide) for _, wide in drawn]
    assert widths == pytest.approx([float(phase[1]) * 0.75, float(phase[1]) * 0.25], abs=0.1)
    assert "triton_poi_fused_gelu_0: 9" in page_of
    assert "i-kernel" not in whole_html(a.finished(compiled=(a.FORWARD,))).partition("</style>")[2]


def test_steps_and_compile_time_are_on_one_axis_and_no_line_crosses_a_compilation() -> None:
    seen = a.steps()
    known = [value is not None for value in seen.columns["step_seconds"]]
    within = next(at for at in range(1, len(known)) if all(known[at - 1 : at + 2]))
    phase = [None if at != within else "inductor" for at in range(len(known))]
    columns = {**seen.columns, "phase": tuple(phase)}
    account = a.finished(compiled=(), samples=replace(seen, columns=columns))
    page_of = whole_html(account)
    plain = whole_html(a.finished(compiled=(), samples=seen))
    assert plain.count("<polyline") + 1 == page_of.count("<polyline")
    assert (plain.count('class="compiles"'), page_of.count('class="compiles"')) == (0, 1)


def test_the_chart_of_power_names_the_gpu_and_its_rank() -> None:
    """NVML's order is not that of uuids: a position among them is no index of a GPU."""
    views = [b.view(b.as_rank(b.WARM, n, 2)) for n in range(2)]
    summary = a.run_summary(*views, gpu_samples={"GPU-a": a.power(), "GPU-b": a.power()})
    pairs = zip(summary.ranks, (["GPU-b"], ["GPU-a"]), strict=True)
    ranks = tuple(replace(one, answer={**one.answer, "gpus": gpus}) for one, gpus in pairs)
    names = [name for name, _ in samples(replace(summary, ranks=ranks), report(summary))]
    assert names == ["Power of GPU-b, rank 0", "Power of GPU-a, rank 1"]


def whole_html(account: RunSummary) -> str:
    made = cleaned(report(account))
    return html(page(made), made, account)


def test_the_result_of_a_baseline_is_reported() -> None:
    eager = {"steps": 20, "seconds": 0.072, "break_even_steps": 996}
    answers = {**eager, "speed_up": 2.0, "paid_back_at_step": 1016}
    output = " ".join(text(a.finished(answers={"baseline": answers})).split())
    assert (
        "Baseline: the first 20 steps ran eagerly on purpose, 72 ms each; 2x as fast as eager; "
        "break-even at step 1,016." in output
    )
    slower = {**answers, "speed_up": 0.9, "paid_back_at_step": None}
    output = " ".join(text(a.finished(answers={"baseline": slower})).split())
    assert "so compiling never breaks even" in output
    assert "Baseline" not in text(a.finished())


def test_advice_is_given_once_and_lengths_to_the_second() -> None:
    answers = {"compile.seconds": 118.4}
    made = report(a.finished(answers=answers))
    for document in (page(made), short(made)):
        output = " ".join(picture(document, made).split())
        assert output.count(ADVICE["shape"]) == 1
        assert "118 s" in output


def test_a_rank_that_was_interrupted_is_called_so_in_the_table_of_ranks() -> None:
    ends = ("finished", "interrupted")
    views = [b.view(b.as_rank(b.ended(how), at, 2), alive=False) for at, how in enumerate(ends)]
    made = report(a.run_summary(*views))
    assert "rank 0: finished; rank 1: interrupted" in made.differences
    assert {line.state for line in made.ranks} == {"finished"}
    assert re.search(r"^ +1 +interrupted ", lines(page(made), width=80, colour=False), re.MULTILINE)


def test_markdown_escapes_every_text() -> None:
    output = markdown(page(cleaned(report(KINDS["hostile"]()))))
    assert r"\<img" in output
    assert r"\[a\]" in output
    rows = [line for line in output.splitlines() if line.startswith("|")]
    assert rows
    for table in rows:  # a bar of a text's makes no cell
        assert table.replace(r"\|", "").count("|") in (3, 4, 6)


def test_compilations_of_an_evaluation_are_between_steps() -> None:
    """An entry with a backward did not fit for the grad mode, so this call has no gradients."""
    changed = "GLOBAL_STATE changed: grad_mode"
    size = "tensor 'x' size mismatch at index 0. expected 4, actual 2"
    evaluated = replace(a.AGAIN, id="0/2", step=20, reason=f"0/9: {size}\n0/0: {changed}")
    first = replace(evaluated, id="0/3", step=0, category="grad_mode", reason=f"0/0: {changed}")
    # its backward is compiled with it, as of a dynamic size, and recorded as one
    trains = replace(evaluated, id="0/4", step=30, reason=f"0/0: {size}\n0/2: {changed}")
    compiled = [*a.TWICE, evaluated, first, trains]
    made = report(a.finished(compiled=compiled))
    found = {(one.category, one.steps): one.between_steps for one in made.recompiled}
    assert found == {
        ("shape", (1200,)): False,
        ("shape", (30,)): False,
        ("shape", (20,)): True,
        ("grad_mode", (0,)): True,
    }
    output = " ".join(text(a.finished(compiled=compiled)).split())
    assert "once, 10 s (shape, between steps 20 and 21" in output
    assert "(grad_mode, before step 1" in output


def test_the_first_remedy_is_for_what_compiled_code_refused() -> None:
    view = b.view(
        b.ended("failed"),
        alive=False,
        journal={"exception": "RuntimeError", "refusal": "donated_buffers"},
    )
    first = report(a.run_summary(view, compiled=a.TWICE)).do[0]
    assert (first.about, first.what) == REFUSALS["donated_buffers"]


def test_the_report_of_a_failed_run_begins_with_the_failure() -> None:
    counts = replace(b.ended("failed").compile, exit_code=2)
    slot = replace(b.ended("failed"), compile=counts)
    view = b.view(
        slot,
        alive=False,
        journal={
            "exception": "BackendCompilerFailed",
            "raised": Place(name="train_one_epoch", file="train.py", line=88),
        },
    )
    failed = replace(a.AGAIN, failure="torch._dynamo.exc.BackendCompilerFailed")
    output = text(a.run_summary(view, compiled=[*a.FIRST, failed]))
    assert output.index("The failure") < output.index("Where the time went")
    plain = " ".join(output.split())
    head = "BackendCompilerFailed in `train_one_epoch` (train.py:88) ended it after 3602 steps"
    assert f"{head} " in plain
    assert (
        "Compiling `forward` (model.py:31) failed before step 1201: BackendCompilerFailed "
        "(compilation 0/1, forward)." in plain
    )
    assert "The failure" not in text(a.finished())
    later = replace(a.FORWARD, id="1/0", name="evaluate", ended=failed.ended + 1)
    output = text(a.run_summary(view, compiled=[*a.FIRST, failed, later]))
    assert "failed before step" not in output, "another function compiled afterwards"


def lines_of(
    account: RunSummary,
    width: int = 100,
    before: RunSummary | None = None,
    called: str | None = None,
) -> list[str]:
    made = cleaned(report(account, before))
    return printed(brief(made, width, called or made.run), width=width, colour=False).splitlines()


def test_a_brief_report_has_sentence_bar_remedies_cost_and_next_commands() -> None:
    answers = {"pauses.data_seconds": 90.0, "step_seconds.clean_seconds": 129.0}
    account = a.finished(compiled=a.TWICE, answers=answers)
    output = lines_of(account, width=160, before=replace(account, id="aaaaaaaa"))
    assert output[0].startswith("gpt2: finished")
    assert len(output) <= 12
    bar, key, cost = output[1:4]
    assert len(bar) == 100
    assert bar.count("▒") == pytest.approx(120 / 288 * 100, abs=1)
    assert key.startswith("288 s: ")
    assert "▒ warm-up 41.7 %" in key
    names = [one.name for one in report(account).goodput.shares if one.ratio > 0]  # type: ignore[union-attr]
    assert sorted(names, key=key.index) == names  # in the order of the bar
    assert cost.startswith("Compiling took 1")
    assert any(line.startswith("- ") and "saved up to " in line for line in output)
    assert output[-1].endswith("The last comparable run: warmwatch compare aaaaaaaa gpt2")


def test_a_brief_report_has_the_worst_slowdown() -> None:
    """It may have cost more than all compiling."""
    periods = [a.SLOWER, {**a.SLOWER, "ratio": 2.0, "since_step": 700, "until_step": 800}]
    output = lines_of(a.finished(answers={"slower_periods": periods}))
    shown = [line for line in output if line.startswith("Slower than before ")]
    assert [line.partition(": ")[0] for line in shown] == [
        "Slower than before for 40 s, steps 301 to 400"
    ]


def test_the_suggested_commands_quote_a_hostile_name() -> None:
    """Another user chooses the name, and a reader pastes the command."""
    name = "x'; touch stolen; '"
    account = replace(a.finished(compiled=a.TWICE), run=name)
    *_, last = lines_of(account, width=300, before=replace(account, id="aaaaaaaa"))
    _, _, compared = last.partition("warmwatch compare ")
    assert shlex.split(compared) == ["aaaaaaaa", name]


def test_the_bar_has_a_character_and_a_colour_for_each_share() -> None:
    assert {*SIGNS} == {*goodput.NAMES}
    assert len({sign for sign, _ in SIGNS.values()}) == len(SIGNS)


def test_the_bar_has_ascii_characters_if_the_encoding_has_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    draw("".join(sign for sign, _ in SIGNS.values()) + "é")
    printed_signs = stdout.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert printed_signs == "#d_!.wRESc:?\\xe9\n"
    assert len(set(printed_signs[: len(SIGNS)])) == len(SIGNS)


def test_a_brief_report_of_a_failed_run_has_its_error() -> None:
    slot = replace(b.ended("failed"), compile=replace(b.ended("failed").compile, exit_code=2))
    raised = Place(name="train_one_epoch", file="train.py", line=88)
    view = b.view(slot, alive=False, journal={"exception": "OSError", "raised": raised})
    output = lines_of(a.run_summary(view))
    assert "OSError in `train_one_epoch` (train.py:88) ended it" in " ".join(output[1:])
    made = report(a.run_summary(view))
    for warm_up, when in ((made.warmup_seconds, ""), (None, " before its first step")):
        (line,) = made.ranks
        line = replace(line, steps=0, warmup_seconds=warm_up)  # a server marks none
        section = failure(replace(made, ranks=(line,)))
        assert f"(train.py:88) ended it{when}'" in str(section)


@pytest.mark.parametrize(
    ("slot", "ending", "words"),
    [
        (
            b.WARM,
            {"gone": 11, "journal": {"death": Death(signal=signal.SIGSEGV, at_ns=b.ago(11))}},
            "SIGSEGV ended rank 1 after 3602 steps",
        ),
        (
            replace(b.ended("failed"), compile=replace(b.ended("failed").compile, exit_code=4)),
            {},
            "Rank 1 ended after 3602 steps, exit code 3",
        ),
    ],
)
def test_the_failure_is_of_the_rank_that_failed_first_and_not_of_the_one_that_compiled_longest(
    slot: Slot, ending: dict[str, Any], words: str
) -> None:
    """The other lost its connection, and its launcher then killed it: it had no exit code."""
    raised = {"exception": "RuntimeError", "raised": Place(name="step", file="train.py", line=30)}
    broken = b.as_rank(b.ended("failed", seconds_ago=11.5), 0, 2)
    first = b.view(broken, alive=False, journal=raised)
    second = b.view(b.as_rank(slot, 1, 2), alive=False, **ending)
    summary = a.run_summary(first, second)
    made = report(summary)
    assert (made.rank, made.failure and made.failure.rank) == (0, 1)
    assert words in " ".join(text(summary).split())
    assert "ended it" not in text(summary)


@pytest.mark.parametrize(
    ("known", "graphs", "words"),
    [
        (4, 2, "in 4 compilations, 2 forward and 2 backward; 1 recompile."),
        (4, 1, "in 4 compilations, 2 forward (1 with a graph) and 2 backward; 1 recompile."),
        (4, 0, "in 4 compilations, 2 forward (0 with a graph) and 2 backward; 1 recompile."),
        (5, 2, "in 5 compilations; 1 recompile."),  # the history has left one out
    ],
)
def test_compilations_are_counted_as_forward_and_backward(
    known: int, graphs: int, words: str
) -> None:
    answers = {"compile.compilations": known, "compile.graphs": graphs, "compile.recompiles": 1}
    assert words in " ".join(lines_of(a.finished(answers=answers)))


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("torch._dynamo.exc.RecompileError", "Unset torch._dynamo.config.error_on_recompile"),
        (
            "torch.fx.experimental.symbolic_shapes.ConstraintViolationError",
            "Mark each tensor of that size",
        ),
    ],
)
def test_what_a_setting_or_a_mark_refuses_is_not_a_fault_of_the_function(
    raised: str, words: str
) -> None:
    refused = replace(a.FORWARD, name="loss", failure=raised)
    made = report(a.finished(compiled=(*a.FIRST, refused)))
    (found,) = [one for one in made.do if "failed" in one.about]
    assert found.what.startswith(words)
