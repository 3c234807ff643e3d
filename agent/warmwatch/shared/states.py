"""The states of a rank: names, which have ended, which is the least advanced. Pure.

Separate from the verdict, so that a client that only reads answers loads no more. The meanings,
which Python drops, are the tables of ``docs/reference/states.md``.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TypedDict


class State(str, Enum):
    """What a rank is doing; the value is the public name."""

    STARTING = "starting"
    """attached; no step or compile activity yet"""
    COMPILING = "compiling"
    """the compiler works; never been warm"""
    WARMING = "warming"
    """fewer than 3 clean steps since compile activity"""
    WARM = "warm"
    """3 clean steps, and nothing compiled since: the real speed"""
    EAGER = "eager"
    """3 steps without any compile activity: the real speed"""
    RECOMPILING = "recompiling"
    """was warm; compiles again, or fewer than 3 clean steps since"""
    STALLED = "stalled"
    """alive, but no step for unusually long, for no known reason"""
    FINISHED = "finished"
    """exited normally or was interrupted"""
    FAILED = "failed"
    """exited with an error"""
    LOST = "lost"
    """killed, or disappeared without an exit record"""


class Conditions(TypedDict):
    """What adds to a state for as long as it holds; the names are public."""

    thrashing: bool
    """3 or more of the last 10 steps compiled after the first warm-up, or one function compiled
    again in 3 steps in a row, at any time"""
    fallback: bool
    """calls of a function run eagerly: it hit the recompile limit, or calls `flex_attention`
    uncompiled"""
    unknown: bool
    """code was compiled ahead or elsewhere, and its end cannot be observed"""
    nothing_captured: bool
    """Dynamo captured no graph: the training runs at eager speed"""
    long_compile: bool
    """a compilation takes far longer than any before explains: it may hang
    (docs/how-to/debug-a-hang.md)"""
    never_compiled: bool
    """`torch.compile` was called with what each step calls, and nothing has compiled
    (docs/how-to/requested-but-not-compiled.md)"""
    cudagraph_skipped: bool
    """CUDA graphs were requested and skipped"""
    slower_than_before: bool
    """the first warm-up took far longer than those of earlier runs like it
    (docs/reference/estimates.md)"""
    background: bool
    """another thread compiles while steps complete"""
    uncompiled_calls: bool
    """a stance ran or refused calls, or was `eager_on_recompile`, in the last 10 steps"""
    silent: bool
    """no step for ten usual ones and 3 s, and nothing explains it
    (docs/reference/speed.md#silence)"""
    slower: bool
    """steps take at least 1.5 times as long as before, and that lasts
    (docs/reference/speed.md#slower-than-it-was)"""
    memory_growing: bool
    """memory has grown steadily since the warm-up and does not level out
    (docs/reference/states.md#memory)"""
    workers_compile: bool
    """workers of a `DataLoader` compile, or new ones compile again what earlier ones had compiled
    (docs/reference/compilers.md#workers-of-a-dataloader)"""
    workers_memory: bool
    """90 % of the memory is used, and compile workers hold a tenth of it or more
    (docs/reference/states.md#memory)"""
    exiting: bool
    """its program has ended, and the process still exits: no step follows"""


CONDITIONS = tuple(Conditions.__annotations__)
# What can limit the speed of a rank that is warm or eager; the names are public.
#   input, host, compute, memory, communication: what the step waits for
#   throttled  reduced GPU clocks; shared: other programs on its GPU or its CPUs
#   saving, evaluation: time between steps
#   waiting    neither its processes nor its GPUs work, and no batch is awaited
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
    "waiting",
)
NEEDS_ATTENTION = frozenset({"nothing_captured", "long_compile", "never_compiled"})
MAY_NEVER_END = frozenset({"long_compile"})  # a waiting client is notified, and may stop

# A rank that marks no step for this long may wait for background compilation.
HELD_UP_FLOOR_NS = 3 * 10**9

ENDED = frozenset({State.FINISHED, State.FAILED, State.LOST})
ENDED_STATES = frozenset(state.value for state in ENDED)  # by their public names
FINISHED_SO = ("interrupted", "detached")  # ends in the state ``finished``, shown instead of it
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
