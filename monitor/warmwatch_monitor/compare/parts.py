"""The parts of a comparison; ``warmwatch compare --json`` is this, key by key. Pure.

An ``uncertainty`` is half the width of a 95 % interval, see ``uncertain``; ``None`` is "not known",
and what was measured once has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

SCHEMA_VERSION = 1
EAGER = "eager"  # beside the modes of torch.compile


class Measured(Struct, frozen=True, kw_only=True):
    """A value, and how far it may be off."""

    value: float
    uncertainty: float | None = None


class Side(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        label: what it is called here. mode: how ``torch.compile`` was called, or ``eager``;
        ``None`` where it has neither compiled nor made a step.
        first_step_memory_bytes: the most that CUDA's allocator had handed out by its end.
        compiled_memory_bytes: what CUDA's allocator held when a compilation had ended, the most of
        them: a backward's ends in the first step, with all that its forward keeps.
        cost_seconds: what the compiler cost: what steps took beyond a steady one, or all compile
        time where that is more; ``None`` where nobody saw it. steady: a clean step. speed_up: of
        it, against the baseline. slower: times in which steps took longer than before, as
        ``/status`` has them.
    """

    id: str
    run: str
    label: str
    state: str
    mode: str | None
    rank: int | None = None
    steps: int = 0
    first_step_seconds: float | None = None
    first_step_memory_bytes: int | None = None
    compiled_memory_bytes: int | None = None
    warmup_seconds: float | None = None
    warmup_steps: int | None = None
    compile_seconds: float = 0.0
    cost_seconds: float | None = None
    gpu_seconds: float | None = None
    joules: float | None = None
    money: float | None = None
    steady: Measured | None = None
    steady_p99_seconds: float | None = None
    clean_steps: int | None = None
    speed_up: Measured | None = None
    tokens_per_second: float | None = None
    peak_memory_bytes: int | None = None
    joules_per_step: float | None = None
    graphs: int | None = None
    recompiles: int | None = None
    graph_breaks: int | None = None
    slower: tuple[Mapping[str, Any], ...] = ()


class Incomparable(Struct, frozen=True, kw_only=True):
    """What is otherwise between runs. ``rows``: of the comparison, which that touches."""

    what: str
    values: tuple[str, ...]
    rows: tuple[str, ...]


class BreakEven(Struct, frozen=True, kw_only=True):
    """When a run has paid back what it cost more than ``against``.

    Attributes:
        cost_seconds: more than the other. saves: of each step. step: from which on it is ahead, or
        of ``ahead_until`` no more; ``None`` where there is none, or nobody can say. earliest,
        latest: where the step lies by the uncertainty of what is saved.
        outcome: ``paid_back``, ``at_once``, ``ahead_until`` (it costs less, and its steps are
        longer), ``never``, ``no_difference`` or ``unknown``.
    """

    run: str
    against: str
    outcome: str
    cost_seconds: float | None = None
    saves: Measured | None = None
    step: int | None = None
    earliest: int | None = None
    latest: int | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """``baseline``: the label of the run that the others are held against."""

    schema_version: int = SCHEMA_VERSION
    baseline: str
    sides: tuple[Side, ...]
    incomparable: tuple[Incomparable, ...] = ()
    unknown: tuple[str, ...] = ()
    break_even: tuple[BreakEven, ...] = ()
