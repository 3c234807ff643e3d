"""Thrashing, fallback and unknown: in the sentence, in /status and in the metrics."""

from __future__ import annotations

import re

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.advice import MADE_ANEW, advice_for
from warmwatch.shared.fallbacks import DISABLED, FLEX, LIMIT, MODE, REMEDIES, words
from warmwatch.shared.record import MOST_TOUCHED, CompileCounts, StepCounts
from warmwatch_monitor.commands.status import exit_code
from warmwatch_monitor.figures.compile import CompilingWorkers
from warmwatch_monitor.figures.rank import WorkersMemory
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.journal import Compilation, Fallback, GraphBreak
from warmwatch_monitor.model.records import Recordings, VaryingDim
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.words.conditions import workers_compile, workers_memory
from warmwatch_monitor.status.words.requested import never_compiled, remedy_of_never_compiled
from warmwatch_monitor.status.words.sentence import answer

STEPS = b.WARM.steps.steps


def view(counts: CompileCounts, **more: object) -> RankView:
    return b.view(replace(b.WARM, compile=counts), **more)  # type: ignore[arg-type]


def thrashing() -> RankView:
    touched = (STEPS - 3, STEPS - 5, STEPS - 7, STEPS - 8)
    counts = replace(b.WARM.compile, touched_steps=touched + (0,) * (MOST_TOUCHED - 4))
    why = ("shape", "grad_mode", "shape")
    last = tuple(
        Compilation(id=f"0/{n}", kind="forward", at_ns=b.ago(n), category=c)
        for n, c in enumerate(why)
    )
    return view(counts, compilations=last)


def fallback(name: str = "forward", file: str | None = None, line: int | None = None) -> RankView:
    hit = Fallback(at_ns=b.ago(9), step=12, name=name, file=file, line=line, limit=8)
    return view(replace(b.WARM.compile, fallbacks=2), fallbacks=(hit,))


WORDS = {
    "thrashing": (thrashing(), "thrashing: 4 of the last 10 steps compiled, mostly for shape"),
    "fallback": (
        fallback(),
        (
            "new inputs of `forward` run eagerly since step 13 (and of 1 other function): "
            "the recompile limit of 8 was reached"
        ),
    ),
    "unknown": (
        view(replace(b.WARM.compile, asynchronous=1)),
        "Inductor compiles asynchronously: when it has ended cannot be seen",
    ),
}
BROKEN = GraphBreak(reason="Unsupported: a module wrapped by DDP", count=3, library=True)
NOTHING = replace(b.WARM.compile, graphs=0, graph_breaks=3)
OF_NOTHING = (
    "Find what breaks the graph in every frame (TORCH_LOGS=graph_breaks shows where). With "
    "DistributedDataParallel around a container of PyTorch (Sequential), compile the container "
    "before you wrap it."
)
OF_DDP = GraphBreak(reason="Unsupported: _rebuild_buckets", count=3, library=True)
CAPTURED_NOTHING = (
    "Dynamo captured nothing: this is eager speed "
    "(3 graph breaks: Unsupported: a module wrapped by DDP)"
)


@pytest.mark.parametrize("condition", WORDS)
def test_a_condition_is_in_the_sentence_and_in_status(condition: str) -> None:
    made, words = WORDS[condition]
    snapshot = b.snapshot(made)
    (rank,) = status(snapshot)["runs"][0]["ranks"]
    ((name, found, advice),) = [held.values() for held in rank["conditions"]]
    assert (name, found) == (condition, words)
    assert b.in_words(made).endswith("; ".join(filter(None, ["", words, advice])))
    assert words in rank["evidence"]


