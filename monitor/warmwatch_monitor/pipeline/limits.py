"""What limits the speed of each warm or eager rank, from poll to poll. Pure.

:func:`follow` averages what each poll measured since the last compile activity, into a
:class:`Window` of fixed size, half a minute or four steps. ``limit_verdict`` maps these to a
verdict.

Saves and evaluations count from the first second on, but one of them has no rate: the share of a
single pause is no verdict, and there is no other one while it is that large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.record import Slot
from warmwatch.shared.record.recent import UNEQUAL, recent_lengths
from warmwatch.shared.states import WARM
from warmwatch.shared.verdict import evaluating_since_ns, saving_since_ns
from warmwatch_monitor.model import (
    GpuReading,
    Host,
    LimitedBy,
    RankView,
    RunView,
    with_laggard,
)
from warmwatch_monitor.pipeline.limit_verdict import (
    MARGIN,
    NVLINK_BYTES,
    Load,
    limited_by,
    rules_out,
)

_POLL_NS = 10**9  # NVML's averages are not shorter
_WINDOW, _WINDOW_STEPS = 30.0, 4
_NEWEST = 2.0
_AGAINST = 2  # polls in a row: a log line or a save leaves the GPU idle for a moment
_RARE, _PAUSES = 600.0, {"saving": "saving", "evaluating": "evaluation"}  # minutes apart
_LEAST, _LEAST_STEPS = 5.0, 3
_RECURS = 1.25  # times the longest pause: less is that pause alone, and it has no rate
_FIRST_POLL, _FIRST_WAITS = 30.0, 5.0
_SETTLED = 2.5  # seconds after a gap, in which NVML still reports the idle GPU


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


class Window(Struct, frozen=True, kw_only=True):
    """The averages of one rank between two polls, by name of their field in :class:`Load`.

    Attributes:
        at_ns: the last poll. begun: compile activities that had begun. step_ns: the last step.
        wait_ns, saving_ns, evaluating_ns, batches: totals at that step. gpu_ns: the last GPU
        reading. cpu_seconds, queued_seconds: of its process. fetched_ahead: see :class:`Load`.
        verdict: the last one. newest, newest_throttled: the same averages of the last seconds.
        against: polls in a row whose newest averages contradict the verdict.
    """

    at_ns: int
    begun: int
    step_ns: int
    wait_ns: int
    saving_ns: int
    evaluating_ns: int
    batches: int = 0
    fetched_ahead: bool = False
    gpu_ns: int = 0
    cpu_seconds: float | None = None
    queued_seconds: float | None = None
    means: Mapping[str, Mean] = {}
    throttled: Mapping[str, Mean] = {}
    verdict: LimitedBy | None = None
    newest: Mapping[str, Mean] = {}
    newest_throttled: Mapping[str, Mean] = {}
    against: int = 0


def follow(
    window: Window | None, view: RankView, now_ns: int, pids: Collection[int | None]
) -> Window:
    """``window`` with what this poll of a rank that is warm or eager adds.

    ``pids``: of all ranks of its run.
    """
    now = _polled(window, view, now_ns)
    if window is None or window.begun != now.begun or now.step_ns < window.step_ns:
        return replace(now, means={} if window else _first_poll(view))
    poll = _Poll(known=window, now=now, view=view, at_ns=now_ns, pids=pids)
    now, means, throttled = poll.added(window.means, window.throttled, _window(view))
    _, newest, newest_throttled = poll.added(window.newest, window.newest_throttled, _newest(view))
    return replace(
        now,
        means=means,
        throttled=throttled,
        newest=newest,
        newest_throttled=newest_throttled,
        verdict=window.verdict,
        against=window.against,
    )


class _Poll(Struct, frozen=True, kw_only=True):
    """What one poll adds to the averages; ``now``: its totals."""

    known: Window
    now: Window
    view: RankView
    at_ns: int
    pids: Collection[int | None]

    def added(
        self, means: Mapping[str, Mean], throttled: Mapping[str, Mean], window: float
    ) -> tuple[Window, dict[str, Mean], dict[str, Mean]]:
        """``now`` as of its last step, and these averages over ``window`` seconds after it."""
        means, throttled, item, view = dict(means), dict(throttled), self.known, self.view
        now = _add_steps(means, item, self.now, window)
        took = (now.gpu_ns - item.gpu_ns) / 1e9
        if took > 0 and item.gpu_ns and _is_training(view, self.at_ns):
            for name, value in _measured(view, self.pids):
                _add(means, name, value, took, window)
            for name, holds in _throttled(view.gpus).items():
                _add(throttled, name, float(holds), took, window)
        took = (self.at_ns - item.at_ns) / 1e9
        for name, used, before in (
            ("cpu", now.cpu_seconds, item.cpu_seconds),
            ("queued", now.queued_seconds, item.queued_seconds),
        ):
            if took > 0 and used is not None and before is not None:
                _add(means, name, (used - before) / took, took, window)
        below = view.process.below_cpu_ratio if view.process else None
        if took > 0 and below is not None:
            _add(means, "below", below, took, window)
        return now, means, throttled


def _polled(window: Window | None, view: RankView, now_ns: int) -> Window:
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
        fetched_ahead=window is not None and window.fetched_ahead,
        gpu_ns=max((gpu.at_ns for gpu in view.gpus), default=0),
        cpu_seconds=process.cpu_seconds if process else None,
        queued_seconds=process.queued_seconds if process else None,
    )


def _add_steps(means: dict[str, Mean], item: Window, now: Window, window: float) -> Window:
    """Add what the steps since the last poll waited for. Returns ``now``, as of its last step."""
    took = (now.step_ns - item.step_ns) / 1e9
    if not took:  # a pause since then belongs to the step that comes
        return replace(
            now,
            wait_ns=item.wait_ns,
            saving_ns=item.saving_ns,
            evaluating_ns=item.evaluating_ns,
            batches=item.batches,
        )
    waited, evaluated_ns = now.wait_ns - item.wait_ns, now.evaluating_ns - item.evaluating_ns
    _add(means, "waiting", min(1.0, waited / 1e9 / took), took, window)
    _add_pause(means, "saving", now.saving_ns - item.saving_ns, took, window)
    _add_pause(means, "evaluating", evaluated_ns, took, window)
    if now.batches > item.batches and not evaluated_ns:
        # each wait of the training's own thread takes some time
        return replace(now, fetched_ahead=not waited)
    return now


def _add_pause(
    means: dict[str, Mean], name: str, spent_ns: int, took: float, window: float
) -> None:
    """Add the saves or evaluations within ``took`` seconds, up to one step."""
    _add(means, name, min(1.0, spent_ns / 1e9 / took), took, max(_RARE, window))


def _window(view: RankView) -> float:
    """Time constant of its averages in seconds."""
    return max(_WINDOW, _WINDOW_STEPS * (view.figures.steps.length or 0.0))


def _newest(view: RankView) -> float:
    """The same of the averages that may contradict a verdict: two polls, or a step."""
    return max(_NEWEST, view.figures.steps.length or 0.0)


def _add(means: dict[str, Mean], name: str, value: float, seconds: float, window: float) -> None:
    means[name] = means.get(name, Mean(0.0, 0.0)).with_more(value, seconds, window)


def _first_poll(view: RankView) -> dict[str, Mean]:
    """What the record itself knows, for a reader that comes late.

    Waits for batches are those since the last compile activity, and absent if the last steps take
    another time than these: their share may be another too. Pauses are shares of the whole run,
    and absent soon after compile activity. Compiling is no share of a warm run. How much of it was
    in evaluations is not known. Of the pauses, only the longest is known by itself.
    """
    slot = view.record.slot
    count, clean_ns = slot.clean_since_activity
    clean, waited = clean_ns / 1e9, slot.waited_since_activity_ns / 1e9
    waits = {}
    if clean >= _FIRST_WAITS and _is_representative(clean_ns / max(1, count), slot):
        waits = {"waiting": Mean(min(1.0, waited / clean), clean)}
    return {**waits, **_first_pauses(view)}


def _is_representative(mean_ns: float, slot: Slot) -> bool:
    """Whether the last steps take about as long as the mean of all since the compile activity."""
    lengths = recent_lengths(slot.recent)
    recent_ns = sum(lengths) / max(1, len(lengths))
    if slot.identity.gpus:  # most of these only launch kernels
        recent_ns = slot.recent_step_ns or 0.0
    return mean_ns / UNEQUAL <= recent_ns <= mean_ns * UNEQUAL


def _first_pauses(view: RankView) -> dict[str, Mean]:
    steps, counts = view.figures.steps, view.record.slot.compile
    spent = {
        "saving": counts.saving_ns / 1e9,
        "evaluating": counts.evaluating_ns / 1e9,
    }
    compiling, attached = view.figures.compile.seconds, view.figures.who.attached_at
    if attached is None or steps.last_at is None:
        return {}
    ran = steps.last_at - attached - compiling
    since = view.judgement.clean_steps * (steps.length or 0.0)
    if min(ran, since) < _FIRST_POLL or min(compiling, spent["evaluating"]) > MARGIN * ran:
        return {}
    long = view.figures.log.long_steps
    longest = {
        "saving": max((step.saving_seconds for step in long), default=0.0),
        "evaluating": max((step.evaluating_seconds for step in long), default=0.0),
    }
    return {
        name: Mean(min(1.0, value / ran), ran, longest.get(name, 0.0))
        for name, value in spent.items()
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
    return gap is None or max(gap, (now_ns - until) / 1e9) >= _SETTLED


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


def _throttled(gpus: Sequence[GpuReading]) -> dict[str, bool]:
    """Whether each reason reduces the clocks of any GPU."""
    bools: dict[str, bool] = {}
    for name, holds in (pair for gpu in gpus for pair in gpu.throttled):
        bools[name] = holds or bools.get(name, False)
    return bools


def _others(gpu: GpuReading, own: int | None, pids: Collection[int | None]) -> float | None:
    """Utilization by processes of other runs; ``None`` if not known.

    NVML has the pids of the host. If the rank's own is not among them, it is in a container.
    """
    if gpu.processes is None or own not in gpu.processes:
        return None
    return min(1.0, sum(ratio for pid, ratio in gpu.process_ratios if pid not in pids))


def _with_pause(window: Window, view: RankView, now_ns: int) -> Window:
    """``window`` with the saves and evaluations since its last step, and the one in progress."""
    slot, means = view.record.slot, dict(window.means)
    counts, took = slot.compile, (now_ns - window.step_ns) / 1e9
    for name, spent_ns, since_ns in (
        ("saving", counts.saving_ns - window.saving_ns, saving_since_ns(slot.steps, counts)),
        (
            "evaluating",
            counts.evaluating_ns - window.evaluating_ns,
            evaluating_since_ns(slot.steps, counts),
        ),
    ):
        spent_ns += max(0, now_ns - since_ns) if since_ns else 0
        if spent_ns and took > 0:
            _add_pause(means, name, spent_ns, took, _window(view))
    return replace(window, means=means)


def load_of(
    window: Window,
    view: RankView,
    host: Host | None,
    now_ns: int,
    *,
    least: float | None = None,
) -> Load:
    """The averages of ``window`` that cover enough time: ``least`` seconds."""
    window = _with_pause(window, view, now_ns)
    step = view.figures.steps.length
    if least is None:
        least = max(_LEAST, _LEAST_STEPS * (step or 0.0))
    settled = {name for name, mean in window.means.items() if mean.seconds >= least}
    amounts = {
        name: mean.value
        for name, mean in window.means.items()
        if name in settled or name in _PAUSES  # these rule out others from the beginning
    }
    if "queued" in amounts:  # Linux counts a wait at its end: it may have begun before the window
        amounts["queued"] = min(1.0, amounts["queued"])
    watts, limit = amounts.get("watts"), amounts.get("limit_watts")
    if not view.figures.steps.batches:
        amounts.pop("waiting", None)
    compile, who = view.figures.compile, view.figures.who
    kinds = compile.compilations_by_kind
    graphs = None if kinds is None else "on" if kinds.get("cudagraph") else "off"
    return Load(
        **amounts,
        by_chance=[
            verdict
            for name, verdict in _PAUSES.items()
            if name not in settled or not window.means[name].recurs
        ],
        power=watts / limit if watts is not None and limit else None,
        throttled={
            name: mean.value for name, mean in window.throttled.items() if mean.seconds >= least
        },
        cpus=view.process.cpus if view.process else None,
        crowded=host.load_1m / host.cpus if host and host.load_1m and host.cpus else None,
        fetched_ahead=window.fetched_ahead,
        batches=view.figures.steps.batches,
        workers_compiled=_workers_compiled(view),
        accelerated=view.process.opens_devices if view.process else None,
        gpus=len(who.reported_gpus),
        ranks=who.world_size or 1,
        cudagraphs="skipped" if compile.cudagraph_skips else graphs,
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
    limit = rules_out(load, held)
    if not limit:
        return replace(window, against=0) if window.against else window
    seen = "shared" in (held, limit.verdict if isinstance(limit, LimitedBy) else None)
    if window.against + 1 < _AGAINST and not (seen and load.gpus):
        return replace(window, against=window.against + 1)
    return replace(newest, verdict=None, against=0)


Windows = Mapping[str, Window]


def with_limits(
    runs: Sequence[RunView],
    result: Windows,
    host: Host | None,
    now_ns: int,
) -> tuple[dict[str, Window], tuple[RunView, ...]]:
    """The windows for the next poll, and ``runs`` with what limits their ranks.

    What limited the last steps does not explain a step that does not come.
    """
    windows, judged = {}, []
    for run in runs:
        ranks: Sequence[RankView]
        ranks, pids = [], {rank.record.pid for rank in run.ranks}
        for view in run.ranks:
            folder = view.record.folder
            window = result.get(folder)
            if view.living and view.judgement.state in WARM and view.figures.steps.count:
                # a process that exits makes no step: what it waits for then limits none
                exits = bool(view.record.slot.compile.ended_ns)
                if window is None or (not exits and now_ns - window.at_ns >= _POLL_NS):
                    window = follow(window, view, now_ns, pids)
                    window = _contradicted(window, view, host, now_ns)
                    load = load_of(window, view, host, now_ns)
                    held = window.verdict.verdict if window.verdict else None
                    window = replace(window, verdict=limited_by(load, held))
            elif view.living and window is not None:
                window = None  # it compiles: what limited it before is past
            if window is not None:
                windows[folder] = window
                if window.verdict is not None and "silent" not in view.judgement.conditions:
                    view = replace(view, limited_by=window.verdict)
            ranks.append(view)
        ranks = _without_lone_waits(_without_mutual_waits(ranks, windows))
        judged.append(run.with_ranks(with_laggard(ranks)))
    return windows, tuple(judged)


def _without_mutual_waits(ranks: Sequence[RankView], windows: Windows) -> Sequence[RankView]:
    """``ranks``, without ``communication`` if all ranks of the run wait and none moves data.

    There is no rank to wait for then: other small kernels look the same.
    """
    waiting = [
        rank for rank in ranks if rank.limited_by and rank.limited_by.verdict == "communication"
    ]
    traffic = [windows[rank.record.folder].means.get("nvlink_bytes") for rank in waiting]
    moves = any(mean is None or mean.value >= NVLINK_BYTES for mean in traffic)
    if (
        moves
        or not waiting
        or len(waiting) < max(rank.figures.who.world_size or 1 for rank in ranks)
    ):
        return ranks
    return [replace(rank, limited_by=None) for rank in ranks]


def _without_lone_waits(ranks: Sequence[RankView]) -> Sequence[RankView]:
    """``ranks``, without ``waiting`` unless all ranks of the run wait.

    Each may wait for another one, in a collective on the CPU: that one's limit is the run's.
    """
    waiting = [rank for rank in ranks if rank.limited_by and rank.limited_by.verdict == "waiting"]
    if not waiting or len(waiting) >= max(rank.figures.who.world_size or 1 for rank in ranks):
        return ranks
    return [replace(rank, limited_by=None) if rank in waiting else rank for rank in ranks]
