"""What limits the speed of each warm or eager rank, from poll to poll. Pure.

:func:`follow` averages what each poll measured since the last compile activity, into a
:class:`Window` of fixed size, half a minute or four steps. ``limit_verdict`` maps these to a
verdict.

Saves and evaluations count from the first second on, but one of them has no rate: the share of a
single pause is no verdict, and there is no other one while it is that large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.record import Slot
from warmwatch.shared.record.recent import UNEQUAL, recent_lengths
from warmwatch.shared.states import WARM
from warmwatch.shared.verdict import evaluating_since_ns, saving_since_ns
from warmwatch_monitor.figures.machine import Host
from warmwatch_monitor.figures.rank import LimitedBy
from warmwatch_monitor.model.causes import with_laggard
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.pipeline.limit_verdict import (
    MARGIN,
    NVLINK_BYTES,
    Load,
    limited_by,
    ruled_out,
)

_POLL_NS = 10**9  # NVML's averages are not shorter
_WINDOW_SECONDS, _WINDOW_STEPS = 30.0, 4
_NEWEST_SECONDS = 2.0
_POLLS_AGAINST = 2  # in a row: a log line or a save leaves the GPU idle for a moment
# Averages of pauses, which are minutes apart, and the verdicts that rest on them.
_PAUSES, _PAUSE_WINDOW_SECONDS = {"saving": "saving", "evaluating": "evaluation"}, 600.0
_LEAST_SECONDS, _LEAST_STEPS = 5.0, 3  # before a verdict
_RECURS = 1.25  # times the longest pause: less is that pause alone, and it has no rate
_FIRST_PAUSES_SECONDS, _FIRST_WAITS_SECONDS = 30.0, 5.0  # that a record must cover by itself
_SETTLED_SECONDS = 2.5  # after a gap, in which NVML still reports the idle GPU


class Mean(Struct, frozen=True):
    """A mean over the first ``seconds``; from a whole window on, an exponential moving average.

    The window is its time constant, so older values still count a little.
    """

    value: float
    seconds: float
    largest: float = 0.0  # part of ``value`` times ``seconds`` that one call added

    def with_more(self, value: float, seconds: float, window: float) -> Mean:
        weight = min(self.seconds, max(0.0, window - seconds))
        if not (total := weight + seconds):
            return self
        largest = self.largest * (weight / self.seconds if weight else 0.0)
        mean = (self.value * weight + value * seconds) / total
        return Mean(mean, total, max(largest, value * seconds))

    @property
    def recurs(self) -> bool:
        """Whether it is more than one large part."""
        return self.value * self.seconds >= _RECURS * self.largest


Means = Mapping[str, Mean]  # by field of ``Load``, or by throttle reason


class Window(Struct, frozen=True, kw_only=True):
    """The averages of one rank, and the totals at its last poll."""

    at_ns: int  # of the last poll
    begun: int  # compile activities
    step_ns: int  # the mark of the last step: the next four are as of it
    wait_ns: int
    saving_ns: int
    evaluating_ns: int
    batches: int = 0
    fetched_ahead: bool = False  # as in ``Load``
    gpu_ns: int = 0  # the last GPU reading
    cpu_seconds: float | None = None  # of its process, as ``queued_seconds``
    queued_seconds: float | None = None
    means: Means = {}
    throttled: Means = {}
    newest: Means = {}  # the same averages of the last seconds
    newest_throttled: Means = {}
    verdict: LimitedBy | None = None
    against: int = 0  # polls in a row whose newest averages contradict the verdict


def follow(
    before: Window | None, view: RankView, now_ns: int, pids: Collection[int | None]
) -> Window:
    """``before`` with what this poll of a rank that is warm or eager adds.

    ``pids``: of all ranks of its run.
    """
    now = _polled(before, view, now_ns)
    if before is None or before.begun != now.begun or now.step_ns < before.step_ns:
        return replace(now, means={} if before else _first_averages(view))
    now = _at_last_step(before, now)
    values = tuple(_values(before, now, view, pids))
    throttled = tuple(_throttled(before, now, view))
    window, newest = _window_seconds(view), max(_NEWEST_SECONDS, view.figures.steps.length or 0.0)
    return replace(
        now,
        means=_averaged(before.means, values, window),
        throttled=_averaged(before.throttled, throttled, window),
        newest=_averaged(before.newest, values, newest),
        newest_throttled=_averaged(before.newest_throttled, throttled, newest),
        verdict=before.verdict,
        against=before.against,
    )


def _polled(before: Window | None, view: RankView, now_ns: int) -> Window:
    """The totals of this poll, without averages."""
    steps, counts, process = view.record.slot.steps, view.record.slot.compile, view.process
    return Window(
        at_ns=now_ns,
        begun=counts.begun,
        step_ns=steps.last_step_ns,
        wait_ns=steps.batch_wait_ns,
        saving_ns=counts.saving_ns,
        evaluating_ns=counts.evaluating_ns,
        batches=steps.batches,
        fetched_ahead=before is not None and before.fetched_ahead,
        gpu_ns=max((gpu.at_ns for gpu in view.gpus), default=0),
        cpu_seconds=process.cpu_seconds if process else None,
        queued_seconds=process.queued_seconds if process else None,
    )


def _at_last_step(before: Window, now: Window) -> Window:
    """``now`` with the totals as of its last step: a pause since then belongs to the next one."""
    if now.step_ns == before.step_ns:
        return replace(
            now,
            wait_ns=before.wait_ns,
            saving_ns=before.saving_ns,
            evaluating_ns=before.evaluating_ns,
            batches=before.batches,
        )
    if now.batches > before.batches and now.evaluating_ns == before.evaluating_ns:
        # each wait of the training's own thread takes some time
        return replace(now, fetched_ahead=now.wait_ns == before.wait_ns)
    return now


_Values = Iterable[tuple[str, float, float]]  # name, value, and the seconds in which it was so


def _values(
    before: Window, now: Window, view: RankView, pids: Collection[int | None]
) -> Iterator[tuple[str, float, float]]:
    """What this poll adds to the averages: of the steps, GPUs and process since the last one."""
    if took_ns := now.step_ns - before.step_ns:
        for name, spent_ns in (
            ("waiting", now.wait_ns - before.wait_ns),
            ("saving", now.saving_ns - before.saving_ns),
            ("evaluating", now.evaluating_ns - before.evaluating_ns),
        ):
            yield name, min(1.0, spent_ns / took_ns), took_ns / 1e9
    if seconds := _gpu_seconds(before, now, view):
        for name, value in _measured(view, pids):
            yield name, value, seconds
    seconds = (now.at_ns - before.at_ns) / 1e9
    for name, used, used_before in (
        ("cpu", now.cpu_seconds, before.cpu_seconds),
        ("queued", now.queued_seconds, before.queued_seconds),
    ):
        if seconds > 0 and used is not None and used_before is not None:
            yield name, (used - used_before) / seconds, seconds
    below = view.process.below_cpu_ratio if view.process else None
    if seconds > 0 and below is not None:
        yield "below", below, seconds


def _throttled(before: Window, now: Window, view: RankView) -> Iterator[tuple[str, float, float]]:
    """Whether each reason reduces the clocks of any GPU."""
    holds: dict[str, bool] = {}
    for name, is_reduced in (pair for gpu in view.gpus for pair in gpu.throttled):
        holds[name] = is_reduced or holds.get(name, False)
    if seconds := _gpu_seconds(before, now, view):
        for name, is_reduced in holds.items():
            yield name, float(is_reduced), seconds


def _gpu_seconds(before: Window, now: Window, view: RankView) -> float:
    """The time between two GPU readings of its steps; 0 if there are none."""
    if not before.gpu_ns or now.gpu_ns <= before.gpu_ns or not _is_training(view, now.at_ns):
        return 0.0
    return (now.gpu_ns - before.gpu_ns) / 1e9


def _averaged(means: Means, values: _Values, window: float) -> dict[str, Mean]:
    """``means`` with ``values``; ``window``: the time constant in seconds."""
    averaged = dict(means)
    for name, value, seconds in values:
        constant = max(_PAUSE_WINDOW_SECONDS, window) if name in _PAUSES else window
        averaged[name] = averaged.get(name, Mean(0.0, 0.0)).with_more(value, seconds, constant)
    return averaged


def _window_seconds(view: RankView) -> float:
    """Time constant of its averages."""
    return max(_WINDOW_SECONDS, _WINDOW_STEPS * (view.figures.steps.length or 0.0))


def _first_averages(view: RankView) -> dict[str, Mean]:
    """What record and driver have kept, for a reader that comes late.

    Waits for batches are those since the last compile activity, and absent if the last steps take
    another time than these: their share may be another too.
    """
    slot = view.record.slot
    count, clean_ns = slot.clean_since_activity
    clean, waited = clean_ns / 1e9, slot.waited_since_activity_ns / 1e9
    waits = {}
    if clean >= _FIRST_WAITS_SECONDS and _is_representative(clean_ns / max(1, count), slot):
        waits = {"waiting": Mean(min(1.0, waited / clean), clean)}
    return {**waits, **_first_utilization(view), **_first_pauses(view)}


def _first_utilization(view: RankView) -> dict[str, Mean]:
    """The share in which its GPUs ran kernels in its last clean steps, as far as NVML kept it."""
    slot = view.record.slot
    after_ns, until_ns = slot.compile.irregular_step_ns, slot.steps.last_step_ns
    kept = [
        [sample for sample in gpu.kept_utilization if after_ns < sample[0] <= until_ns]
        for gpu in view.gpus
    ]
    if not kept or not all(kept):
        return {}
    ratios = [sum(ratio for _, ratio in samples) / len(samples) for samples in kept]
    seconds = min(max(samples)[0] - min(samples)[0] for samples in kept) / 1e9
    return {"busy": Mean(sum(ratios) / len(ratios), seconds)}


def _is_representative(mean_ns: float, slot: Slot) -> bool:
    """Whether the last steps take about as long as the mean of all since the compile activity."""
    lengths = recent_lengths(slot.recent)
    recent_ns = sum(lengths) / max(1, len(lengths))
    if slot.identity.gpus:  # most of these only launch kernels
        recent_ns = slot.recent_step_ns or 0.0
    return mean_ns / UNEQUAL <= recent_ns <= mean_ns * UNEQUAL


def _first_pauses(view: RankView) -> dict[str, Mean]:
    """Shares of the whole run without its compile time; empty soon after compile activity."""
    steps, counts = view.figures.steps, view.record.slot.compile
    saving, evaluating = counts.saving_ns / 1e9, counts.evaluating_ns / 1e9
    compiling, attached = view.figures.compile.seconds, view.figures.who.attached_at
    if attached is None or steps.last_at is None:
        return {}
    ran = steps.last_at - attached - compiling
    since = view.judgement.clean_steps * (steps.length or 0.0)
    compiled_within = min(compiling, evaluating)  # at most: it is not known
    if min(ran, since) < _FIRST_PAUSES_SECONDS or compiled_within > MARGIN * ran:
        return {}
    long = view.figures.log.long_steps  # of the other pauses, no single one is known
    return {
        name: Mean(min(1.0, total / ran), ran, max(longest, default=0.0))
        for name, total, longest in (
            ("saving", saving, [step.saving_seconds for step in long]),
            ("evaluating", evaluating, [step.evaluating_seconds for step in long]),
        )
    }


def _is_training(view: RankView, now_ns: int) -> bool:
    """Whether GPU readings are of its steps, and not of a pause that lasts or has just ended.

    Other gaps count: the GPU is idle because the loader, or something unknown, holds it up.
    """
    pauses, counts = view.figures.pauses, view.record.slot.compile
    if pauses.saving_since or pauses.evaluating_since or pauses.between_cells_since:
        return False
    gap = view.figures.progress.gap_seconds
    until = max(counts.saved_ns, counts.evaluated_ns, counts.between_cells_until_ns)
    return gap is None or max(gap, (now_ns - until) / 1e9) >= _SETTLED_SECONDS


def _measured(view: RankView, pids: Collection[int | None]) -> Iterator[tuple[str, float]]:
    """Means over its GPUs, of what all of them report."""
    columns: Mapping[str, Sequence[float | None]] = {
        "busy": [gpu.utilization_ratio for gpu in view.gpus],
        "sm": [gpu.sm_active_ratio for gpu in view.gpus],
        "tensor": [gpu.tensor_active_ratio for gpu in view.gpus],
        "dram": [gpu.dram_active_ratio for gpu in view.gpus],
        "nvlink_bytes": [gpu.nvlink_bytes for gpu in view.gpus],
        "watts": [gpu.power_watts for gpu in view.gpus],
        "limit_watts": [gpu.power_limit_watts for gpu in view.gpus],
        "others": [_others(gpu, view.record.pid, pids) for gpu in view.gpus],
    }
    for name, column in columns.items():
        values = [value for value in column if value is not None]
        if values and len(values) == len(column):
            yield name, sum(values) / len(values)


def _others(gpu: GpuReading, own: int | None, pids: Collection[int | None]) -> float | None:
    """Utilization by processes of other runs; ``None`` if not known.

    NVML has the pids of the host. If the rank's own is not among them, it is in a container.
    """
    if gpu.processes is None or own not in gpu.processes:
        return None
    return min(1.0, sum(ratio for pid, ratio in gpu.process_ratios if pid not in pids))


def _with_pauses(window: Window, view: RankView, now_ns: int) -> Window:
    """``window`` with the saves and evaluations since its last step, and the one in progress."""
    slot, took_ns = view.record.slot, now_ns - window.step_ns
    if took_ns <= 0:
        return window
    counts, pauses = slot.compile, []
    for name, spent_ns, since_ns in (
        ("saving", counts.saving_ns - window.saving_ns, saving_since_ns(slot.steps, counts)),
        (
            "evaluating",
            counts.evaluating_ns - window.evaluating_ns,
            evaluating_since_ns(slot.steps, counts),
        ),
    ):
        spent_ns += max(0, now_ns - since_ns) if since_ns else 0
        if spent_ns:
            pauses.append((name, min(1.0, spent_ns / took_ns), took_ns / 1e9))
    return replace(window, means=_averaged(window.means, pauses, _window_seconds(view)))


def load_of(
    window: Window,
    view: RankView,
    host: Host | None,
    now_ns: int,
    *,
    least: float | None = None,
) -> Load:
    """The averages of ``window`` that cover enough time: ``least`` seconds."""
    window = _with_pauses(window, view, now_ns)
    steps, compile_figures, who = view.figures.steps, view.figures.compile, view.figures.who
    if least is None:
        least = max(_LEAST_SECONDS, _LEAST_STEPS * (steps.length or 0.0))
    settled = {name for name, mean in window.means.items() if mean.seconds >= least}
    averages = {
        name: mean.value
        for name, mean in window.means.items()
        if name in settled or name in _PAUSES  # these rule out others from the beginning
    }
    if "queued" in averages:  # Linux counts a wait at its end: it may have begun before the window
        averages["queued"] = min(1.0, averages["queued"])
    if not steps.batches:
        averages.pop("waiting", None)
    watts, limit_watts = averages.get("watts"), averages.get("limit_watts")
    kinds = compile_figures.compilations_by_kind
    graphs = None if kinds is None else "on" if kinds.get("cudagraph") else "off"
    return Load(
        **averages,
        by_chance=[
            verdict
            for name, verdict in _PAUSES.items()
            if name not in settled or not window.means[name].recurs
        ],
        power=watts / limit_watts if watts is not None and limit_watts else None,
        throttled={
            name: mean.value for name, mean in window.throttled.items() if mean.seconds >= least
        },
        cpus=view.process.cpus if view.process else None,
        crowded=host.load_1m / host.cpus if host and host.load_1m and host.cpus else None,
        fetched_ahead=window.fetched_ahead,
        batches=steps.batches,
        workers_compiled=_workers_compiled(view),
        accelerated=view.process.opens_devices if view.process else None,
        gpus=len(who.reported_gpus),
        ranks=who.world_size or 1,
        cudagraphs="skipped" if compile_figures.cudagraph_skips else graphs,
        mfu=view.utilization.ratio if view.utilization else None,
    )


def _workers_compiled(view: RankView) -> int:
    workers = view.figures.loader_workers
    return workers.processes if workers and "workers_compile" in view.judgement.conditions else 0


def _contradicted(window: Window, view: RankView, host: Host | None, now_ns: int) -> Window:
    """``window``, which starts over with its newest averages if they contradict its verdict.

    There is no verdict then until they cover enough time: an unknown limit is better than a past
    one. Other programs on a GPU are seen as such, so they need no second poll.
    """
    if window.verdict is None:
        return window
    pauses = {name: mean for name, mean in window.means.items() if name in _PAUSES}
    means = {**window.newest, **pauses}
    newest = replace(window, means=means, throttled=window.newest_throttled)
    load, held = load_of(newest, view, host, now_ns, least=0.0), window.verdict.verdict
    is_ruled_out, instead = ruled_out(load, held)
    if not is_ruled_out:
        return replace(window, against=0) if window.against else window
    is_seen = load.gpus and "shared" in (held, instead)
    if window.against + 1 < _POLLS_AGAINST and not is_seen:
        return replace(window, against=window.against + 1)
    return replace(newest, verdict=None, against=0)


Windows = Mapping[str, Window]


def with_limits(
    runs: Sequence[RunView],
    before: Windows,
    host: Host | None,
    now_ns: int,
) -> tuple[dict[str, Window], tuple[RunView, ...]]:
    """The windows for the next poll, by record, and ``runs`` with what limits their ranks."""
    windows: dict[str, Window] = {}
    judged = []
    for run in runs:
        pids = {view.record.pid for view in run.ranks}
        for view in run.ranks:
            folder = view.record.folder
            window = _judged(before.get(folder), view, host, now_ns, pids)
            if window is not None:
                windows[folder] = window
        ranks = [_with_limit(view, windows.get(view.record.folder)) for view in run.ranks]
        explained = _without_lone_waits(_without_mutual_waits(ranks, windows))
        judged.append(run.with_ranks(with_laggard(explained)))
    return windows, tuple(judged)


def _judged(
    window: Window | None,
    view: RankView,
    host: Host | None,
    now_ns: int,
    pids: Collection[int | None],
) -> Window | None:
    """``window`` after this poll, with its verdict. An ended rank keeps its last one."""
    if not view.living:
        return window
    if view.judgement.state not in WARM or not view.figures.steps.count:
        return None  # it compiles: what limited it before is past
    # a process that exits makes no step: what it waits for then limits none
    exits = bool(view.record.slot.compile.ended_ns)
    if window is not None and (exits or now_ns - window.at_ns < _POLL_NS):
        return window
    window = _contradicted(follow(window, view, now_ns, pids), view, host, now_ns)
    held = window.verdict.verdict if window.verdict else None
    return replace(window, verdict=limited_by(load_of(window, view, host, now_ns), held))


def _with_limit(view: RankView, window: Window | None) -> RankView:
    """What limited the last steps does not explain a step that does not come."""
    if window is None or window.verdict is None or "silent" in view.judgement.conditions:
        return view
    return replace(view, limited_by=window.verdict)


def _without_mutual_waits(ranks: Sequence[RankView], windows: Windows) -> Sequence[RankView]:
    """``ranks``, without ``communication`` if all ranks of the run wait and none moves data.

    There is no rank to wait for then: other small kernels look the same.
    """
    waiting, do_all_wait = _limited_by(ranks, "communication")
    traffic = [windows[rank.record.folder].means.get("nvlink_bytes") for rank in waiting]
    moves = any(mean is None or mean.value >= NVLINK_BYTES for mean in traffic)
    if moves or not waiting or not do_all_wait:
        return ranks
    return [replace(rank, limited_by=None) for rank in ranks]


def _without_lone_waits(ranks: Sequence[RankView]) -> Sequence[RankView]:
    """``ranks``, without ``waiting`` unless all ranks of the run wait.

    Each may wait for another one, in a collective on the CPU: that one's limit is the run's.
    """
    waiting, do_all_wait = _limited_by(ranks, "waiting")
    if do_all_wait:
        return ranks
    return [replace(rank, limited_by=None) if rank in waiting else rank for rank in ranks]


def _limited_by(ranks: Sequence[RankView], verdict: str) -> tuple[list[RankView], bool]:
    """The ranks with this verdict, and whether these are all of the run."""
    limited = [rank for rank in ranks if rank.limited_by and rank.limited_by.verdict == verdict]
    return limited, len(limited) >= max(rank.figures.who.world_size or 1 for rank in ranks)
