"""The length of a step whose work a GPU queues, in wall-clock time. Pure.

A step of such a loop ends when its kernels are launched. A step that synchronizes, or finds the
queue full, waits for all queued kernels. So most steps take as long as a launch, a few are far
longer, and the length of a step is a mean from wait to wait:

* Of one record (:func:`queued_ns`): among the last 64 steps if several of them waited, else among
  all of the run.
* With earlier polls (:meth:`QueuedSteps.step_ns`): the latter among the steps of the last 20 to
  40 s, for the speed may have changed since the run began. If far more steps than usual have passed
  without a wait, the loop no longer waits, and a step is as long as its launch.
* The waits are part of that length. So they are no gaps (:func:`gaps`).

The detector of slowdowns (``speed``) takes the mean of all clean steps between two polls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warmwatch.shared import record
from warmwatch.shared.record import Slot
from warmwatch.shared.record.recent import queued_ns, waits
from warmwatch_monitor.model import LongStep
from warmwatch_monitor.pipeline.clean_steps import CleanSteps

_WINDOW_NS = 20 * 10**9
_MISSING = 3  # times as many steps as usual without a wait: the loop no longer waits
# Long steps are waits if a step takes 3 times as long as a launch, and if at least 3 of them are
# alike: a hang takes more than twice as long as those.
_QUEUED_TIMES, _FEWEST_WAITS, _ALIKE_TIMES = 3, 3, 2


class QueuedSteps(NamedTuple):
    """The clean steps of a training on GPUs at polls of this warm-up.

    Attributes:
        slot: at the last poll. latest: up to 20 seconds before it. before: 20 to 40 seconds before
        it; ``None`` until then. waited: number of steps at the last poll that found a new wait.
    """

    slot: Slot
    latest: CleanSteps
    before: CleanSteps | None
    waited: int

    @classmethod
    def follow(cls, known: QueuedSteps | None, slot: Slot) -> QueuedSteps | None:
        """``known`` after this poll; ``None`` without GPUs, and before the first step."""
        if not slot.identity.gpus or not slot.steps.steps:
            return None
        now, steps = CleanSteps.of(slot), slot.steps.steps
        if known is None or known.slot.compile.begun != slot.compile.begun:
            return cls(slot, now, None, steps)
        waited = known.waited if known.before and not _waited_since(slot, known.slot) else steps
        since = now.at_ns - known.latest.at_ns
        if 0 <= since < _WINDOW_NS:
            return cls(slot, known.latest, known.before, waited)
        return cls(slot, now, known.latest if since > 0 else None, waited)

    def step_ns(self) -> float | None:
        """The recent length of a step."""
        lengths = record.recent_lengths(self.slot.recent)
        launch = record.median_ns(lengths)
        if self.before is None or launch is None:
            return self.slot.recent_step_ns
        since = CleanSteps.of(self.slot).since(self.before)
        apart = sum(since.bins) / max(1, waits(since.bins, launch))
        if self.slot.steps.steps - self.waited > _MISSING * apart:
            return launch
        return queued_ns(lengths, since.bins, since.sum_ns)


def gaps(long_steps: Sequence[LongStep], step_s: float | None) -> tuple[LongStep, ...]:
    """``long_steps`` without regular waits for the GPU; ``step_s``, a step, includes these."""
    queued_s = (step_s or 0.0) / _QUEUED_TIMES
    regular = [
        one
        for one in long_steps
        if one.usual_seconds < queued_s and not (one.saving_seconds or one.evaluating_seconds)
    ]
    if len(regular) < _FEWEST_WAITS:
        return tuple(long_steps)
    from statistics import median  # as in model.causes

    longest = _ALIKE_TIMES * median(one.seconds for one in regular)
    return tuple(one for one in long_steps if one not in regular or one.seconds > longest)


def _waited_since(slot: Slot, then: Slot) -> bool:
    """Whether a step after ``then`` waited for the GPU."""
    launch = record.median_ns(record.recent_lengths(slot.recent))
    return launch is None or waits(slot.clean_bins, launch) > waits(then.clean_bins, launch)
