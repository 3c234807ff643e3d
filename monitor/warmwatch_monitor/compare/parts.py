"""The parts of a comparison; ``warmwatch compare --json`` is this, key by key. Pure.

An ``uncertainty`` is half the width of a 95 % interval, see ``uncertain``; ``None`` is "not known",
and a single measurement has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

SCHEMA_VERSION = 1
EAGER = "eager"  # in addition to the modes of torch.compile


class Measured(Struct, frozen=True, kw_only=True):
    """A value and its uncertainty."""

    value: float
    uncertainty: float | None = None


class Side(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        label: its name in this comparison. mode: how ``torch.compile`` was called, or ``eager``;
        ``None`` if it has neither compiled nor made a step.
        first_step_memory_bytes: the most that CUDA's allocator had handed out by its end.
        compiled_memory_bytes: the most that CUDA's allocator held at the end of a compilation: a
        backward is compiled in the first step, while the activations of its forward are stored.
        cost_seconds: what the compiler cost: what steps took beyond a steady one, or all compile
        time if that is more; ``None`` if not recorded. steady: a clean step. speed_up: of
        it, against the baseline. slower: periods in which steps took longer than before, as
        in ``/status``.
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
    """A difference between runs. ``rows``: the rows of the comparison that it affects."""

    what: str
    values: tuple[str, ...]
    rows: tuple[str, ...]


class BreakEven(Struct, frozen=True, kw_only=True):
    """When a run has recovered its extra cost over ``against``.

    Attributes:
        cost_seconds: extra cost. saves: per step. step: from which on it is ahead, or with
        ``ahead_until`` no longer is; ``None`` if there is none or it is not known. earliest,
        latest: range of the step from the uncertainty of the saving.
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
    """``baseline``: the label of the run that the others are compared with."""

    schema_version: int = SCHEMA_VERSION
    baseline: str
    sides: tuple[Side, ...]
    incomparable: tuple[Incomparable, ...] = ()
    unknown: tuple[str, ...] = ()
    break_even: tuple[BreakEven, ...] = ()
