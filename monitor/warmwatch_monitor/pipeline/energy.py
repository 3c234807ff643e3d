"""GPU energy of compilation and of clean steps, in joules.

Pure: an :class:`EnergyUsed` and the next view of a rank give the next one. A GPU's energy
counter is read about once a second, every five if nothing has compiled for a minute. Two readings
bound a window. The record's cumulative compile time shows how much of it was compile activity.

- The energy of a window with activity only, or without any, is exact.
- A mixed window is split by power: activity is assumed to draw the GPU's power of the last window
  of activity only. If that is unknown, the rest is assumed to draw the power of the last window
  without any; if both are, the window is split by time. Each activity has at most two mixed
  windows, so an error is less than their energy.
- A counter that fell (the driver was reloaded) makes its window unknown: it is not covered.
- What was measured is kept through failed polls, and for the retention after the record is gone.
  The next window spans the failed polls, and is split like any other.
- Clean steps are counted from one mark to another, in windows without activity. Energy after the
  last mark belongs to no step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.records import is_present
from warmwatch_monitor.model.snapshot import RankView, RunView, Spending


class _Meter(Struct, frozen=True, kw_only=True):
    """One GPU of a rank, at its last energy reading."""

    at_ns: int
    joules: float
    compile_ns: int  # compile time of the rank up to then
    steps: int  # of the rank
    begun: int  # its compile activities
    compile_watts: float | None = None  # the last power of a window that was all activity
    other_watts: float | None = None  # the same of a window without any
    # energy since the last step, in consecutive windows without activity; ``None`` until the first
    # step in them
    pending_joules: float | None = None


class EnergyUsed(Struct, frozen=True, kw_only=True):
    """What one rank's GPUs spent so far, and their last readings by uuid."""

    spending: Spending = field(default_factory=Spending)
    meters: Mapping[str, _Meter] = field(default_factory=dict)
    gone_ns: int | None = None  # since when its record is gone; ``None`` while it exists


def charge(
    used: Mapping[str, EnergyUsed], runs: Iterable[RunView], now_ns: int
) -> tuple[dict[str, EnergyUsed], tuple[RunView, ...]]:
    """``used`` by record, updated from ``runs``; and the runs with what they spent."""
    charged = dict(used)

    def with_spending(view: RankView) -> RankView:
        folder = view.record.folder
        now = updated(charged.get(folder, EnergyUsed()), view, now_ns)
        if not now.meters:
            return view
        charged[folder] = now
        return replace(view, spending=now.spending)

    with_spendings = tuple(run.with_ranks(map(with_spending, run.ranks)) for run in runs)
    return charged, with_spendings


def retained(
    used: Mapping[str, EnergyUsed],
    present: Collection[str] | None,
    now_ns: int,
    retention_ns: int,
) -> dict[str, EnergyUsed]:
    """The part of ``used`` for records that are ``present``, or gone for less than the retention.

    A record that cannot be read does not count as gone.
    """
    still: dict[str, EnergyUsed] = {}
    for folder, of_rank in used.items():
        if is_present(folder, present):
            still[folder] = replace(of_rank, gone_ns=None) if of_rank.gone_ns else of_rank
        elif of_rank.gone_ns is None:
            still[folder] = replace(of_rank, gone_ns=now_ns)
        elif now_ns - of_rank.gone_ns <= retention_ns:
            still[folder] = of_rank
    return still


def updated(used: EnergyUsed, view: RankView, now_ns: int) -> EnergyUsed:
    """``used`` updated from ``view``; the same object if there is no new energy reading."""
    if not view.gpus or not view.record.alive:
        return used
    spending, meters = used.spending, dict(used.meters)
    for gpu in view.gpus:
        if gpu.energy_joules is None or gpu.read_energy_ns is None:
            continue
        before = meters.get(gpu.uuid)
        if before is not None and gpu.read_energy_ns <= before.at_ns:
            continue
        after = _meter(gpu, view, now_ns, before)
        if before is not None:
            spending, after = _window(spending, before, after, share=1 / len(view.gpus))
        meters[gpu.uuid] = after
    if meters == used.meters:
        return used
    return replace(used, spending=spending, meters=meters)


def _meter(gpu: GpuReading, view: RankView, now_ns: int, before: _Meter | None) -> _Meter:
    assert gpu.energy_joules is not None
    assert gpu.read_energy_ns is not None
    compile_ns = compile_ns_at(view, gpu.read_energy_ns, now_ns)
    slot = view.record.slot
    return _Meter(
        at_ns=gpu.read_energy_ns,
        joules=gpu.energy_joules,
        compile_ns=max(compile_ns, before.compile_ns if before else 0),
        steps=slot.steps.steps,
        begun=slot.compile.begun,
        compile_watts=before.compile_watts if before else None,
        other_watts=before.other_watts if before else None,
    )


def compile_ns_at(view: RankView, at_ns: int, now_ns: int) -> int:
    """Compile time of the rank up to ``at_ns``, from a record that was read a little later.

    A part that falls into another window is not lost: the next difference includes it.
    """
    counts = view.record.slot.compile
    total_ns = sum(counts.phase_ns)
    if counts.active_since_ns:
        total_ns += max(0, now_ns - counts.accounted_ns)
        return max(0, total_ns - max(0, now_ns - max(at_ns, counts.active_since_ns)))
    return max(0, total_ns - max(0, counts.last_end_ns - at_ns))


def _window(
    spending: Spending, before: _Meter, after: _Meter, *, share: float
) -> tuple[Spending, _Meter]:
    """Charge the window between two readings; ``share`` is the GPU's part of its rank."""
    joules, length_ns = after.joules - before.joules, after.at_ns - before.at_ns
    if joules < 0:
        return spending, after
    compile_ns = min(after.compile_ns - before.compile_ns, length_ns)
    if compile_ns == 0 and after.begun == before.begun:
        after = replace(after, other_watts=joules / length_ns * 1e9)
        return _clean(spending, before, after, joules, share)
    if compile_ns == length_ns:
        after = replace(after, compile_watts=joules / length_ns * 1e9)
    spending = replace(
        spending,
        compile_joules=spending.compile_joules
        + _compile_joules(joules, compile_ns / 1e9, length_ns / 1e9, before),
        compile_seconds=spending.compile_seconds + share * compile_ns / 1e9,
    )
    return spending, after


def _compile_joules(joules: float, compiling: float, whole: float, before: _Meter) -> float:
    """The joules of ``compiling`` seconds in a window of ``whole`` seconds."""
    if compiling in (0, whole):
        return joules if compiling else 0.0
    if before.compile_watts is not None:
        return min(joules, before.compile_watts * compiling)
    if before.other_watts is not None and before.steps:  # before the first step it idles too
        return max(0.0, joules - before.other_watts * (whole - compiling))
    return joules * compiling / whole


def _clean(
    spending: Spending, before: _Meter, after: _Meter, joules: float, share: float
) -> tuple[Spending, _Meter]:
    """Charge a window without activity to the clean step that contains it."""
    steps = after.steps - before.steps
    if before.pending_joules is None:
        return spending, replace(after, pending_joules=0.0 if steps else None)
    pending = before.pending_joules + joules
    if not steps:
        return spending, replace(after, pending_joules=pending)
    spending = replace(
        spending,
        clean_joules=spending.clean_joules + pending,
        clean_steps=spending.clean_steps + share * steps,
    )
    return spending, replace(after, pending_joules=0.0)
