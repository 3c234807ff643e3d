"""Figures of a rank's speed and memory."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from warmwatch.shared.states import LIMITS, State
from warmwatch_monitor.figures.declared import Epoch, Number, Seconds, figure

# figures that several types share
AgentErrors = Annotated[
    int | None,
    figure("agent_errors_total", text="Errors of the agent itself, which it caught."),
]
JournalUnread = Annotated[
    int | None,
    figure(
        "journal_unread_bytes",
        text="Bytes of the rank's journal that the monitor has not read yet, or skips because it "
        "is too long. Unless it is 0, the lists of compilations, recompiles, graph breaks and "
        "functions, and sums over them, are incomplete.",
    ),
]


RankState = Annotated[
    State,
    figure(
        "state", label="state", values=[item.value for item in State], text="The state of the rank."
    ),
]
CleanSteps = Annotated[
    int,
    figure("clean_steps", text="Steps in a row without compile activity, up to now."),
]
OutOfMemory = Annotated[
    bool | None,
    figure(
        "oom_killed",
        text="Whether the kernel killed the lost rank because memory ran out; absent if unknown.",
    ),
]
EndedTogether = Annotated[
    bool | None,
    figure(
        "run_ended_together",
        text="Whether all ranks of the run that this host has ended within seconds; absent where "
        "none has, with one rank, and where that is not known.",
    ),
]


class Place(Struct, frozen=True, kw_only=True):
    """A line of code."""

    name: str
    """Name of its function."""
    file: str
    """Base name of its file."""
    line: int
    """Number of the line."""


class Slower(Struct, frozen=True, kw_only=True):
    """How a rank is slower than it was since its warm-up."""

    ratio: Annotated[Number, figure("slower_ratio")]
    """How many times as long a step takes as at the level before the change; absent unless that has
    lasted at 1.5 or more.
    """
    seconds: Seconds
    """Length of a step now."""
    before: Annotated[Seconds, figure("slower_before_seconds")]
    """Length of a step at the level before the change; absent unless the rank is slower now."""
    since_step: int | None = None
    """Last step at the speed of `before`; null if the monitor did not see the change."""
    causes: tuple[str, ...] | None = ()
    """What differs from that time, as far as it is measured; empty: no known cause. Null if not
    measured: no daemon polled before the change, or the answer comes from Prometheus.
    """


class SlowerPeriod(Struct, frozen=True, kw_only=True):
    """A time in which a rank was slower than before."""

    began_at: Epoch | None = None
    """When it began; null if the monitor did not see the change."""
    ended_at: Epoch | None = None
    """When it ended; null while it lasts."""
    since_step: int | None = None
    """The last step before it; null if the monitor did not see the change."""
    until_step: int | None = None
    """Its last step; null while it lasts."""
    seconds: Seconds
    """Mean length of the clean steps in it."""
    before: Seconds
    """Length of a step at the level before the change."""
    ratio: Number
    """`seconds` divided by `before`."""
    causes: tuple[str, ...] | None = None
    """Its last known causes; empty: none was known. Null if not measured: no daemon polled before
    it.
    """


class MemoryGrowth(Struct, frozen=True, kw_only=True):
    """How memory grows while a rank trains."""

    of: Literal["host", "gpu"]
    """Private memory of the process, or memory in use on its GPUs."""
    bytes_per_second: Number
    """How fast it grows."""
    bytes_per_step: Number
    """How much a step adds."""
    since_step: int
    """Where the growth began, as far as the monitor followed it."""
    grown_bytes: int
    """How much it has grown since then."""
    left_seconds: Number | None = None
    """Until the memory of the machine, its cgroup or the GPUs is used up; null if not known."""
    recompiled: tuple[str, ...] = ()
    """Functions that compiled when the growth began."""


class WorkersMemory(Struct, frozen=True, kw_only=True):
    """Compile workers while nearly all memory is used."""

    workers: int
    """Number of compile workers."""
    workers_bytes: int
    """Their memory; shared pages count once."""
    used_bytes: int
    """Used memory of the machine or the cgroup, without pages of files that can be dropped."""
    limit_bytes: int
    """The limit of that memory."""
    cgroup: bool
    """Whether a cgroup sets the limit."""


class LimitedBy(Struct, frozen=True, kw_only=True):
    """What limits the speed of a rank that is warm or eager."""

    verdict: Annotated[
        str,
        Meta(extra_json_schema={"enum": list(LIMITS)}),
        figure("limited_by", label="limit", values=LIMITS),
    ]
    """What limits the speed of a rank that is warm or eager; absent if that is unknown. `input`:
    waiting for batches. `host`: gaps between kernels. `compute`, `memory`: arithmetic or bandwidth
    of the GPU. `communication`: collectives. `throttled`: reduced clocks. `shared`: other programs,
    or too few CPUs. `saving`, `evaluation`: time between steps. `waiting`: neither its processes
    nor its GPUs work, and no batch is awaited.
    """
    share: Annotated[Number | None, figure("limited_share_ratio")] = None
    """Share of the time that the limit takes, 0 to 1; absent where only the limit is known."""
    contended: Annotated[str, Meta(extra_json_schema={"enum": ["gpu", "cpu"]})] | None = None
    """What is `shared`: `gpu` or `cpu`; null for other limits, or if that is not known."""
    evidence: tuple[str, ...] = ()
    """The figures behind it, the most important first."""

    @property
    def ends(self) -> bool:
        """Whether something else than the training limits its speed, which is another one then."""
        return self.verdict in ("shared", "throttled")

    @property
    def subject(self) -> str:
        """The limit as a noun."""
        if self.verdict != "shared":
            return self.verdict
        return " ".join(filter(None, [(self.contended or "").upper(), "contention"]))


class Spread(Struct, frozen=True, kw_only=True):
    """Minimum and maximum of a figure over the ranks."""

    min: Number
    """The least value."""
    min_rank: int
    """The rank with this value."""
    max: Number
    """The greatest value."""
    max_rank: int
    """The rank with this value."""


def spread_of(values: Mapping[int, float | None]) -> Spread | None:
    """The spread of values by rank; ``None`` if fewer than two ranks have one."""
    pairs = [(value, rank) for rank, value in values.items() if value is not None]
    if len(pairs) < 2:
        return None
    (least, least_rank), (greatest, greatest_rank) = min(pairs), max(pairs)
    return Spread(min=least, min_rank=least_rank, max=greatest, max_rank=greatest_rank)
