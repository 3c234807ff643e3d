"""What a scenario's states must be, from the training's own marks and PyTorch's own times.

Nothing here reads the agent's verdict. Clean steps, warm-ups and conditions are computed from the
marks and from the intervals in which PyTorch compiled, as the contract defines them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from support import truth
from support.poller import INTERVAL_NS, Sample
from support.scenarios import Reference, Scenario, Watched
from support.truth import Interval

# PyTorch reads the clock at the end of a compilation and writes its record later, up to this much.
# Wherever a check allows this, it also allows the time that the training waited for a core in
# between: see `stalled`.
EDGE_NS = 50_000_000
ENDED = ("finished", "failed", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """A warm-up that ended: at the end of its last activity, seen at the K-th clean step."""

    ended: int
    step: int


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario, run with the agent (``watched``) and without (``reference``).

    Attributes:
        compiled: when PyTorch compiled. intervals: when PyTorch or another compiler did.
    """

    scenario: Scenario
    watched: Watched
    reference: Reference
    compiled: list[Interval] = field(init=False)
    intervals: list[Interval] = field(init=False)

    def __post_init__(self) -> None:
        recorded = truth.intervals(self.watched.account)
        if self.watched.trace is not None:
            recorded = truth.merged(
                recorded + truth.monotonic(self.watched.account, self.watched.trace)
            )
        object.__setattr__(self, "compiled", recorded)
        beside = truth.beside(self.watched.account)
        object.__setattr__(self, "intervals", truth.merged(recorded + beside))

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
        recorded = self.watched.account["compilations"]
        return [one["recompile_reason"].strip() for one in recorded if one["recompile_reason"]]


def stalled(case: Case, start: int, end: int) -> int:
    """An upper bound for how long the training waited for a core between two moments.

    On a busy machine two consecutive statements can be this far apart.
    """
    start, end = min(start, end), max(start, end)
    earlier = [one.waited for one in case.watched.samples if one.after <= start]
    later = [one.waited for one in case.watched.samples if one.before >= end]
    known = [one.waited for one in case.watched.samples]
    return (later or known[-1:] or [0])[0] - (earlier or [0])[-1]


def _both(case: Case) -> list[Interval]:
    """When both PyTorch and the agent report compilation; `coverage` checks how they differ."""
    return [
        (max(start, a), min(end, b))
        for start, end in case.intervals
        for a, b in case.activities
        if start < b and a < end
    ]


def _either(case: Case) -> list[Interval]:
    """PyTorch's intervals, extended by the agent's activities that overlap one of them."""
    overlap = [
        (a, b) for a, b in case.activities if any(s < b and a < e for s, e in case.intervals)
    ]
    return truth.merged(case.intervals + overlap)


def inside(case: Case, sample: Sample) -> bool:
    """Whether it compiled during the whole poll, and for a polling interval before.

    The interval is allowed because the agent reads the time of a begin before it stores the begin.
    """
    return any(
        start + INTERVAL_NS + stalled(case, start, sample.before) < sample.before
        and sample.after < end
        for start, end in _both(case)
    )


def outside(case: Case, sample: Sample) -> bool:
    """Whether nothing compiled at this poll and within a polling interval before."""
    return not any(
        start < sample.after
        and sample.before < end + INTERVAL_NS + stalled(case, end, sample.before)
        for start, end in _either(case)
    )


def false_warm(case: Case) -> list[Sample]:
    """Polls with the state warm while PyTorch compiled, or before the K-th clean step."""
    return [
        sample
        for sample in case.watched.samples
        if sample.warm and (inside(case, sample) or not _may_be_warm(case, sample))
    ]


def late_warm(case: Case) -> list[Sample]:
    """Polls after the K-th clean step without the state warm."""
    return [
        sample
        for sample in case.watched.samples
        if not sample.warm and sample.state not in ENDED and _must_be_warm(case, sample)
    ]


SILENT_SECONDS, SILENT_STEPS = 3, 10  # without a step: seconds, and usual steps
_FEWEST, _MOST = 3, 64  # clean steps that make a usual length


