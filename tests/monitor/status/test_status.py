"""/status: the contract's keys and shapes, and what each figure means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.record import REASONS, CompileCounts, Slot
from warmwatch_monitor.base.errors import UnknownRunError
from warmwatch_monitor.model import Compilation, ProcessReading, RankView, Refusal
from warmwatch_monitor.status.document import chosen, reached
from warmwatch_monitor.status.goals import GOALS, is_reached

STATES = b.in_every_state()


def of_rank(view: RankView) -> dict[str, Any]:
    rank: dict[str, Any] = status(b.snapshot(view))["runs"][0]["ranks"][0]
    return rank


def of_slot(slot: Slot) -> dict[str, Any]:
    return of_rank(b.view(slot))


@pytest.mark.parametrize("state", STATES)
def test_every_state_is_shown_and_serializes_as_strict_json(state: str) -> None:
    answer = status(b.snapshot(STATES[state]))
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert answer["runs"][0]["state"] == answer["runs"][0]["ranks"][0]["state"] == state


def test_the_answer_has_the_fixed_keys_of_the_contract() -> None:
    answer = status(b.snapshot(b.view(b.WARMING)))
    assert answer.keys() >= {
        *("schema_version", "compiling", "warm", "summary", "runs", "gpus", "sources"),
    }
    assert answer["schema_version"] == 1
    assert answer["runs"][0].keys() >= {"run", "state", "compiling", "warm", "summary", "ranks"}
    rank = answer["runs"][0]["ranks"][0]
    assert rank.keys() >= {
        *("rank", "state", "since", "steps", "clean_steps", "compile", "warmup", "step_seconds"),
        *("gpus", "evidence"),
    }
    assert rank["compile"].keys() >= {
        *("phase", "seconds", "phase_seconds", "compilations", "graphs", "recompiles"),
        *("graph_breaks", "cache_hits", "cache_misses", "failures", "last"),
    }


def test_compile_figures_equal_those_of_the_record() -> None:
    compile = of_slot(b.WARMING)["compile"]
    assert compile["seconds"] == pytest.approx(113.2)
    assert compile["phase_seconds"] == pytest.approx({"dynamo": 3.1, "inductor": 110.1})
    assert (compile["compilations"], compile["cache_misses"]) == (2, 2)


def test_activity_in_progress_counts_for_its_phase_until_now() -> None:
    compile = of_slot(b.COMPILING)["compile"]
    assert compile["phase"] == "inductor"
    assert compile["phase_seconds"] == pytest.approx(
        {"dynamo": 2.0, "aot_autograd": 1.0, "inductor": 40.0}
    )
    assert compile["seconds"] == pytest.approx(43.0)


@pytest.mark.parametrize("state", STATES)
def test_phase_seconds_add_up_to_the_compile_seconds(state: str) -> None:
    compile = of_rank(STATES[state])["compile"]
    assert sum(compile["phase_seconds"].values()) == pytest.approx(compile["seconds"])


def test_a_rank_lost_while_compiling_compiled_until_it_was_seen_gone() -> None:
    lost = of_rank(b.view(b.COMPILING, alive=False, gone=10))["compile"]
    assert (lost["phase"], lost["seconds"]) == (None, pytest.approx(33.0))


def test_a_rank_never_seen_alive_has_only_the_compile_time_of_its_record() -> None:
    assert of_rank(b.view(b.COMPILING, alive=False))["compile"]["seconds"] == pytest.approx(3.0)


def test_an_ended_warm_up_has_its_end_length_and_steps() -> None:
    warmup = of_slot(b.WARM)["warmup"]
    figures = {"ended_at": pytest.approx(b.EPOCH - 130), "seconds": 120.0, "steps": 1}
    assert warmup == {"ended": True, **figures, "count": 1, "first": figures}


@pytest.mark.parametrize("state", ["starting", "compiling", "warming", "eager"])
def test_the_figures_of_a_warm_up_are_null_before_it_has_ended(state: str) -> None:
    nothing = {"ended_at": None, "seconds": None, "steps": None}
    warmup = of_rank(STATES[state])["warmup"]
    assert warmup == {"ended": False, **nothing, "count": 0, "first": None}


def test_a_reopened_warm_up_has_no_figures_and_the_first_retains_its_own() -> None:
    warmup = of_slot(b.RECOMPILING)["warmup"]
    assert (warmup["ended"], warmup["seconds"], warmup["count"]) == (False, None, 1)
    assert warmup["first"]["seconds"] == 120.0


def test_the_entry_of_an_earlier_warm_up_is_not_used_for_the_latest() -> None:
    """The record was read between the K-th clean mark and the entry of the ended warm-up."""
    between = replace(b.WARM, compile=replace(b.WARM.compile, last_end_ns=b.ago(2)))
    assert of_slot(between)["state"] == "warm"
    assert of_slot(between)["warmup"]["ended"] is False


def test_unknown_step_lengths_are_null() -> None:
    assert of_slot(b.COMPILING)["step_seconds"] == {
        "first": None,
        "first_at": None,
        "last_at": None,
        "last": None,
        "last_second": None,
        "recent": None,
        "recent_steps": None,
        "settled": None,
        "newest": None,
        "newest_steps": None,
        "trend": None,
        "median": None,
        "p99": None,
        "typical": None,
        "median_low": None,
        "median_high": None,
        "clean_count": 0,
        "clean_seconds": 0.0,
    }


def test_step_lengths_are_within_a_bin_of_the_true_ones() -> None:
    seconds = of_slot(b.WARM)["step_seconds"]
    assert (seconds["first"], seconds["last"]) == (pytest.approx(120.3), 0.036)
    assert seconds["median"] == pytest.approx(0.036, rel=0.05)


def test_since_is_wall_clock_time_and_null_if_unknown() -> None:
    assert of_slot(b.STARTING)["since"] == pytest.approx(b.EPOCH - 4)
    assert of_rank(b.view(b.COMPILING, alive=False))["since"] is None


def test_the_last_five_compilations_are_listed_newest_last_with_advice() -> None:
    compilations = tuple(
        Compilation(
            id=f"0/{n}", kind="forward", at_ns=b.ago(20 - n), category="shape", after_warm=True
        )
        for n in range(7)
    )
    last = of_rank(b.view(b.WARM, compilations=compilations))["compile"]["last"]
    assert [one["id"] for one in last] == ["0/2", "0/3", "0/4", "0/5", "0/6"]
    assert "mark_dynamic" in last[-1]["advice"]
    within = tuple(replace(one, after_warm=False) for one in compilations)
    last = of_rank(b.view(b.WARM, compilations=within))["compile"]["last"]
    assert [one["advice"] for one in last] == [None] * 5, "the first warm-up has to compile"


def test_a_refusal_at_the_recompile_limit_needs_the_remedy_of_a_recompile() -> None:
    """With fullgraph=True it is a failure, too; the remedy of a failure is no longer to compile."""
    failure = "torch._dynamo.exc.FailOnRecompileLimitHit"
    made = replace(b.RECOMPILATION, failure=failure, at_limit=True, after_warm=True)
    (refused,) = of_rank(b.view(b.WARM, compilations=(made,)))["compile"]["last"]
    assert (refused["failure"], refused["at_limit"]) == (failure, True)
    assert "mark_dynamic" in refused["advice"]


def test_the_compilation_with_the_dearest_remedy_comes_before_the_last_ones() -> None:
    known = tuple(Compilation(id=f"0/{n}", kind="forward", at_ns=b.ago(20 - n)) for n in range(7))
    dear = replace(known[0], id="9/0", category="shape", after_warm=True, seconds=30.0)
    for dearest, first in ((dear, "9/0"), (known[6], "0/2"), (None, "0/2")):
        journal = {"dearest": dearest, "dearest_seconds": 90.0}
        view = b.view(b.WARM, compilations=known, journal=journal)
        last = of_rank(view)["compile"]["last"]
        assert last[0]["id"] == first
        assert len(last) == 5 + (dearest is dear)
        assert dearest is not dear or last[0]["total_seconds"] == 90.0


def test_a_first_compile_has_no_advice() -> None:
    first = Compilation(id="0/0", kind="forward", at_ns=b.ago(20))
    last = of_rank(b.view(b.WARM, compilations=(first,)))["compile"]["last"][0]
    assert (last["category"], last["advice"]) == (None, None)


def test_advice_is_one_sentence_for_categories_of_the_closed_list_only() -> None:
    assert ADVICE.keys() <= set(REASONS)
    assert all(text.endswith(".") and ". " not in text for text in ADVICE.values())


def test_the_host_values_are_null_if_the_process_was_not_seen() -> None:
    assert of_slot(b.WARM)["process"] is None
    process = ProcessReading(pid=4711, cpu_seconds=3.5, resident_bytes=10)
    assert of_rank(b.view(b.WARM, process=process))["process"] == {
        "cpu_seconds": 3.5,
        "resident_bytes": 10,
        "cpu_ratio": None,
        "threads": None,
        "workers_busy": None,
        "workers_idle": None,
        "stopped": False,
        "compilers": [],
    }


def test_one_compiling_rank_makes_the_whole_answer_compiling_and_not_warm() -> None:
    ranks = (b.view(b.as_rank(b.WARM, 0, 2)), b.view(b.as_rank(b.RECOMPILING, 1, 2)))
    answer = status(b.snapshot(*ranks))
    assert (answer["compiling"], answer["warm"]) == (True, False)
    assert (answer["runs"][0]["compiling"], answer["runs"][0]["warm"]) == (True, False)


def test_warm_needs_every_living_rank_of_every_run_and_an_ended_one_does_not_count() -> None:
    lost = b.in_every_state("bert")["lost"]
    eager = b.in_every_state("vit")["eager"]
    answer = status(b.snapshot(STATES["warm"], lost, eager))
    assert (answer["compiling"], answer["warm"]) == (False, True)
    answer = status(b.snapshot(STATES["warm"], lost, b.in_every_state("vit")["warming"]))
    assert answer["warm"] is False


@pytest.mark.parametrize("views", [(), (STATES["finished"],)], ids=["no run", "ended run"])
def test_both_booleans_are_null_without_a_live_run(views: tuple[RankView, ...]) -> None:
    answer = status(b.snapshot(*views))
    assert (answer["compiling"], answer["warm"]) == (None, None)


def test_the_answer_of_one_run_contains_only_that_run() -> None:
    both = b.snapshot(STATES["warm"], b.in_every_state("bert")["compiling"])
    answer = status(both, "gpt2")
    assert [run["run"] for run in answer["runs"]] == ["gpt2"]
    assert (answer["compiling"], answer["warm"]) == (False, True)
    assert answer["summary"] == answer["runs"][0]["summary"]


@pytest.mark.parametrize("name", ["x", "None"])
def test_an_unknown_run_is_refused_with_the_known_names(name: str) -> None:
    """A run from Prometheus may have no name of its own; that is not the name None."""
    figures = STATES["warm"].figures
    figures = replace(figures, who=replace(figures.who, name=None))
    with pytest.raises(UnknownRunError, match=rf"no run named '{name}'; runs here: gpt2"):
        status(b.snapshot(replace(STATES["warm"], figures=figures)), name)


def test_directories_and_refusals_are_listed() -> None:
    refusal = Refusal(path="/run/warmwatch/x", reason="torn record")
    answer = status(b.snapshot(refusals=(refusal,)))
    assert answer["directories"] == ["/run/warmwatch"]
    assert answer["refusals"] == [{"path": "/run/warmwatch/x", "reason": "torn record"}]


def test_an_eager_run_reaches_warm_and_no_run_does_not() -> None:
    assert reached(b.snapshot(STATES["eager"]).runs, "warm")
    assert not reached((), "warm")
    assert not reached(b.snapshot(STATES["finished"]).runs, "warm")


@pytest.mark.parametrize("state", STATES)
def test_each_goal_of_a_wait_is_reached_in_these_states(state: str) -> None:
    answer = status(b.snapshot(STATES[state]))
    others = {
        "warm": {"settled"},
        "eager": {"warm", "settled"},
        "finished": {"warm", "settled", "ended"},  # it had been warm
        "failed": {"ended"},
        "lost": {"ended"},
    }
    assert {goal for goal in GOALS if is_reached(answer, goal)} == {state, *others.get(state, ())}


def test_another_state_is_reached_when_the_least_advanced_run_has_it() -> None:
    both = b.snapshot(STATES["warm"], b.in_every_state("bert")["warming"])
    assert reached(both.runs, "warming")
    assert not reached(both.runs, "eager")
    assert not reached(chosen(both, "gpt2"), "warming")


def test_activity_of_an_unknown_phase_is_counted_as_other() -> None:
    counts = CompileCounts(begun=1, active_since_ns=b.ago(5), accounted_ns=b.ago(5))
    compile = of_slot(b.slot(compile=counts))["compile"]
    assert (compile["phase"], compile["phase_seconds"]) == (None, {"other": 5.0})


def test_counts_that_a_torch_lacks_are_null() -> None:
    """Its phases and seconds come from another hook point and are still reported."""
    identity = replace(b.WARM.identity, missing=("compilations", "recompile_limit"))
    whole = of_slot(b.WARM)["compile"]
    less = of_slot(replace(b.WARM, identity=identity))["compile"]
    unknown = {key for key, value in less.items() if value is None and whole[key] is not None}
    assert unknown == {
        *("compilations", "graphs", "graphs_before", "recompiles", "recompiles_after_warm"),
        *("graph_breaks", "new_instances"),
        *("cache_hits", "cache_misses", "caches", "failures", "fallbacks", "cudagraph_skips"),
    }
    assert less["seconds"] == whole["seconds"]
