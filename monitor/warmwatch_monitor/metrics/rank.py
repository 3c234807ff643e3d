"""Metrics of a rank: state, process, end, and the order of all its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warmwatch.shared.states import CONDITIONS, LIMITS, WARM, State
from warmwatch_monitor.metrics.compile import COMPILE_SERIES
from warmwatch_monitor.metrics.families import (
    Distribution,
    Family,
    Labels,
    Series,
    Value,
    counter,
    gauge,
    gauges,
    one_hot,
)
from warmwatch_monitor.metrics.training import PAUSE_SERIES, TRAINING_SERIES
from warmwatch_monitor.model import BUCKET_SECONDS, Lengths, LimitedBy, RankView, Snapshot

STATES = tuple(state.value for state in State)


def _limit(view: RankView) -> LimitedBy | None:
    """Of a rank that has ended there is no series."""
    return view.limited_by if view.judgement.state in WARM else None


def _limits(view: RankView) -> dict[str, float] | None:
    known = _limit(view)
    return one_hot([known.verdict], LIMITS) if known else None


def _limit_share(view: RankView) -> float | None:
    known = _limit(view)
    return known.share if known else None


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
    gauges(
        "warmwatch_state",
        "1 for the state that the rank is in, 0 for the others.",
        "state",
        STATES,
        lambda view: one_hot([view.judgement.state.value], STATES),
    ),
    gauge(
        "warmwatch_state_start_timestamp_seconds",
        "When the present state began.",
        lambda view: view.figures.progress.state_since,
    ),
    gauge(
        "warmwatch_clean_steps",
        "Steps in a row without compile activity, up to now.",
        lambda view: view.judgement.clean_steps,
    ),
    gauges(
        "warmwatch_condition",
        f"1 for each condition that holds: {', '.join(CONDITIONS)}; else 0.",
        "condition",
        CONDITIONS,
        lambda view: one_hot(view.judgement.conditions, CONDITIONS),
    ),
    gauges(
        "warmwatch_limited_by",
        "1 for what limits the speed of a rank that is warm or eager, 0 for the others; absent "
        "where that is not known.",
        "limit",
        LIMITS,
        _limits,
    ),
    gauge(
        "warmwatch_limited_share_ratio",
        "Share of the time that the limit in warmwatch_limited_by takes; absent where only the "
        "limit is known.",
        _limit_share,
    ),
)


PROCESS_SERIES: tuple[Series[RankView], ...] = (
    counter(
        "warmwatch_process_cpu_seconds_total",
        "CPU time of the training process.",
        lambda view: None if view.process is None else view.process.cpu_seconds,
    ),
    gauge(
        "warmwatch_process_resident_memory_bytes",
        "Resident memory of the training process.",
        lambda view: None if view.process is None else view.process.resident_bytes,
    ),
    gauge(
        "warmwatch_process_threads",
        "Threads of the training process.",
        lambda view: None if view.process is None else view.process.threads,
    ),
    counter(
        "warmwatch_agent_errors_total",
        "Errors in the agent, which it caught.",
        lambda view: view.figures.agent.errors,
    ),
    counter(
        "warmwatch_journal_dropped_lines_total",
        "Journal lines that the agent could not write.",
        lambda view: view.figures.agent.lines_dropped,
    ),
    gauge(
        "warmwatch_journal_lines_refused",
        "Lines of the rank's journal that cannot be read.",
        lambda view: view.figures.agent.lines_broken,
    ),
    gauge(
        "warmwatch_journal_unread_bytes",
        "Bytes of the rank's journal that the monitor has not read yet, or skips.",
        lambda view: view.figures.agent.incomplete_bytes,
    ),
)


# How long an ended rank keeps all its series, so that a scrape sees their final values.
FINAL_SECONDS = 120.0

Ranks = Sequence[tuple[Labels, RankView]]

RANK_SERIES: tuple[Series[RankView], ...] = (
    *STATE_SERIES,
    *COMPILE_SERIES,
    *TRAINING_SERIES,
    *PROCESS_SERIES,
    *PAUSE_SERIES,
)


def families(snapshot: Snapshot) -> Iterator[Family]:
    ranks = [
        (Labels({"run": run.run, "rank": str(view.rank)}), view)
        for run in snapshot.runs
        for view in run.ranks
    ]
    ended = {labels for labels, view in ranks if _ended_long_ago(view, snapshot.epoch)}
    for series in RANK_SERIES:
        family = series.family(ranks)
        if family.label:
            family.rows = [
                (labels, _without_zeros(values) if labels in ended else values)
                for labels, values in family.rows
            ]
        yield family
    yield _step_seconds([one for one in ranks if one[0] not in ended])
    yield _run_info(ranks)
    yield _gpu_info(ranks)


def _ended_long_ago(view: RankView, epoch: float) -> bool:
    """Whether the rank ended long enough ago for a scrape to have seen its final values."""
    since = view.figures.progress.state_since
    return not view.living and (since is None or epoch - since > FINAL_SECONDS)


def _without_zeros(values: Sequence[Value]) -> Sequence[Value]:
    """The values of an ended rank that are not 0; the first, if all are, since 0 is not unknown."""
    if any(values):
        return [value or None for value in values]
    known = next((at for at, value in enumerate(values) if value is not None), None)
    return [value if at == known else None for at, value in enumerate(values)]


def _step_seconds(ranks: Ranks) -> Family:
    family = Family(
        name="warmwatch_step_seconds",
        help="Length of steps: clean ones, and those with compile activity.",
        type="histogram",
        label="kind",
        columns=("clean", "compile"),
        bounds=BUCKET_SECONDS,
    )
    for labels, view in ranks:
        steps = view.figures.steps
        family.rows.append((labels, (_distribution(steps.clean), _distribution(steps.touched))))
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
        known = {name: value or "" for name, value in facts.items()}
        family.add(Labels({**labels.values, **known}), 1)
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

    Labels are closed lists: exceptions have no text.
    """
    ended = Family(
        name="warmwatch_end",
        help="How the rank ended; its exit code where it is known.",
        type="info",
    )
    killed = Family(
        name="warmwatch_oom_killed",
        help="Whether the kernel killed the lost rank because memory ran out; absent if unknown.",
        type="gauge",
    )
    together = Family(
        name="warmwatch_run_ended_together",
        help="Whether all ranks of the run that this host has ended within seconds; absent where "
        "none has, and where that is not known.",
        type="gauge",
    )
    compiling = Family(
        name="warmwatch_run_compiling_start_timestamp_seconds",
        help="Since when the run compiles: the first compile activity of any of its ranks, without "
        "a step since; absent while no rank compiles.",
        type="gauge",
    )
    for run in snapshot.runs:
        stretch = run.stretch
        compiling.add(Labels({"run": run.run}), stretch.began_at if stretch else None)
        together.add(Labels({"run": run.run}), run.ended_together)
        for view in run.ranks:
            who = {"run": run.run, "rank": str(view.rank)}
            if how := view.end:
                ended.add(Labels({**who, "end": how, "exit_code": _exit_code(view)}), 1)
            killed.add(Labels(who), view.oom_killed)
    yield ended
    yield killed
    yield together
    yield compiling


def _exit_code(view: RankView) -> str:
    code = view.figures.life.exit_code
    return "" if code is None else str(code)
