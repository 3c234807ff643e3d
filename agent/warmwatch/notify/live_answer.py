"""This process's state in one line, for notebooks. Pure."""

from __future__ import annotations

from time import monotonic_ns

from warmwatch.notify.console import why_settled
from warmwatch.shared.phrases import baseline_words, counted, duration, step_length
from warmwatch.shared.record import PHASES, PROGRESS, Slot


def answer(slot: Slot, state: str, steps_before: int = 0) -> str:
    """Such as ``compiling for 43 s (inductor): kernels 31 of 86``; empty if nothing was recorded.

    ``steps_before``: steps not to count.
    """
    if slot.compile.active_since_ns:
        return _at_work(slot, "recompiling" if slot.compile.warmups else "compiling")
    # a new record counts all of its steps
    fresh = slot.steps.steps - steps_before * (steps_before <= slot.steps.steps)
    steps = counted(fresh, "step")
    length = slot.recent_step_ns or slot.typical_step_ns
    speed = f"{step_length(length / 1e9)} a step" if length else ""
    if state == "warm":
        if slot.compile.settled == slot.compile.begun + 1 and not slot.steps.steps:
            return f"warm: {why_settled(slot)}"
        since = slot.compile.clean_after + slot.header.warm_steps
        real = f": {speed} is the real speed" if speed else ""
        return f"warm since step {since}{real}; {steps}"
    if state == "eager":
        return f"no compile activity: the model runs eagerly; {steps}" + (speed and f", {speed}")
    baseline = slot.identity.baseline_steps or 0
    if slot.steps.steps < baseline:
        return baseline_words(slot.steps.steps, baseline)
    if not slot.steps.steps:
        return f"nothing compiles at this moment; {duration(_spent(slot))} of compiling so far"
    clean = max(0, slot.steps.steps - slot.compile.clean_after)
    if clean >= slot.header.warm_steps:  # for example a stalled one
        return f"{state}; {steps}" + (speed and f", {speed}")
    return f"{state}, {clean} of {slot.header.warm_steps} clean steps; {steps}"


def _spent(slot: Slot) -> float:
    return sum(slot.compile.phase_ns) / 1e9


def _at_work(slot: Slot, verb: str) -> str:
    counts = slot.compile
    elapsed = duration(max(0, monotonic_ns() - counts.active_since_ns) / 1e9)
    phase = f" ({PHASES[counts.active_phase - 1]})" if counts.active_phase else ""
    if not counts.progress_of:
        return f"{verb} for {elapsed}{phase}"
    far = f"{PROGRESS[counts.progress_of - 1]} {counts.progress_done} of {counts.progress_total}"
    return f"{verb} for {elapsed}{phase}: {far}"
