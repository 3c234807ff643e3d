"""Ranks that are not yet warm, or make no steps: what they wait for, and for how much longer."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch.shared.phrases import baseline_words, counted, duration, took
from warmwatch.shared.states import State
from warmwatch_monitor.figures.compile import Estimate, Workers
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.figures.training import EagerSteps
from warmwatch_monitor.model.figures import Figures
from warmwatch_monitor.model.machine import WORKING_RATIO
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.output.amounts import gained, rates
from warmwatch_monitor.output.summary import Clause, Words, begin
from warmwatch_monitor.status.schema.status import Deadline
from warmwatch_monitor.status.words import gpus

_SHORTEST_PAUSE = 1.0  # seconds: a shorter pause in progress is not shown
_IN_SUM = 0.1


def pausing(view: RankView) -> str:
    """``saving a checkpoint for 43 s``, ``evaluating for 61 s``; otherwise empty.

    Also empty if the pause has only just begun. A save within an evaluation comes first.
    """
    pauses = view.figures.pauses
    for what, seconds in (
        ("saving a checkpoint", pauses.saving_for_seconds),
        ("evaluating", pauses.evaluating_for_seconds),
        ("between the cells of a notebook", pauses.between_cells_for_seconds),
    ):
        if seconds is not None and seconds >= _SHORTEST_PAUSE and view.living:
            return f"{what} for {duration(seconds)}"
    return ""


def pause_evidence(view: RankView) -> Iterator[str]:
    """Time that was neither compilation nor training, by known cause."""
    if now := pausing(view):
        yield f"{now}: no step is expected meanwhile"
    pauses, steps = view.figures.pauses, view.figures.steps
    spent = {
        "waiting for data": steps.batch_wait_seconds if steps.batches else None,
        "saving checkpoints": pauses.checkpoint_seconds,
        "evaluating": pauses.evaluation_seconds,
    }
    pairs = [(what, s) for what, s in spent.items() if s is not None and s >= _IN_SUM]
    if pairs:
        parts = [f"{duration(seconds)} went to {what}" for what, seconds in pairs]
        yield f"since it attached {', '.join(parts)}"


def busy_workers(workers: Workers) -> str:
    """``3 of 4 compile workers busy``; empty if none is."""
    whole = counted(workers.count, "compile worker")
    return f"{workers.busy} of {whole} busy" if workers.busy else ""


_SAME_SECONDS = 1.0  # times that differ by less count as the same


def left(view: RankView) -> str:
    """``last time 113 s: about 40 s left``; ``longer than last time (113 s)`` beyond all of it."""
    estimate = view.estimate
    if estimate is None or not view.judgement.compiling:
        return ""
    rest, last = estimate.left_seconds, duration(estimate.last_seconds)
    other = "another rank" if estimate.of_rank else "last time"
    clock = _clock(estimate, view.figures)
    if rest is None:
        takes = f"{clock} takes " if clock else ""
        return f"{takes}longer than {other} ({last})"
    left = f"about {duration(rest)} left"
    if estimate.of_rank:
        who = f"{clock} of another rank" if clock else "another rank"
        return f"{who} took {last}: {left}"
    before = f"last time {clock} took" if clock else "last time"
    return f"{before} {last}: {left}"


def _clock(estimate: Estimate, figures: Figures) -> str:
    """What the estimate covers, if it is not the time at the start of the sentence."""
    stretch = figures.progress.stretch
    if stretch is None or estimate.so_far_seconds - stretch.seconds <= _SAME_SECONDS:
        return ""
    return "the whole warm-up"


def slower_than_before(figures: Figures) -> Words:
    """``warm-up took 31 min, 240 s last time``, ``120 s, 20 s to 40 s in 3 earlier runs``.

    It is short and without parentheses, so that a headline with it needs no detail that repeats it.
    """
    first, earlier = figures.warmups.first, figures.warmups.earlier_seconds
    if not (first and first.seconds and earlier):
        return begin("warm-up took far longer than in earlier runs")
    least, most = duration(min(earlier)), duration(max(earlier))
    before = least if least == most else f"{least} to {most}"
    when = "last time" if len(earlier) == 1 else f"in {len(earlier)} earlier runs"
    return begin(f"warm-up took {duration(first.seconds)}, {before} {when}")


def without_steps(run: RunView, decisive: RankView, *, in_head: bool) -> str | None:
    """``no step for 61 s; batches go on: an evaluation?``; ``None`` where steps go on.

    ``in_head``: the head of the sentence already has the missing step; add only what moves.
    """
    progress = decisive.figures.progress
    limit = progress.stall_limit_seconds
    if run.state is State.STALLED or not decisive.figures.steps.count or not decisive.living:
        return None
    if decisive.judgement.compiling or limit is None or progress.quiet_seconds <= limit:
        return None
    no_step = f"no step for {duration(progress.quiet_seconds)}"
    others = [view for view in run.living if view is not decisive]
    seen = next(_signs(decisive), None) or next(_held_up_by(others), None)
    if seen is None and any(next(_signs(view), None) for view in others):
        seen = "another rank works"
    return "; ".join(part for part in ("" if in_head else no_step, seen) if part)


def _held_up_by(others: list[RankView]) -> Iterator[str]:
    """``rank 0 is saving a checkpoint for 43 s``: they may wait for it."""
    for view in others:
        if text := pausing(view):
            yield f"rank {view.rank} is {text}"


def _signs(view: RankView) -> Iterator[str]:
    """What moves, the surest sign first."""
    if text := pausing(view):
        yield text
    progress = view.figures.progress
    batch, limit = progress.batch_quiet_seconds, progress.stall_limit_seconds
    if batch is not None and limit is not None and batch < min(limit, progress.quiet_seconds):
        yield "batches go on: an evaluation?"
    if text := gpus.computing(view.gpus):
        yield text
    if view.process is not None and (view.process.cpu_ratio or 0.0) >= WORKING_RATIO:
        yield f"the process works ({100 * (view.process.cpu_ratio or 0.0):.0f} % of a core)"


def is_frozen(view: RankView) -> bool:
    """Whether its cgroup stops its process."""
    return view.process is not None and view.process.thaw is not None


def halted(view: RankView, *, short: bool = False) -> str:
    """``its process is stopped (SIGSTOP, Ctrl-Z, a debugger)``: of one that is."""
    how, why = (
        ("frozen", "docker pause, cgroup.freeze")
        if is_frozen(view)
        else ("stopped", "SIGSTOP, Ctrl-Z, a debugger")
    )
    return f"its process is {how}" if short else f"its process is {how} ({why})"


def continuing(view: RankView) -> str:
    """What continues it."""
    if view.process is None or view.process.thaw is None:
        return "kill -CONT"
    return f"docker unpause, or echo {view.process.thaw},"


def throughput(view: RankView) -> str:
    """``0.94 M tokens/s, MFU 41 %`` at its recent speed; empty if the work of a step is unknown."""
    worth, seconds, mfu = view.figures.worth, view.figures.steps.length, view.utilization
    if not seconds:
        return ""
    return rates(
        worth.tokens / seconds if worth.tokens is not None else None,
        worth.samples / seconds if worth.samples is not None else None,
        mfu.ratio if mfu else None,
        estimated=bool(mfu and mfu.estimated),
        dtypes=mfu.shares if mfu else {},
    )


def baseline_progress(figures: Figures) -> str:
    """``baseline: step 7 of 20, eager on purpose``; empty without a baseline in progress."""
    baseline = figures.baseline
    if baseline is None or figures.steps.count >= baseline.steps:
        return ""
    return baseline_words(figures.steps.count, baseline.steps)


def brought(figures: Figures) -> str:
    """``1.8x as fast as eager; break-even at step 1,016``; empty if unknown."""
    gain = figures.gain
    if gain is None or gain.speed_up is None:
        return ""
    return gained(gain.speed_up, gain.paid_back_at_step)


def baseline_measured(baseline: EagerSteps | None) -> str:
    """The result of the baseline; empty without a completed one."""
    if baseline is None or baseline.seconds is None:
        return ""
    steps = counted(baseline.steps, "step")
    return f"the first {steps} ran eagerly on purpose, {took(baseline.seconds)} each"


_SHORTEST_LEFT = 1.0  # seconds: less is noise


def so_far(view: RankView) -> str:
    """``last step 10 s, GPU 0 at 100 %, 692 W; warm in about 20 s``; empty if unknown."""
    seen = ", ".join(part for part in (_last_clean(view), gpus.at_work(view.gpus)) if part)
    left = seconds_left(view)
    warm = "" if left is None else f"warm in about {duration(left)}"
    return "; ".join(part for part in (seen, warm) if part)


def seconds_left(view: RankView) -> float | None:
    """Until the rank is warm at its present speed; ``None`` if unknown or too short to show.

    The time since the last step is subtracted, up to the length of one step.
    """
    length = _length(view)
    needed = view.figures.warmups.clean_steps_needed - view.judgement.clean_steps
    if length is None or needed < 1:
        return None
    under_way = max(0.0, length - view.figures.progress.quiet_seconds)
    left = (needed - 1) * length + under_way
    return left if left >= _SHORTEST_LEFT else None


def _length(view: RankView) -> float | None:
    """Length of the last clean step, or of the steps before a recompile."""
    steps = view.figures.steps
    last = steps.last if view.judgement.clean_steps else None
    return last if last is not None else steps.length


def _last_clean(view: RankView) -> str:
    steps = view.figures.steps
    if not view.judgement.clean_steps:
        return ""
    if steps.last is not None:
        return f"last step {took(steps.last)}"
    return "" if steps.length is None else f"{took(steps.length)} a step"


_DEADLINE_ADVICE = (
    "Raise the timeout before the warm-up, by init_process_group(timeout=timedelta(...)), and "
    "lower it once all ranks are warm, if at all; a collective that waits keeps the one it has."
)
_BACKENDS = {
    "nccl": "NCCL",
    "gloo": "gloo",
    "mpi": "MPI",
    "ucc": "UCC",
    "xccl": "XCCL",
    "hccl": "HCCL",
}
NEAR = 0.5  # of the timeout: with more left, it is not shown
_LITTLE = 0.3  # of the timeout: with less left, the clause names the setting
_IN_WHOLE_SECONDS = 119.5
_LEAST_USABLE = 1.0  # seconds: less is too short to act in


def deadline(run: RunView, decisive: RankView) -> Deadline | None:
    """The nearest deadline of the ranks that wait for ``decisive``; ``None`` if there is none."""
    activity, progress = decisive.figures.compile.open, decisive.figures.progress
    if activity is None or not decisive.judgement.compiling:
        return None
    longest = max(activity.seconds, progress.open_seconds or 0.0)
    result = []
    for view in run.living:
        timeout = view.figures.who.collective_timeout_seconds
        if timeout is not None and not view.judgement.compiling:
            waited = min(longest, view.figures.progress.quiet_seconds)
            backend = view.figures.who.collective_backend
            result.append((timeout - waited, timeout, backend))
    if not result:
        return None
    left, timeout, backend = min(result, key=lambda row: row[0])
    return Deadline(
        backend=backend,
        timeout_seconds=timeout,
        left_seconds=max(0.0, left),
        advice=_DEADLINE_ADVICE,
    )


def deadline_words(deadline: Deadline) -> Clause:
    """``NCCL gives up in 505 s``; with the setting that raises it if little is left."""
    name = _BACKENDS.get(deadline.backend or "", "their collective")
    left = deadline.left_seconds
    if not left:
        over = f"its {duration(deadline.timeout_seconds)} are over"
        return Clause(f"{name} has given up by now, or will: {over}", Kind.LOSS)
    if left < _LEAST_USABLE:
        return Clause(f"{name} gives up any moment now", Kind.LOSS)
    shown = f"{left:.0f} s" if left < _IN_WHOLE_SECONDS else duration(left)
    raises = left < _LITTLE * deadline.timeout_seconds
    how = " (init_process_group(timeout=) sets that, before it begins)" if raises else ""
    text = f"{name} gives up in {shown}"
    return Clause(f"{text}{how}", Kind.LOSS, text)
