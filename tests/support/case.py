"""A scenario's two runs side by side, and what follows from the truth alone.

Nothing here asks the agent's verdict: clean steps, warm-ups and conditions are worked out from the
training's own marks and PyTorch's own intervals, by the words of the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from support import truth
from support.poller import INTERVAL_NS, Sample
from support.scenarios import Reference, Scenario, Watched
from support.truth import Interval

# PyTorch takes the end of a compilation before it writes the record of it, which takes a while.
EDGE_NS = 50_000_000
# The optimizer's call ends a moment before the training marks its step; steps are 30 ms and more.
GRACE_NS = 25_000_000
ENDED = ("finished", "failed", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """A warm-up that ended: at the end of its last activity, seen at the K-th clean step."""

    ended: int
    step: int


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario, run both ways. ``intervals``: when PyTorch says that it compiled."""

    scenario: Scenario
    watched: Watched
    reference: Reference
    intervals: list[Interval] = field(init=False)

    def __post_init__(self) -> None:
        told = truth.intervals(self.watched.account)
        if self.watched.trace is not None:
            told = truth.merged(told + truth.monotonic(self.watched.account, self.watched.trace))
        object.__setattr__(self, "intervals", told)

    @property
    def marks(self) -> list[int]:
        return list(self.watched.account["marks"])

    @property
    def activities(self) -> list[Interval]:
        """Compile activity as the record's journal has it."""
        begun = {e["activity"]: e["t"] for e in self.watched.events if e["event"] == "begin"}
        ends = [e for e in self.watched.events if e["event"] == "end"]
        return [(begun[end["activity"]], end["t"]) for end in ends]

    @property
    def recompiles(self) -> list[str]:
        """PyTorch's words for each recompile."""
        told = self.watched.account["compilations"]
        return [one["recompile_reason"].strip() for one in told if one["recompile_reason"]]


def inside(case: Case, sample: Sample) -> bool:
    """Whether PyTorch had compiled for a polling interval and still did when it was looked at."""
    return any(
        start + INTERVAL_NS < sample.before and sample.after < end for start, end in case.intervals
    )


def outside(case: Case, sample: Sample) -> bool:
    """Whether PyTorch compiled nothing within a polling interval of the look."""
    return not any(
        start - INTERVAL_NS < sample.after and sample.before < end + INTERVAL_NS
        for start, end in case.intervals
    )


def false_warm(case: Case) -> list[Sample]:
    """Looks that said warm while PyTorch compiled, or before the K-th clean step."""
    return [
        sample
        for sample in case.watched.samples
        if sample.warm and (inside(case, sample) or not _may_be_warm(case, sample))
    ]


def late_warm(case: Case) -> list[Sample]:
    """Looks that said something else a polling interval after the K-th clean step."""
    return [
        sample
        for sample in case.watched.samples
        if not sample.warm and sample.state not in ENDED and _must_be_warm(case, sample)
    ]


def _may_be_warm(case: Case, sample: Sample) -> bool:
    return _clean(case, sample.after) >= case.watched.slot.header.warm_steps


def _must_be_warm(case: Case, sample: Sample) -> bool:
    earlier = sample.before - INTERVAL_NS
    compiles_soon = any(earlier < end and start < sample.after for start, end in case.intervals)
    due = case.watched.slot.header.warm_steps + max(case.scenario.late_steps, default=0)
    if "unknown" in expected_conditions(case):
        return False
    return not compiles_soon and _clean(case, earlier) >= due


def _clean(case: Case, now: int) -> int:
    """Clean steps in a row, from the training's own marks and PyTorch's own intervals.

    The training marks a step a moment after the optimizer's call returned: hence the grace.
    """
    marks = [mark for mark in case.marks if mark - GRACE_NS <= now]
    ends = [end for start, end in case.intervals if start <= now]
    last = max(ends, default=0)
    after = [mark for mark in marks if mark > last]
    return max(0, len(after) - 1) if ends else len(after)


def expected_warm_ups(case: Case) -> list[WarmUp]:
    """Where warm-ups end by the contract, from marks and intervals alone."""
    if "unknown" in expected_conditions(case):
        return []
    k, found, clean = case.watched.slot.header.warm_steps, [], 0
    last = None
    for number, mark in enumerate(case.marks, 1):
        before = case.marks[number - 2] if number > 1 else 0
        inside = [end for start, end in case.intervals if start < mark and before < end]
        clean = 0 if inside else clean + 1
        last = max(inside, default=last)
        if clean == k and last is not None:
            found.append(WarmUp(ended=last, step=number))
    return found


def seen_warm_ups(case: Case) -> list[WarmUp]:
    """Where the journal says that they ended; the step is the training's, not the agent's."""
    return [
        WarmUp(ended=e["ended"], step=sum(mark - GRACE_NS <= e["t"] for mark in case.marks))
        for e in case.watched.events
        if e["event"] == "warm"
    ]


def seen_states(case: Case) -> tuple[str, ...]:
    """The states sampled, each change once, without ``starting`` and the end.

    Before a rank is warm the compiler comes and goes; of that ``compiling`` and ``warming`` are
    named once each, and a pause before the first step, which few looks fall into, not at all.
    """
    seen: list[str] = []
    unsettled: set[str] = set()
    for sample in case.watched.samples:
        state = sample.state
        pause = state == "warming" and not sample.steps
        if state in (*ENDED, "starting") or pause or state in seen[-1:] or state in unsettled:
            continue
        seen.append(state)
        unsettled = {*unsettled, state} if state in ("compiling", "warming") else set()
    return tuple(seen)


def dirty_steps(case: Case) -> list[int]:
    """The numbers of the steps in which PyTorch compiled, by its own times."""
    began = (0, *case.marks)
    return [
        number
        for number, mark in enumerate(case.marks, 1)
        if any(start < mark and began[number - 1] < end for start, end in case.intervals)
    ]


def expected_conditions(case: Case) -> set[str]:
    """The words besides the state, from the marks, what PyTorch logged, and its environment."""
    dirty = dirty_steps(case)
    mode = case.scenario.env.get("TORCHINDUCTOR_FX_COMPILE_MODE", "").lower()
    holds = {
        "thrashing": any(
            third - first < 10 for first, third in zip(dirty, dirty[2:], strict=False)
        ),
        "fallback": "hit config." in case.reference.output,
        "unknown": mode.startswith(("async", "progressive")),
    }
    return {name for name, holding in holds.items() if holding}