def marks_steps(case: Case) -> bool:
    """Whether the agent counts exactly the steps that the scenario marks, and it has one rank."""
    one = case.scenario
    return not (one.unseen_steps or any(one.late_steps) or one.ranks > 1)


def may_be_silent(case: Case, sample: Sample) -> bool:
    """Whether a monitor may report ``silent``: the training marks a step later than the agent."""
    started = [start for start, end in _both(case) if start < sample.before and sample.after < end]
    if started or sample.state in ENDED or sample.steps < 1:
        return False
    since = _explained(case, sample.before, sample.steps, case.compiled)
    late = EDGE_NS + stalled(case, since, sample.after)
    limit = max(SILENT_SECONDS * 10**9, SILENT_STEPS * min(_usual(case, sample.steps), default=0))
    return sample.after - since + late > limit


def must_be_silent(case: Case, sample: Sample) -> bool:
    """Whether a monitor must report ``silent``, whatever number of steps the usual length spans."""
    if not marks_steps(case):
        return False
    usual = _usual(case, sample.steps)
    if not sample.warm or sample.state in ENDED or not usual:
        return False
    if any(start < sample.after and sample.before < end for start, end in _either(case)):
        return False
    ends = (one["t"] for one in case.watched.events if one["event"] == "exit")
    if any(end < sample.after for end in ends):  # the program is over, and its exit takes long
        return False
    since = _explained(case, sample.after, sample.steps + 1, _either(case))
    limit = max(SILENT_SECONDS * 10**9, SILENT_STEPS * max(usual))
    return sample.before - since - EDGE_NS - stalled(case, since, sample.after) > limit


def _explained(case: Case, now: int, steps: int, intervals: list[Interval]) -> int:
    """When the silence began: at the last of ``steps``, or the end of a later interval or pause."""
    pauses = case.watched.account["pauses"]
    ends = [min(end, now) for start, end in (*intervals, *pauses) if start < now]
    return max([*case.marks[:steps][-1:], *ends])


def paused(case: Case, start: int, end: int) -> int:
    """The reported pause time of the training between two moments."""
    pauses = case.watched.account["pauses"]
    return sum(max(0, min(end, over) - max(start, began)) for began, over in pauses)


def _usual(case: Case, steps: int) -> list[float]:
    """The possible usual lengths after ``steps``: medians of the last clean ones."""
    gaps = [
        end - start - paused(case, start, end)
        for start, end in pairwise(case.marks[:steps])
        if not any(begin < end and start < over for begin, over in case.intervals)
    ]
    return [median(gaps[-count:]) for count in range(_FEWEST, min(len(gaps), _MOST) + 1)]


def _may_be_warm(case: Case, sample: Sample) -> bool:
    """The optimizer's call ends before the training marks the step: one more may have ended.

    What began within a polling interval may not be recorded yet, as in :func:`inside`.
    """
    over = 0 if sample.requested else 1
    begun = [
        (start, end)
        for start, end in case.intervals
        if start + INTERVAL_NS + stalled(case, start, sample.before) < sample.before
    ]
    return _clean(case, begun, sample.after, over) >= case.watched.slot.header.warm_steps


def _must_be_warm(case: Case, sample: Sample) -> bool:
    compiles = any(s < sample.after and sample.before < e for s, e in _either(case))
    due = case.watched.slot.header.warm_steps + max(case.scenario.late_steps, default=0)
    if _swaps_later(case):
        return False
    return not compiles and _clean(case, case.intervals, sample.before) >= due


def _clean(case: Case, intervals: list[Interval], now: int, more: int = 0) -> int:
    """Clean steps in a row, from the training's own marks and PyTorch's own ``intervals``.

    ``more``: how many steps may have ended that are not marked yet.
    """
    ends = [end for start, end in intervals if start <= now]
    last = max(ends, default=0)
    after = sum(last < mark <= now for mark in case.marks) + more
    return max(0, after - 1) if ends else after


def expected_warm_ups(case: Case) -> list[WarmUp]:
    """Where warm-ups end by the contract, from marks and intervals alone."""
    if _swaps_later(case):
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
    """The ends of warm-ups in the journal, in steps that the training counted.

    The agent's time of a step lies between the training's marks of the step before and of this one.
    """
    return [
        WarmUp(ended=e["ended"], step=1 + sum(mark < e["t"] for mark in case.marks))
        for e in case.watched.events
        if e["event"] == "warm"
    ]


