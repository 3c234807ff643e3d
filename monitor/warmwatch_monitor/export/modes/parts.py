"""The parts of the table of modes; ``warmwatch modes --json`` is :class:`Modes`, key by key. Pure.

``None`` is "not known".
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch_monitor.export.comparison.parts import EAGER, BreakEven, Incomparable, Measured
from warmwatch_monitor.model.account import Account, Wrapping

SCHEMA_VERSION = 1
USUAL = (EAGER, "default", "reduce-overhead", "max-autotune")
NAMES = (*USUAL, "max-autotune-no-cudagraphs")
WITH_CUDA_GRAPHS = frozenset({"reduce-overhead", "max-autotune"})


class Tried(Struct, frozen=True, kw_only=True):
    """How the script was run in one mode, and what became of it.

    Attributes:
        account: of the run that made most steps, as it was when it had told enough; ``None`` where
        none was seen. others: names of further runs that the script made.
        ended_by: ``itself``; or by us: ``steps``, ``steady``, ``timeout``, ``interrupted``.
        code: the script's return code, negative for the signal that killed it, where it ended by
        itself. seconds: from its start to its end. output: the file with what it printed.
    """

    mode: str
    account: Account | None = None
    others: tuple[str, ...] = ()
    ended_by: str = "itself"
    code: int | None = None
    seconds: float = 0.0
    output: str | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One mode.

    Attributes:
        outcome: ``measured``, ``failed`` (by itself), ``unmeasured`` (too few clean steps),
        ``no_steps`` (something was compiled and no step marked) or ``nothing`` (no run was seen).
        id, run, state: of the run in the history. ended_by, code, seconds, output: see Tried.
        exception: the type's name of the one that ended the run.
        first_step_seconds, first_step_memory_bytes, steady, ...: as a comparison's Side has them.
        evaluation_seconds: of one evaluation, on average over so many ``evaluations``.
        speed_up, break_even: against ``Modes.baseline``. against_default: the break-even against
        the default mode, where that is not the baseline.
        total_seconds: what ``Modes.training_steps`` would take, the compile cost included.
        compiled: whether the compiler did anything. wrappings, agent_errors: as they
        are known of its ranks. gpus: how many it used. conditions: by name, in words.
    """

    mode: str
    outcome: str
    id: str | None = None
    run: str | None = None
    state: str | None = None
    ended_by: str = "itself"
    code: int | None = None
    exception: str | None = None
    seconds: float = 0.0
    output: str | None = None
    steps: int = 0
    clean_steps: int | None = None
    first_step_seconds: float | None = None
    first_step_memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    steady: Measured | None = None
    steady_p99_seconds: float | None = None
    speed_up: Measured | None = None
    joules_per_step: float | None = None
    compile_seconds: float = 0.0
    cost_seconds: float | None = None
    evaluations: int | None = None
    evaluation_seconds: float | None = None
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    break_even: BreakEven | None = None
    against_default: BreakEven | None = None
    total_seconds: float | None = None
    compiled: bool = False
    wrappings: tuple[Wrapping, ...] = ()
    agent_errors: int = 0
    gpus: int = 0
    conditions: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    others: tuple[str, ...] = ()

    @property
    def captured(self) -> bool:
        """Whether anything came of the compiler's work, as far as that is counted."""
        return self.compiled and self.graphs != 0


class Modes(Struct, frozen=True, kw_only=True):
    """The whole table.

    Attributes:
        baseline: the mode that the others are held against; ``None`` where nothing was measured.
        training_steps: for which totals are said. caches: ``cold`` or ``kept``.
        imposed: variables of the environment that hold in every mode.
        untried: modes that were asked for and not begun.
    """

    schema_version: int = SCHEMA_VERSION
    rows: tuple[Row, ...]
    baseline: str | None = None
    training_steps: int | None = None
    caches: str = "cold"
    torch: str | None = None
    gpus: tuple[str, ...] = ()
    imposed: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    incomparable: tuple[Incomparable, ...] = ()
