"""The headline always fits 120 characters; the details contain the rest in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.states import ENDED
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.model.journal import Compilation, Fallback, Recompile
from warmwatch_monitor.model.records import VaryingDim
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.summary import (
    LONGEST,
    Clause,
    headline,
    shortened,
)
from warmwatch_monitor.status.words.run import run_answer
from warmwatch_monitor.status.words.sentence import answer

CLAUSES = st.lists(
    st.builds(
        Clause,
        st.text(max_size=150),
        st.sampled_from(Kind),
        st.text(max_size=60),
    ),
    max_size=8,
)
NAMES = st.text(min_size=1, max_size=300)
STATES = sorted(b.in_every_state())


@settings(max_examples=40)  # long texts take long to draw
@given(NAMES, st.text(min_size=1, max_size=300), CLAUSES)
def test_any_clauses_after_any_head_fit(name: str, head: str, clauses: list[Clause]) -> None:
    text = headline(name, Clause(head, Kind.STATE), clauses)
    assert len(text.summary) <= LONGEST
    rest = [one for one in sorted(clauses, key=lambda one: [*Kind].index(one.kind)) if one.text]
    shown = text.summary
    parts = [shortened(name), *(one.short for one in text.clauses if one.short)]
    assert shown == ": ".join(parts[:2]) + "".join(f"; {one}" for one in parts[2:])
    assert [one.kind for one in text.clauses[1:]] == [one.kind for one in rest]
    if shown != f"{shortened(name)}: {head}"[:LONGEST]:
        # what is not in the details is in the summary, in full
        left = list(text.details)
        for one in reversed(rest):
            if left and left[-1] == one.detail:
                left.pop()
            else:
                assert one.text in shown or one.short in shown
        assert left in ([], [head])


def test_a_clause_that_does_not_fit_excludes_less_important_ones() -> None:
    text = headline(
        "gpt2",
        Clause("warm", Kind.STATE),
        [
            Clause("GPU 0 at 99 %", Kind.CONTEXT),
            Clause("a" * 200, Kind.REASON, "b"),
            Clause("rank 1 is lost", Kind.LOSS),
            Clause("call it", Kind.REMEDY),
        ],
    )
    assert b.parts(text) == (
        "gpt2: warm; rank 1 is lost; b",
        ("a" * 200, "GPU 0 at 99 %", "call it"),
    )


def test_advice_is_never_in_the_headline() -> None:
    text = headline("gpt2", Clause("warm", Kind.STATE), [Clause("call it", Kind.REMEDY)])
    assert b.parts(text) == ("gpt2: warm", ("call it",))


def named(view: RankView, run: str, words: str) -> RankView:
    """``view`` with every text that a user chooses, and every clause that hangs on one."""
    made = Compilation(
        id="0/1",
        kind="forward",
        at_ns=b.ago(1),
        reason=f"0/0: tensor '{words}' size mismatch at index 0. expected 16, actual 14",
        category="shape",
        name=words,
        file=words,
        line=31,
    )
    again = Recompile(at_ns=b.ago(2), reason=words, category="shape", name=words, file=words)
    varying = VaryingDim(
        tensor=words,
        dim=0,
        values=(1, 2, 3),
        complete=True,
        lowest=1,
        highest=3,
        seconds=3.0,
        timed=1,
        last_id="0/1",
    )
    old = view.record.slot
    slot = replace(
        old,
        identity=replace(old.identity, run=run, world_size=8),
        compile=replace(
            old.compile, fallbacks=3, asynchronous=1, cudagraph_skips=2, memory_ns=b.NOW
        ),
    )
    fallbacks = (Fallback(at_ns=b.ago(9), step=3, name=words, limit=8),)
    journal = {"recompile": again, "varying": (varying,)}
    return b.view(
        slot,
        alive=view.living,
        gone=None if view.living else 9,
        compilations=(made,),
        fallbacks=fallbacks,
        journal=journal,
        gpus=(b.gpu(0), b.gpu(1)),
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STATES), NAMES), min_size=1, max_size=5), NAMES)
def test_the_headline_of_any_runs_fits(runs: list[tuple[str, str]], words: str) -> None:
    views = [
        named(b.in_every_state()[state], f"{at}{name}", words)
        for at, (state, name) in enumerate(runs)
    ]
    snapshot = b.snapshot(*views)
    for run in snapshot.runs:
        assert len(run_answer(run).summary) <= LONGEST
    text = answer(snapshot)
    assert len(text.summary) <= LONGEST
    made = status(snapshot)
    assert (made["summary"], made["details"]) == (text.summary, list(text.details))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STATES), st.sampled_from("abcdef")), min_size=1))
def test_ended_runs_are_not_in_the_headline_of_live_runs(runs: list[tuple[str, str]]) -> None:
    views = {run: b.in_every_state(f"run-{run}")[state] for state, run in runs}
    snapshot = b.snapshot(*views.values())
    text = answer(snapshot).summary
    living = [run for run in snapshot.runs if run.state not in ENDED]
    for run in snapshot.runs:
        if living and run.state in ENDED:
            assert run.run not in text
            assert any(d.startswith("earlier: ") for d in answer(snapshot).details)
