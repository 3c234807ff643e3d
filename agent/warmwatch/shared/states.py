"""The states of a rank: names, which have ended, which is the least advanced. Pure.

Separate from the verdict, so that a client that only reads answers loads no more.
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


# Conditions add to a state for as long as they hold; the names are public.
#   thrashing  3 or more of the last 10 steps held compile activity
#   fallback   a frame hit the recompile limit: its new inputs run eagerly
#   unknown    code compiles in the background without events: its end cannot be seen
#   nothing_captured  Dynamo looked at frames and captured no graph: a warm rank runs eagerly
#   long_compile  an activity takes far longer than any earlier one explains: it may hang
#   never_compiled    torch.compile was called, is not turned off, and nothing has compiled
#   cudagraph_skipped  requested CUDA graphs were skipped
#   slower_than_before  the first warm-up took far longer than those of comparable earlier runs
#   uncompiled_calls  a stance ran calls eagerly, or refused them, in the last 10 steps
#   background  another thread compiles while steps complete; they do not wait for it
#   slower     for a while now, steps take at least 1.5 times as long as they did since the warm-up
#   silent     no step for ten usual ones and 3 s, though nothing compiles, saves or evaluates
#   memory_growing  memory has grown steadily for a while, and does not level out
#   workers_memory  nearly all memory is used, and compile workers hold much of it
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
    "memory_growing",
    "workers_memory",
)
# What can limit the speed of a rank that is warm or eager; the names are public.
#   input, host, compute, memory, communication: what the step waits for
#   throttled  reduced GPU clocks; shared: other programs on its GPU or its CPUs
#   saving, evaluation: time between steps
LIMITS = (
    "input",
    "host",
    "compute",
    "memory",
    "communication",
    "throttled",
    "shared",
    "saving",
    "evaluation",
)
NEEDS_A_PERSON = frozenset({"nothing_captured", "long_compile", "never_compiled"})
MAY_NEVER_END = frozenset({"long_compile"})  # a waiting client is notified, and may stop

ENDED = frozenset({State.FINISHED, State.FAILED, State.LOST})
ENDED_STATES = frozenset(state.value for state in ENDED)  # by their public names
WARM = frozenset({State.WARM, State.EAGER})

# From least to most advanced. A run's state is that of its least advanced living rank. A rank that
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
    """A run's state from its ranks': the least advanced living one, else the most severe end.

    Raises:
        ValueError: a run has at least one rank.
    """
    present = set(states)
    for state in (*_ADVANCEMENT, *_ENDED_GRAVITY):
        if state in present:
            return state
    raise ValueError("a run has at least one rank; none was given")
