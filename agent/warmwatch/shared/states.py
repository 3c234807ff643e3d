"""The states of a rank: names, which have ended, which is the least advanced. Pure.

Apart from the verdict that decides between them, so that who only reads an answer loads no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class State(str, Enum):
    """What a rank is doing; the value is the public name."""

    STARTING = "starting"
    COMPILING = "compiling"
    WARMING = "warming"
    WARM = "warm"
    EAGER = "eager"
    RECOMPILING = "recompiling"
    STALLED = "stalled"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


# What a state alone does not say, for as long as it holds; the names are public.
#   thrashing  3 or more of the last 10 steps held compile activity
#   fallback   a frame hit the recompile limit: its new inputs run eagerly
#   unknown    code is compiled aside and swapped in with no event: when that ends cannot be seen
#   nothing_captured  Dynamo looked at frames and captured no graph: what is warm runs eagerly
#   long_compile  an activity in progress takes far longer than any before explains: it may hang
#   never_compiled    torch.compile was asked for, is not turned off, and nothing has compiled
#   cudagraph_skipped  CUDA graphs were asked for and left out
#   slower_than_before  the first warm-up took far longer than those of earlier runs like it
#   uncompiled_calls  a stance ran calls eagerly, or refused them, in the last 10 steps
#   background  another thread compiles while steps complete; they do not wait for it
#   slower     for a while now, steps take at least 1.5 times as long as they did since the warm-up
#   silent     no step for ten usual ones and 3 s, though nothing compiles, saves or evaluates
CONDITIONS = (
    "thrashing",
    "fallback",
    "unknown",
    "nothing_captured",
    "long_compile",
    "never_compiled",
    "cudagraph_skipped",
    "slower_than_before",
    "background",
    "uncompiled_calls",
    "silent",
    "slower",
)
NEEDS_A_PERSON = frozenset({"nothing_captured", "long_compile", "never_compiled"})
MAY_NEVER_END = frozenset({"long_compile"})  # so who waits for another state is told, and may leave

ENDED = frozenset({State.FINISHED, State.FAILED, State.LOST})
ENDED_STATES = frozenset(state.value for state in ENDED)  # by their public names
WARM = frozenset({State.WARM, State.EAGER})

# From least to most advanced. A run is where its least advanced living rank is: one that
# recompiles or stalls holds the warm ones back, so both come before them.
_ADVANCEMENT = (
    State.STARTING,
    State.COMPILING,
    State.WARMING,
    State.RECOMPILING,
    State.STALLED,
    State.WARM,
    State.EAGER,
)
_ENDED_GRAVITY = (State.FAILED, State.LOST, State.FINISHED)


def least_advanced(states: Iterable[State]) -> State:
    """A run's state from its ranks': the least advanced living one, else the gravest end.

    Raises:
        ValueError: a run has at least one rank.
    """
    present = set(states)
    for state in (*_ADVANCEMENT, *_ENDED_GRAVITY):
        if state in present:
            return state
    raise ValueError("a run has at least one rank; none was given")
