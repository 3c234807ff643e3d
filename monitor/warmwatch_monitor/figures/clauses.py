"""The clauses of an answer: what ``/status`` shows of each."""

from enum import Enum

from msgspec import Struct


class Kind(str, Enum):
    """What a clause is about, the most important first; equal ones stay in input order."""

    STATE = "state"  # how the sentence begins
    LOSS = "loss"  # lost ranks, a collective near its timeout
    WAIT = "wait"  # what the run waits for, and how long; its speed
    REASON = "reason"  # why it is in this state
    ATTENTION = "attention"  # a condition that needs attention
    NOTE = "note"  # other conditions, differences between ranks
    LIMIT = "limit"  # what limits its speed
    CONTEXT = "context"  # the machine: GPUs, compile workers, load
    REMEDY = "remedy"  # what to do; never in the headline


class AnswerClause(Struct, frozen=True, kw_only=True):
    """One fact of an answer, in words."""

    kind: Kind
    """What it is about: `state`, `loss` (lost ranks, a collective near its timeout), `wait` (what
    the run waits for, its speed), `reason` (of the state), `attention` (a condition that needs it),
    `note`, `limit` (of the speed), `context` (the machine), `remedy` (what to do).
    """
    short: str
    """As much of it as `summary` has; empty if none."""
    text: str
    """All of it."""
