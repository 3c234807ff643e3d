"""A run as it is stored in the history: what it was, what its ranks did, and when.

Made from a Snapshot (``history/summaries.py``) and read again from the history. Reports,
comparisons, exports and estimates use nothing else. All times are seconds since the epoch;
``None`` is "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from warmwatch_monitor.figures.compile import CompileTarget
from warmwatch_monitor.model.journal import TracedPlace, Wrapping
from warmwatch_monitor.model.records import Death, Outside

FARTHEST = 2**37  # seconds: every calendar can show this date
Epoch = Annotated[float, Meta(ge=0, le=FARTHEST)]

OUT_OF_SIGHT = 150.0  # seconds: a daemon writes what lives once a minute


class Provenance(Struct, frozen=True, kw_only=True):
    """Provenance of a run: enough to judge comparability, never arguments or environment."""

    script: str | None = None
    """Base name of the script."""
    unnumbered: str | None = None
    """The run's name without the number that it got because another run had that name; null if it
    got none."""
    commit: str | None = None
    """Commit of the git work tree of the script."""
    code: str | None = None
    """Hash of the code of all compiled functions."""
    python: str | None = None
    """Version of Python."""
    torch: str | None = None
    """Version of PyTorch."""
    cuda: str | None = None
    """Version of CUDA that PyTorch was built for."""
    triton: str | None = None
    """Version of Triton."""
    driver: str | None = None
    """Version of the NVIDIA driver."""
    gpus: tuple[str, ...] = ()
    """Model of each GPU that was used."""
    launcher: str | None = None
    """What launched it, such as `torchrun` or `slurm`."""
    world_size: int | None = None
    """Number of ranks."""
    wrappings: tuple[Wrapping, ...] = ()
    """How `torch.compile` was called."""
    disabled: str | None = None
    """What turned compilation off; null if nothing did."""
    caches: Mapping[str, str] = field(default_factory=dict)
    """`cold` or `warm` at the start of the run, by compile cache (`inductor`, `triton`)."""
    compile_threads: int | None = None
    """Compile workers that Inductor may use."""
    tokens_per_step: int | None = None
    """As set by the user or the framework."""
    samples_per_step: int | None = None
    """As set by the user or the framework."""


class Compiled(CompileTarget, frozen=True, kw_only=True):
    """One compilation of a rank, or another compiler event of its journal."""

    ended: float
    """When it ended, seconds since the epoch."""
    seconds: float | None = None
    """Compile time; null if PyTorch does not report it."""
    step: int | None = None
    """Number of steps completed before it: it was in step `step` + 1."""
    id: str | None = None
    """PyTorch's compile id, such as `0/1`."""
    kind: str = "other"
    """Such as `forward`."""
    code: str | None = None
    """Hash of the function's code."""
    evaluating: bool = False
    """Whether it was in an evaluation, so between steps."""
    at_limit: bool = False
    """Whether its function had reached the recompile limit: nothing was compiled."""
    in_a_row: int = 0
    """For how many steps in a row its function had compiled again, this one included."""
    cache: str | None = None
    """`hit` or `miss` in a compile cache; null if there was no lookup."""
    failure: str | None = None
    """Type of the exception; null if it succeeded."""
    failure_reason: str | None = None
    """Why it failed, as PyTorch reports it."""
    failure_hint: str | None = None
    """What PyTorch says that helps."""
    failed_at: TracedPlace | None = None
    """The traced line that failed; null if not known."""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    """Exclusive seconds by phase."""
    ops: int | None = None
    """Operators in the graph."""
    kernels: int | None = None
    """Number of kernels compiled."""
    slowest_kernels: tuple[tuple[str, float], ...] = ()
    """Names and seconds of the slowest kernels. PyTorch compiles several at a time."""


class Samples(Struct, frozen=True, kw_only=True):
    """Time series that a daemon recorded: columns of equal length; ``None`` is "not known".

    ``epochs``: of each row; ``seconds``: what a row spans, more for a long run.
    ``columns``: as ``last_hour/ring.py`` has them (``steps``, ``step_seconds``,
    ``compile_seconds``, ``state``, ``phase`` of a rank; ``utilization_ratio``, ``power_watts``,
    ``memory_used_bytes`` of a GPU), states and phases by name.
    """

    seconds: float
    epochs: tuple[float, ...]
    columns: Mapping[str, tuple[float | str | None, ...]]


class RankSummary(Struct, frozen=True, kw_only=True):
    """One rank.

    ``answer``: its part of ``/status`` when it was last looked at, schema version 1. ``compiled``:
    all compilations of its journal, in order. ``left_out``: how many others there were,
    beyond the limits of the journal or the history. ``samples``: ``None`` without a daemon.
    ``first_step_bytes``: the most that CUDA's allocator had handed out when the first step ended.
    ``death``, ``outside``: the signal that killed it, and builds below it, if a daemon saw them.
    """

    rank: int
    answer: Mapping[str, Any]
    compiled: tuple[Compiled, ...] = ()
    left_out: int = 0
    samples: Samples | None = None
    first_step_bytes: int | None = None
    death: Death | None = None
    outside: Outside | None = None


class RunSummary(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        id: short, of letters and digits; one id per start of a run, for every writer.
        run: its name, as the reader's own user has it. owner, host: whose, and where.
        began: when its first rank attached. ended: when its last one did; ``None`` while it lives
        or if that is not known. seen: at the last poll, or its last recorded event if it has ended
        and that end is not known. state: the run's.
        summary: the run's sentence then. what: its provenance.
        start: of which launch it is; its run name can change while it runs.
        gpu_samples: by uuid, of the GPUs that it used.
    """

    id: str
    run: str
    owner: str | None = None
    host: str | None = None
    began: Epoch
    ended: Epoch | None = None
    seen: Epoch
    state: str
    summary: str = ""
    what: Provenance = Provenance()
    ranks: tuple[RankSummary, ...] = ()
    gpu_samples: Mapping[str, Samples] = field(default_factory=dict)
    start: str | None = None


def slowest_of(summary: RunSummary) -> RankSummary:
    """The rank that compiled longest: the others waited for it. The first, if none compiled."""
    return max(summary.ranks, key=lambda rank: (rank.answer["compile"]["seconds"], -rank.rank))
