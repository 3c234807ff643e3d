"""``long_compile``: an activity in progress that nothing before explains."""

from __future__ import annotations

import pytest

from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch.shared.verdict import Facts, compile_limit_ns, judge

SECOND = 10**9
MINUTE = 60 * SECOND
AT = 100_000 * SECOND


def rank(*, warmups: int = 0, longest: int = 0, active: int = AT, **others: object) -> Facts:
    """A rank that has been compiling since AT."""
    counts = CompileCounts(
        begun=3,
        ended=2,
        active_since_ns=active,
        active_phase=3,
        warmups=warmups,
        longest_activity_ns=longest,
    )
    known: dict[str, object] = {"attached_ns": 1, "warm_steps": 3, "steps": StepCounts(), **others}
    return Facts(compile=counts, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        (rank(), 60 * MINUTE),
        (rank(longest=2 * MINUTE), 60 * MINUTE),
        (rank(longest=2 * MINUTE, warmups=1), 10 * MINUTE),
        (rank(longest=2 * SECOND, warmups=1), 5 * MINUTE),
        (rank(peers_longest_ns=3 * MINUTE), 15 * MINUTE),
        (rank(longest=2 * MINUTE, warmups=1, peers_longest_ns=3 * MINUTE), 15 * MINUTE),
        (rank(longest=20 * MINUTE, warmups=1), 60 * MINUTE),
        (rank(long_compile_ns=7 * SECOND), 7 * SECOND),
        (rank(longest=2 * SECOND, warmups=1, long_compile_ns=7 * SECOND), 7 * SECOND),
    ],
    ids=[
        "a first compilation has the absolute limit",
        "one first warm-up does not predict another",
        "five times its own",
        "at least five minutes",
        "five times its peers'",
        "the longer of both",
        "never more than the absolute limit",
        "which is a setting",
        "the setting applies after any warm-up",
    ],
)
def test_an_activity_is_long_once_its_limit_is_over(facts: Facts, limit: int) -> None:
    assert compile_limit_ns(facts) == limit
    assert judge(facts, AT + limit).conditions == ()
    assert judge(facts, AT + limit + 1).conditions == ("long_compile",)


def test_it_never_holds_without_compilation_after_the_end_or_if_off() -> None:
    for_ages = AT + 10**6 * SECOND
    assert judge(rank(active=0), for_ages).conditions == ()
    assert judge(rank(alive=False, gone_ns=for_ages), for_ages).conditions == ()
    assert judge(rank(long_compile_ns=0), for_ages).conditions == ()
    assert compile_limit_ns(rank(long_compile_ns=0)) is None
