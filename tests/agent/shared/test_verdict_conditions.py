"""Conditions just within and just beyond their limits."""

from __future__ import annotations

import pytest

from support.facts import AT, MINUTE, compiled, facts
from support.ranks import SECOND, K
from warmwatch.shared import verdict
from warmwatch.shared.record import KINDS, PHASES, StepCounts, Warmup
from warmwatch.shared.verdict import judge

FORWARD = (1, *[0] * (len(KINDS) - 1))


def in_phase(phase: str) -> tuple[int, ...]:
    """A second in that one of PHASES."""
    return tuple(SECOND if name == phase else 0 for name in PHASES)


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ({"compilations": FORWARD}, True),
        ({"compilations": FORWARD, "clean_after": 20 - K}, True),
        ({"compilations": FORWARD, "clean_after": 20 - K + 1}, False),
        ({"compilations": FORWARD, "begun": 2}, False),
        ({"compilations": FORWARD, "graphs": 1}, False),
        ({"compilations": FORWARD, "graphs_before": 1}, False),
        ({"compilations": FORWARD, "graphs": 1, "graphs_before": 1}, False),
        ({"compilations": (0, *FORWARD[:-1])}, False),
        ({}, False),
    ],
    ids=[
        "no graph of any frame",
        "after K clean steps",
        "not yet",
        "it compiles again",
        "it captured one",
        "one was captured before it was attached",
        "both",
        "only backward passes were reported",
        "no compilation was reported",
    ],
)
def test_nothing_was_captured_if_frames_were_traced_and_none_became_a_graph(
    counts: dict[str, object], holds: bool
) -> None:
    judged = judge(facts(compile=compiled(**counts)), AT)
    assert ("nothing_captured" in judged.conditions) is holds


REQUESTED: dict[str, object] = {
    "wrappers": 1,
    "requested_at": 1,
    "begun": 0,
    "activities_seen": 0,
}


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ({}, True),
        ({"clean_after": 20 - K}, True),
        ({"clean_after": 20 - K + 1}, False),
        ({"wrappers": 0}, False),
        ({"requested_at": 0}, False),
        ({"requested_at": 20 - K + 1}, True),
        ({"requested_at": 20 - K + 2}, False),
        ({"disabled": 1}, False),
        ({"active_since_ns": AT}, False),
        ({"compilations": FORWARD}, False),
        ({"compilations": (0, *FORWARD[:-1])}, True),
        ({"graphs": 1}, False),
        ({"graphs_before": 1}, False),
        ({"graphs": 1, "graphs_before": 1}, False),
        ({"phase_ns": in_phase("dynamo")}, False),
        ({"phase_ns": in_phase("other")}, False),
        ({"phase_ns": in_phase("kernel_compile")}, True),
    ],
    ids=[
        "requested",
        "after K clean steps",
        "not yet",
        "not requested",
        "only functions",
        "requested K steps ago",
        "requested late",
        "turned off",
        "it compiles now",
        "a frame was traced",
        "another compiler was reported",
        "it captured a graph",
        "one was captured before it was attached",
        "both",
        "Dynamo worked",
        "an unknown compiler worked",
        "another compiler worked",
    ],
)
def test_a_requested_compilation_never_happened_if_dynamo_did_nothing(
    counts: dict[str, object], holds: bool
) -> None:
    judged = judge(facts(compile=compiled(**{**REQUESTED, **counts})), AT)
    assert ("never_compiled" in judged.conditions) is holds


@pytest.mark.parametrize(
    ("earlier", "took", "holds"),
    [
        ((), 1000, False),
        ((40,), 80, True),
        ((40,), 79, False),
        ((20, 40), 80, True),
        ((20, 40), 79, False),
        ((60, 50, 40), 90, True),
        ((60, 50, 40), 89, False),
        ((10,), 40, True),
        ((10,), 39, False),
    ],
    ids=[
        "nothing came before",
        "twice as long",
        "less than that",
        "twice the longest of two",
        "less than that of two",
        "half as long again as the longest of three",
        "less than that of three",
        "half a minute more",
        "less than half a minute more",
    ],
)
def test_a_first_warm_up_far_longer_than_every_earlier_one_is_slower(
    earlier: tuple[int, ...], took: int, holds: bool
) -> None:
    """Its own length decides, not that of later ones, and only once it has ended."""
    counts = compiled(
        warmups=2,
        first_warmup=Warmup(began_ns=AT, ended_ns=AT + took * SECOND),
        last_warmup=Warmup(began_ns=AT, ended_ns=AT + SECOND),
    )
    before = tuple(seconds * SECOND for seconds in earlier)
    judged = judge(facts(compile=counts, earlier_warmups_ns=before), AT)
    assert ("slower_than_before" in judged.conditions) is holds
    first = facts(compile=counts._replace(warmups=0), earlier_warmups_ns=before)
    assert "slower_than_before" not in judge(first, AT).conditions