def seen_states(case: Case) -> tuple[str, ...]:
    """The states sampled, each change once, without ``starting`` and the end.

    Before a rank is warm, ``compiling`` and ``warming`` alternate, so each is listed once. A pause
    before the first step is left out, because few polls see it.
    """
    seen: list[str] = []
    unsettled: set[str] = set()
    for _, state, steps in sorted([*_polled(case), *_unpolled(case)]):
        pause = state == "warming" and not steps
        if state in (*ENDED, "starting") or pause or state in seen[-1:] or state in unsettled:
            continue
        seen.append(state)
        unsettled = {*unsettled, state} if state in ("compiling", "warming") else set()
    return tuple(seen)


def _polled(case: Case) -> list[tuple[int, str, int]]:
    return [(one.before, one.state, one.steps) for one in case.watched.samples]


def _unpolled(case: Case) -> list[tuple[int, str, int]]:
    """The state in an activity that ended before any poll, so no poll can have seen it."""
    polls = case.watched.samples
    warm = [one.before for one in polls if one.warm]
    return [
        (a, "recompiling" if warm and warm[0] < a else "compiling", 0)
        for a, b in case.activities
        if not any(a < one.after and one.before < b for one in polls)
    ]


def dirty_steps(case: Case) -> list[int]:
    """The numbers of the steps in which PyTorch compiled, by its own times."""
    began = (0, *case.marks)
    return [
        number
        for number, mark in enumerate(case.marks, 1)
        if any(start < mark and began[number - 1] < end for start, end in case.intervals)
    ]


def expected_conditions(case: Case) -> set[str]:
    """The conditions, from the marks, what PyTorch logged, and the environment."""
    warm_ups = expected_warm_ups(case)
    late = [step for step in dirty_steps(case) if warm_ups and step > warm_ups[0].step]
    holds = {
        "thrashing": any(third - first < 10 for first, third in zip(late, late[2:], strict=False))
        or _in_each_step(case),
        "fallback": any(text in case.reference.output for text in ("hit config.", "WON'T CONVERT")),
        "unknown": _swaps_later(case),
        "nothing_captured": _captured_nothing(case),
        "never_compiled": case.scenario.in_vain and not case.watched.account["compilations"],
        "cudagraph_skipped": bool(case.watched.slot.identity.gpus)
        and case.watched.account["cudagraph_skips"] > 0,
        "silent": any(must_be_silent(case, one) for one in case.watched.samples),
    }
    return {*case.scenario.conditions, *(name for name, holding in holds.items() if holding)}


def _in_each_step(case: Case) -> bool:
    """Whether one frame was compiled again, or failed to compile, in three steps in a row."""
    steps: dict[str, set[int]] = {}
    for one in case.watched.account["compilations"]:
        frame, _, entry = str(one["compile_id"]).rpartition("/")
        # the record of a call at the recompile limit has no name: nothing is compiled then
        if one["co_name"] and (entry != "0" or one["fail"]):
            step = sum(mark < one["start"] for mark in case.marks)
            steps.setdefault(frame, set()).add(step)
    return any({step + 1, step + 2} <= found for found in steps.values() for step in found)


def _swaps_later(case: Case) -> bool:
    """Its environment makes code compile in the background and swaps it in."""
    mode = case.scenario.env.get("TORCHINDUCTOR_FX_COMPILE_MODE", "").lower()
    return mode.startswith(("async", "progressive"))


def _captured_nothing(case: Case) -> bool:
    """It made K clean steps after compilations, and PyTorch counts no graph."""
    account = case.watched.account
    if len(account["compilations"]) >= 3 and all(one["fail"] for one in account["compilations"]):
        return True  # none of several attempts has succeeded
    clean = _clean(case, case.intervals, max(case.marks, default=0))
    compiled = bool(account["compilations"]) and not account["graphs"]
    return compiled and clean >= case.watched.slot.header.warm_steps
