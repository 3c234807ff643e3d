"""Metrics of a rank: its compiler, what it trains, its state and process, and how it ended.

Names, types, labels and texts are those of ``figures/`` and of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from warmwatch.shared.states import CONDITIONS, WARM
from warmwatch_monitor.figures.compile import (
    Compile,
    CompileWorkers,
    Counted,
    Energy,
    Estimate,
    GpuSeconds,
    OpenActivity,
    Phase,
)
from warmwatch_monitor.figures.machine import Process
from warmwatch_monitor.figures.rank import (
    CleanSteps,
    EndedTogether,
    JournalUnread,
    LimitedBy,
    OutOfMemory,
    RankState,
    Slower,
)
from warmwatch_monitor.figures.training import BACKENDS, Mfu, Pauses, TypicalStep, Warmup
from warmwatch_monitor.metrics.families import (
    Distribution,
    Family,
    Labels,
    Series,
    Value,
    family_of,
    gauge,
    one_hot,
    series_of,
    shared,
)
from warmwatch_monitor.model.figures import (
    BUCKET_SECONDS,
    Agent,
    Lengths,
    Memory,
    Progress,
    Steps,
    Stretch,
    Who,
)
from warmwatch_monitor.model.snapshot import RankView, Snapshot


def _open(view: RankView) -> OpenActivity | None:
    return view.figures.compile.open if view.judgement.compiling else None


def _counted(view: RankView, name: str) -> dict[str, float] | None:
    counted = activity.counted if (activity := _open(view)) else None
    return {counted.of: getattr(counted, name)} if counted else None


def _estimate(view: RankView) -> Estimate | None:
    return view.estimate if view.judgement.compiling else None


def _workers(view: RankView) -> dict[str, float] | None:
    workers = view.figures.workers
    return None if workers is None else {"busy": workers.busy, "idle": workers.idle}


_NAMES = ("done", "total")
COMPILE_SERIES: tuple[Series[RankView], ...] = (
    shared(Phase, attrgetter("judgement.phase")),
    *series_of(Counted, _open, {name: partial(_counted, name=name) for name in _NAMES}),
    *series_of(OpenActivity, _open),
    *series_of(Estimate, _estimate),
    *series_of(Compile, attrgetter("figures.compile")),
    shared(CompileWorkers, _workers),
    shared(GpuSeconds, attrgetter("compile_gpu_seconds")),
    *series_of(Energy, attrgetter("energy")),
)


def _data_wait(view: RankView) -> float | None:
    """Not known for a training without a DataLoader."""
    steps = view.figures.steps
    return steps.batch_wait_seconds if steps.batches else None


def _collective_timeout(view: RankView) -> dict[str, float] | None:
    """The timeout of a living rank; an ended rank does not wait."""
    who = view.figures.who
    if who.collective_timeout_seconds is None or not view.living:
        return None
    backend = who.collective_backend
    name = backend if backend in BACKENDS else "other"
    return {name or "other": who.collective_timeout_seconds}


TRAINING_SERIES: tuple[Series[RankView], ...] = (
    *series_of(Warmup, attrgetter("figures.warmups.latest")),
    gauge(
        "warmwatch_first_warmup_seconds",
        "Length of the first warm-up, from the first compile activity to the end of its last; it "
        "stays. Absent until it ended.",
        lambda view: first.seconds if (first := view.figures.warmups.first) else None,
    ),
    *series_of(
        Who,
        attrgetter("figures.who"),
        {"collective_timeout_seconds": _collective_timeout},
    ),
    *series_of(Steps, attrgetter("figures.steps"), {"batch_wait_seconds": _data_wait}),
    *series_of(Progress, attrgetter("figures.progress")),
    *series_of(Stretch, attrgetter("figures.progress.stretch")),
    *series_of(Slower, attrgetter("slower")),
    shared(TypicalStep, attrgetter("figures.steps.clean.typical")),
    *series_of(Memory, attrgetter("figures.memory")),
    shared(Mfu, lambda view: view.utilization.ratio if view.utilization else None),
    *series_of(Pauses, attrgetter("figures.pauses")),
)


def _limit(view: RankView) -> LimitedBy | None:
    """Of a rank that has ended there is no series."""
    return view.limited_by if view.judgement.state in WARM else None


STATE_SERIES: tuple[Series[RankView], ...] = (
    gauge(
        "warmwatch_warm",
        "Whether the rank is warm or runs eagerly: nothing is left to wait for.",
        lambda view: view.judgement.warm,
    ),
    gauge(
        "warmwatch_compiling",
        "Whether compile activity is in progress now.",
        lambda view: view.judgement.compiling,
    ),
    shared(RankState, attrgetter("judgement.state.value")),
    shared(CleanSteps, attrgetter("judgement.clean_steps")),
    Series(
        name="warmwatch_condition",
        type="gauge",
        help=f"1 for each condition that holds: {', '.join(CONDITIONS)}; else 0.",
        label="condition",
        columns=CONDITIONS,
        read_columns=lambda view: one_hot(view.judgement.conditions, CONDITIONS),
    ),
    *series_of(LimitedBy, _limit),
)


PROCESS_SERIES: tuple[Series[RankView], ...] = (
    *series_of(Process, attrgetter("process")),
    *series_of(Agent, attrgetter("figures.agent")),
    shared(JournalUnread, attrgetter("figures.agent.incomplete_bytes")),
)


# How long an ended rank keeps all its series, so that a scrape sees their final values.
FINAL_SECONDS = 120.0

Ranks = Sequence[tuple[Labels, RankView]]

RANK_SERIES: tuple[Series[RankView], ...] = (
    *STATE_SERIES,
    *COMPILE_SERIES,
    *TRAINING_SERIES,
    *PROCESS_SERIES,
)


def families(snapshot: Snapshot) -> Iterator[Family]:
    ranks = [
        (Labels({"run": run.run, "rank": str(view.rank)}), view)
        for run in snapshot.runs
        for view in run.ranks
    ]
    ended = {labels for labels, view in ranks if _ended_long_ago(view, snapshot)}
    clocks = {labels: step for labels, view in ranks if (step := clock_step(view, snapshot))}
    for series in RANK_SERIES:
        family = series.family(ranks)
        if clocks and family.name.endswith("_timestamp_seconds"):
            family.rows = [
                (labels, _later(values, clocks.get(labels, 0.0))) for labels, values in family.rows
            ]
        if family.label:
            family.rows = [
                (labels, _without_zeros(values) if labels in ended else values)
                for labels, values in family.rows
            ]
        yield family
    yield _step_seconds([rank for rank in ranks if rank[0] not in ended])
    yield _run_info(ranks)
    yield _gpu_info(ranks)


def clock_step(view: RankView, snapshot: Snapshot) -> float:
    """By how many seconds the clock was set after the rank attached; 0 below a second.

    Its timestamps follow the clock of that time. What rules compute from them and the daemon's
    present time would be wrong by the step.
    """
    if view.reading is None or not view.reading.this_boot:
        return 0.0
    step = round(snapshot.epoch - view.reading.slot.header.epoch_seconds(snapshot.now_ns), 1)
    return step if abs(step) >= 1 else 0.0


def _later(values: Sequence[Value], seconds: float) -> Sequence[Value]:
    return [value + seconds if isinstance(value, float) else value for value in values]


def _ended_long_ago(view: RankView, snapshot: Snapshot) -> bool:
    """Whether the rank ended long enough ago for a scrape to have seen its final values."""
    since = view.figures.progress.state_since
    if view.living or since is None:
        return not view.living
    return snapshot.epoch - since - clock_step(view, snapshot) > FINAL_SECONDS


def _without_zeros(values: Sequence[Value]) -> Sequence[Value]:
    """The values of an ended rank that are not 0; the first, if all are, since 0 is not unknown."""
    if any(values):
        return [value or None for value in values]
    number = next((at for at, value in enumerate(values) if value is not None), None)
    return [value if at == number else None for at, value in enumerate(values)]


def _step_seconds(ranks: Ranks) -> Family:
    family = Family(
        name="warmwatch_step_seconds",
        help="Length of steps: clean ones, and of those with compile activity count and sum.",
        type="histogram",
        label="kind",
        columns=("clean", "compile"),
        bounds=BUCKET_SECONDS,
    )
    for labels, view in ranks:
        steps = view.figures.steps
        touched = _distribution(steps.touched)
        whole = touched and replace(touched, upto=())  # they are few, and no two are alike
        family.rows.append((labels, (_distribution(steps.clean), whole)))
    return family


def _distribution(lengths: Lengths) -> Distribution | None:
    upto = lengths.upto
    if upto is None or lengths.count is None or lengths.sum_seconds is None:
        return None
    return Distribution(upto=upto, count=lengths.count, sum=lengths.sum_seconds)


def _run_info(ranks: Ranks) -> Family:
    """Labels of a rank; a label is empty, which means absent, if its value is not known."""
    family = Family(name="warmwatch_run", help="What the rank runs on.", type="info")
    for labels, view in ranks:
        figures, who = view.figures, view.figures.who
        facts = {
            "torch": who.torch,
            "python": who.python,
            "agent": figures.agent.version,
            "launcher": who.launcher,
            "host": who.host,
            "owner": who.owner,
            "launch": who.launch,
            "warm_steps": str(figures.warmups.clean_steps_needed),
            "world_size": None if who.world_size is None else str(who.world_size),
        }
        values = {name: value or "" for name, value in facts.items()}
        family.add(Labels({**labels.values, **values, **who.labels}), 1)
    return family


def _gpu_info(ranks: Ranks) -> Family:
    family = Family(name="warmwatch_rank_gpu", help="The GPUs of a rank.", type="info")
    for labels, view in ranks:
        # a record can claim any GPU in `reported_gpus`
        for gpu in view.gpus if view.living else ():
            family.add(Labels({**labels.values, "uuid": gpu.uuid}), 1)
    return family


def end_families(snapshot: Snapshot) -> Iterator[Family]:
    """How ranks and runs ended, and since when a run compiles.

    Labels are closed lists, or the type of an exception: its text is in no label.
    """
    ended = Family(
        name="warmwatch_end",
        help="How the rank ended; its exit code, the signal that killed it and the type of its "
        "exception where they are known.",
        type="info",
    )
    restarts = Family(
        name="warmwatch_restart_possible",
        help="1 if the torchrun of an ended rank may start it again: it lives, or cannot be seen.",
        type="gauge",
    )
    killed, together = family_of(OutOfMemory), family_of(EndedTogether)
    compiling = Family(
        name="warmwatch_run_compiling_start_timestamp_seconds",
        help="Since when the run compiles: the first compile activity of any of its ranks, without "
        "a step since; absent while no rank compiles.",
        type="gauge",
    )
    for run in snapshot.runs:
        stretch = run.stretch
        for view in run.ranks if stretch else ():
            its = view.figures.progress.stretch
            if its and stretch and its.began_at == stretch.began_at:
                began_at = stretch.began_at + clock_step(view, snapshot)
                compiling.add(Labels({"run": run.run}), began_at)
                break
        together.add(Labels({"run": run.run}), run.ended_together)
        for view in run.ranks:
            who = {"run": run.run, "rank": str(view.rank)}
            if how := view.end:
                ended.add(Labels({**who, "end": how, **_cause(view)}), 1)
            killed.add(Labels(who), view.oom_killed)
            if view.reading is not None and not view.living:
                restarts.add(Labels(who), view.reading.restart_possible)
    yield ended
    yield restarts
    yield killed
    yield together
    yield compiling


def _cause(view: RankView) -> dict[str, str]:
    life = view.figures.life
    return {
        "exit_code": "" if life.exit_code is None else str(life.exit_code),
        "signal": life.signal or "",
        "exception": life.exception or "",
    }