@pytest.mark.parametrize(
    ("count", "condition"),
    [
        ("fallbacks", "fallback"),
        ("asynchronous", "unknown"),
    ],
)
def test_one_event_is_enough_for_its_condition_and_for_no_other(count: str, condition: str) -> None:
    assert judge(facts(compile=compiled(**{count: 1})), AT).conditions == (condition,)
    assert judge(facts(compile=compiled()), AT).conditions == ()


def test_cuda_graphs_are_left_out_only_where_there_is_cuda() -> None:
    """PyTorch counts them on a CPU as well. It has no memory of CUDA to read there."""
    skipped = compiled(cudagraph_skips=1)
    assert judge(facts(compile=skipped), AT).conditions == ()
    on_gpu = skipped._replace(memory_ns=AT)
    assert judge(facts(compile=on_gpu), AT).conditions == ("cudagraph_skipped",)


@pytest.mark.parametrize(
    ("touched", "holds"),
    [
        ((13, 14, 17), True),
        ((13, 14, 16), False),
        ((11, 15, 16), True),
        ((11, 14, 15), False),
        ((13, 16, 17), True),
    ],
    ids=["as many clean", "one more", "as long as between", "longer", "once more"],
)
def test_thrashing_ends_when_no_step_compiles(touched: tuple[int, ...], holds: bool) -> None:
    """Of 20 steps, with 3 clean ones to be warm; not while it has never been warm."""
    first = Warmup(began_ns=AT, ended_ns=AT, steps=3)
    counts = compiled(touched_steps=(*reversed(touched), *[0] * 7), warmups=1, first_warmup=first)
    assert ("thrashing" in judge(facts(compile=counts), AT).conditions) is holds
    never = counts._replace(warmups=0, first_warmup=Warmup())
    assert "thrashing" not in judge(facts(compile=never), AT).conditions


@pytest.mark.parametrize(("touched", "holds"), [((11, 12, 20), True), ((10, 12, 20), False)])
def test_thrashing_counts_only_the_last_ten_steps(touched: tuple[int, ...], holds: bool) -> None:
    counts = compiled(touched_steps=(*reversed(touched), *[0] * 7), warmups=1)
    assert ("thrashing" in judge(facts(compile=counts), AT).conditions) is holds
    recent = verdict.recently_touched(StepCounts(steps=20), counts)
    assert recent == tuple(step for step in reversed(touched) if step > 10)


def test_empty_places_of_early_steps_do_not_count_as_touched() -> None:
    """A rank of two steps has eight empty places in its list."""
    counts = compiled(touched_steps=(2, 1, *[0] * 8))
    assert verdict.recently_touched(StepCounts(steps=2), counts) == (2, 1)


def test_without_a_limit_no_compilation_takes_too_long() -> None:
    assert verdict.compile_limit_ns(facts(long_compile_ns=0)) is None
    long = facts(long_compile_ns=0, compile=compiled(begun=2, active_since_ns=AT))
    assert "long_compile" not in judge(long, AT + 10_000 * MINUTE).conditions


@pytest.mark.parametrize(
    ("row", "at", "holds"),
    [(3, 20, True), (2, 20, False), (3, 18, True), (3, 17, False), (9, 21, True)],
    ids=["three", "two", "two clean steps since", "three clean steps since", "in this step"],
)
@pytest.mark.parametrize("warmups", [0, 1])
def test_a_function_that_compiles_in_every_step_thrashes_at_any_time(
    row: int, at: int, holds: bool, warmups: int
) -> None:
    """Of 20 steps, with 3 clean ones to be warm."""
    counts = compiled(repeated=row, repeated_step=at, warmups=warmups)
    assert ("thrashing" in judge(facts(compile=counts), AT).conditions) is holds
    assert verdict.repeats(StepCounts(steps=20), counts, 3) is holds
