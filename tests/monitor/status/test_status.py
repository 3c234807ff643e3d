"""/status: the contract's keys and shapes, and what each figure means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.record import REASONS, Slot
from warmwatch_monitor.model.journal import Compilation
from warmwatch_monitor.model.snapshot import RankView
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


def test_compile_figures_equal_those_of_the_record() -> None:
    compile = of_slot(b.WARMING)["compile"]
    assert compile["seconds"] == pytest.approx(113.2)
    assert compile["phase_seconds"] == pytest.approx({"dynamo": 3.1, "inductor": 110.1})
    assert (compile["compilations"], compile["cache_misses"]) == (2, 2)


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


def test_advice_is_one_sentence_for_categories_of_the_closed_list_only() -> None:
    assert ADVICE.keys() <= set(REASONS)
    assert all(text.endswith(".") and ". " not in text for text in ADVICE.values())


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