def test_the_remedy_is_for_the_reason_that_most_of_the_last_recompiles_had() -> None:
    """The newest was for a number."""
    made = [
        Compilation(id=f"0/{n}", at_ns=n, kind="forward", category=category)
        for n, category in enumerate(("shape", "shape", "python_value"))
    ]
    seen = {"values": (4, 8, 12, 16), "lowest": 4, "highest": 16, "count": 3}
    size = VaryingDim(tensor="x", dim=0, last_id="0/1", **seen)  # type: ignore[arg-type]
    number = VaryingDim(tensor="n", dim=None, last_id="0/2", **seen)  # type: ignore[arg-type]
    touched = (STEPS - 3, STEPS - 5, STEPS - 7, *(0,) * (MOST_TOUCHED - 3))
    counts = replace(b.WARM.compile, touched_steps=touched)
    held = view(counts, compilations=(*made,), journal={"varying": (size, number)})
    assert "mostly for shape (dim 0 of `x`" in b.in_words(held)


def test_the_remedy_at_the_limit_is_for_what_filled_the_cache() -> None:
    """The refused call differs in a second attribute, which the entries compare first."""
    setting = "# a.py:3 in f (allow_unspec_int_on_nn_module)"
    of_calls = [f"0/{n}: self.calls == {n}  {setting}" for n in range(7)]
    made = [
        Compilation(id=f"0/{n}", at_ns=n, kind="forward", category="python_value", reason=reason)
        for n, reason in enumerate(of_calls, 1)
    ]
    hit = {"at_ns": 9, "step": 8, "limit": 8, "category": "python_value", "in_a_row": 7}
    refused = Fallback(**hit, reason="0/7: self.temp == 1.0")  # type: ignore[arg-type]
    counts = replace(b.WARM.compile, fallbacks=1, repeated=7, repeated_step=b.WARM.steps.steps)
    in_rows = (replace(each, in_a_row=row) for row, each in enumerate(made, 1))
    held = view(counts, fallbacks=(refused,), compilations=(*in_rows,))
    words = b.in_words(held)
    assert words.count(advice_for(made[0]) or "") == 1  # `thrashing` has the same remedy
    assert (advice_for(refused) or "") not in words


def test_cuda_graphs_that_begin_again_in_every_step_are_no_warm_up() -> None:
    made = Compilation(id="0/0", at_ns=b.ago(1), kind="cudagraph", new_sizes=1, in_a_row=40)
    graphs = Recordings(name="loss", file="train.py", line=5, sizes=(40, 39))
    counts = replace(b.WARM.compile, repeated=40, repeated_step=b.WARM.steps.steps)
    held = view(counts, compilations=(made,), journal={"recordings": (graphs,)})
    words = b.in_words(held)
    head = "CUDA graphs of `loss` (train.py:5) begin again in every step (40th time)"
    assert f"{head}: each step has an input of a new size" in words
    assert "Pad inputs to a few sizes" in words


@pytest.mark.parametrize(
    ("variants", "why", "remedy"),
    [
        (12, "12 modules of its class", "recompile_limit to 12 or more"),
        (
            300,  # all entries of a function have a limit, too
            "300 modules of its class",
            "recompile_limit and accumulated_recompile_limit to 300 or more.",
        ),
        (1, "modules of its class", "for example to 16, until none is refused"),
    ],
    ids=["of one model", "above both limits", "in no common model"],
)
def test_the_limit_that_modules_need_is_named_only_if_it_is_known(
    variants: int, why: str, remedy: str
) -> None:
    """Each module alone is compiled: the model of the refused call shows only that one."""
    refused = Fallback(
        at_ns=b.ago(9),
        step=0,
        name="forward",
        limit=8,
        setting="recompile_limit",
        category="new_instance",
        reason="0/7: self.key == '...'",
        variants=variants,
        variants_of="modules",
        in_steps=1,
    )
    one = view(replace(b.WARM.compile, fallbacks=1), fallbacks=(refused,))
    assert f"; {why} differ in `key`" in b.in_words(one)
    (rank,) = status(b.snapshot(one))["runs"][0]["ranks"]
    (advice,) = (held["advice"] for held in rank["conditions"])
    assert remedy in advice


def test_functions_that_share_a_limit_are_to_get_one_each() -> None:
    hit = fallback().figures.log.fallbacks[0]
    shared = replace(hit, limit=8, variants=9, variants_of="functions", isolates=True)
    one = view(replace(b.WARM.compile, fallbacks=1), fallbacks=(shared,))
    (rank,) = status(b.snapshot(one))["runs"][0]["ranks"]
    (held,) = rank["conditions"]
    assert held["words"].endswith("; 9 functions or modules that one wrapper calls share it")
    assert held["advice"].endswith("isolate_recompiles=True) for each.")


def test_a_warm_rank_without_captured_code_has_no_real_speed() -> None:
    made = view(NOTHING, journal={"breaks": (BROKEN,)})
    snapshot = b.snapshot(made)
    assert b.parts(answer(snapshot)) == (
        "gpt2: warm, but Dynamo captured nothing: this is eager speed; 36 ms a step",
        ("3 graph breaks: Unsupported: a module wrapped by DDP", OF_NOTHING),
    )
    (rank,) = status(snapshot)["runs"][0]["ranks"]
    assert rank["state"] == "warm"
    (held,) = rank["conditions"]
    assert list(held.values()) == ["nothing_captured", CAPTURED_NOTHING, OF_NOTHING]
    known = {
        "reason": BROKEN.reason,
        "count": 3,
        "called": None,
        "eager": None,
        "also": [],
        "advice": None,
    }
    assert rank["compile"]["breaks"] == [known]
    wrapped = view(NOTHING, journal={"breaks": (OF_DDP,)})
    details = b.parts(answer(b.snapshot(wrapped)))[1]
    assert OF_NOTHING.endswith(f". {details[-1]}")
    assert "nothing to change" not in " ".join(details), "there is a remedy"


def test_breaks_with_nothing_to_change_come_last() -> None:
    meant = GraphBreak(
        reason="Call to `torch._dynamo.graph_break()`", count=2, name="_use_grad", library=True
    )
    made = view(NOTHING, journal={"breaks": (meant, BROKEN)})
    (rank,) = status(b.snapshot(made))["runs"][0]["ranks"]
    first, last = rank["compile"]["breaks"]
    assert (first["reason"], last["advice"]) == (BROKEN.reason, None)
    assert "nothing to change" in last["reason"]


def test_the_reason_why_nothing_was_captured_is_reported_if_known() -> None:
    tried = replace(NOTHING, graph_breaks=0, compilations=b.kinds(forward=3))
    failed = view(replace(tried, failures=2))
    assert b.in_words(failed).endswith(f"; 2 compilations failed; {OF_NOTHING}")
    why = Compilation(id="0/0", kind="forward", at_ns=b.ago(9), failure="torch._dynamo.exc.Broken")
    failed = view(replace(tried, failures=3), compilations=(why,))
    text = b.in_words(failed)
    assert text.startswith("gpt2: warm, but every compilation failed: this is eager speed")
    assert "; 3: Broken; Stop compiling it, or fix what fails: the exception has" in text
    assert "captured nothing: this" in b.in_words(view(replace(NOTHING, graph_breaks=0)))


def test_a_condition_that_needs_attention_sets_the_exit_code_while_the_rank_lives() -> None:
    warm = b.view(replace(b.WARM, identity=replace(b.WARM.identity, run="other")))
    assert exit_code(status(b.snapshot(warm))) == 0
    assert exit_code(status(b.snapshot(warm, view(NOTHING)))) == 4
    over = b.view(replace(b.ended("finished"), compile=replace(NOTHING, end_code=1)), alive=False)
    assert exit_code(status(b.snapshot(over))) == 0


def test_a_background_compilation_is_not_called_warm() -> None:
    answer = status(b.snapshot(WORDS["unknown"][0]))
    assert (answer["warm"], answer["runs"][0]["state"]) == (False, "recompiling")


def test_the_cost_of_the_compiler_is_the_excess_of_touched_steps_over_steady_ones() -> None:
    (rank,) = status(b.snapshot(b.view(b.WARM)))["runs"][0]["ranks"]
    cost, steady = rank["cost"], rank["step_seconds"]["typical"]
    touched = sum(b.WARM.compile_bins)
    total = b.WARM.compile.compile_step_sum_ns / 1e9
    assert cost["steps_touched"] == touched > 0
    assert cost["steady_step_seconds"] == steady
    assert cost["beyond_steady_seconds"] == pytest.approx(total - touched * steady)


def test_a_single_worker_is_in_the_singular() -> None:
    memory = WorkersMemory(
        workers=1, workers_bytes=10**9, used_bytes=10**9, limit_bytes=10**9, cgroup=False
    )
    worker = CompilingWorkers(compiling=0, processes=1, at_once=1, seconds=12.0, name="augment")
    warm = b.view(b.WARM)
    figures = replace(warm.figures, loader_workers=worker)
    view = replace(warm, workers_memory=memory, figures=figures)
    assert "; 1 compile worker holds 1 GB; " in workers_memory(view).text
    assert workers_compile(view).short == "1 DataLoader worker has compiled `augment` for 12 s"


def test_functions_that_run_eagerly_are_told_apart_by_cause() -> None:
    """Uncompiled ``flex_attention`` was called the recompile limit, with a higher one as remedy."""
    hit = fallback().figures.log.fallbacks[0]
    flex = replace(hit, name="attend", setting=FLEX, limit=None)
    counts = replace(b.WARM.compile, fallbacks=5, unfused=2, skipped=2)
    one = view(counts, fallbacks=(flex, hit))
    (rank,) = status(b.snapshot(one))["runs"][0]["ranks"]
    (held,) = rank["conditions"]
    assert rank["compile"]["fallbacks"] == 5
    limited, unfused, skipped = held["words"].split("; ")
    assert limited.endswith("run eagerly since step 13: the recompile limit of 8 was reached")
    in_two = "in `attend` (and 1 other function)"
    assert unfused == f"`flex_attention` runs unfused {in_two}: it is called uncompiled"
    assert skipped.startswith("calls of 2 functions run eagerly: a new input came while")
    assert "recompile_limit" in held["advice"]
    assert held["advice"].endswith(f"{REMEDIES[FLEX]} {REMEDIES[DISABLED]}")
    series = render(b.snapshot(one), None)[0].decode()
    found = re.findall(r"fallbacks_total\{cause=\"(\w+)\",.*\} (\S+)", series)
    assert dict(found) == {LIMIT: "1.0", FLEX: "2.0", DISABLED: "2.0"}


def test_without_steps_a_function_runs_eagerly_since_no_step() -> None:
    hit = fallback().figures.log.fallbacks[0]
    slot = replace(b.WARM, steps=StepCounts(), compile=replace(b.WARM.compile, fallbacks=1))
    (rank,) = status(b.snapshot(b.view(slot, fallbacks=(hit,))))["runs"][0]["ranks"]
    (held,) = (one for one in rank["conditions"] if one["condition"] == "fallback")
    assert held["words"] == (
        "new inputs of `forward` run eagerly: the recompile limit of 8 was reached"
    )


def test_a_function_that_was_called_in_a_dispatch_mode_is_named_with_its_step() -> None:
    hit = replace(fallback().figures.log.fallbacks[0], setting=MODE, limit=None)
    one = view(replace(b.WARM.compile, fallbacks=1, skipped=1), fallbacks=(hit,))
    (rank,) = status(b.snapshot(one))["runs"][0]["ranks"]
    (held,) = rank["conditions"]
    assert held["words"].startswith("calls of `forward`")
    assert held["words"].endswith("run eagerly since step 13: " + words(MODE, "").split(": ")[1])
    assert held["advice"].endswith(REMEDIES[MODE])
    # if that was its first call, no other reason is most likely
    assert never_compiled(one.figures)[1] == "its first call was in a TorchDispatchMode"
    assert remedy_of_never_compiled(one.figures) == REMEDIES[MODE]


def test_a_model_made_again_for_each_trial_needs_no_higher_limit() -> None:
    hit = fallback().figures.log.fallbacks[0]
    again = replace(hit, category="new_instance", variants=1, variants_of="modules", anew=True)
    made = view(replace(b.WARM.compile, fallbacks=1), fallbacks=(again,))
    (rank,) = status(b.snapshot(made))["runs"][0]["ranks"]
    (held,) = rank["conditions"]
    assert held["words"].endswith("; its model was created again")
    assert held["advice"] == MADE_ANEW
