"""All series of one rank, in the order in which /metrics lists them.

Names, types and labels are public. Counters of a rank that has ended keep their last value until it
leaves; ``warmwatch_warm`` and ``warmwatch_compiling`` are then 0 and ``warmwatch_state`` says how
it ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from warmwatch.verdict import CONDITIONS, State
from warmwatch_monitor.export.series.compile import COMPILE_SERIES
from warmwatch_monitor.export.series.family import Distribution, Family
from warmwatch_monitor.export.series.labels import Labels
from warmwatch_monitor.export.series.table import Series, counter, gauge, gauges, one_hot
from warmwatch_monitor.model import (
    BACKENDS,
    BUCKET_SECONDS,
    MEMORY,
    Lengths,
    RankView,
    Snapshot,
)

STATES = tuple(state.value for state in State)

Ranks = Sequence[tuple[Labels, RankView]]


def _warmup_end(view: RankView) -> float | None:
    ended = view.figures.warmups.latest
    return None if ended is None else ended.ended_at


def _warmup_seconds(view: RankView) -> float | None:
    ended = view.figures.warmups.latest
    return None if ended is None else ended.seconds


def _first_warmup_seconds(view: RankView) -> float | None:
    first = view.figures.warmups.first
    return None if first is None else first.seconds


def _warmup_steps(view: RankView) -> float | None:
    ended = view.figures.warmups.latest
    return None if ended is None else ended.steps


def _collective_timeout(view: RankView) -> dict[str, float] | None:
    """Of a rank that lives: what has ended waits for nobody."""
    who = view.figures.who
    if who.collective_timeout_seconds is None or not view.living:
        return None
    backend = who.collective_backend
    known = backend if backend in BACKENDS else "other"
    return {known or "other": who.collective_timeout_seconds}


def _data_wait(view: RankView) -> float | None:
    """Of a training that asks no DataLoader, nobody knows how long it waits for its data."""
    steps = view.figures.steps
    return steps.batch_wait_seconds if steps.batches else None


def _torch_memory(view: RankView) -> Mapping[str, float] | None:
    memory = view.figures.memory
    return None if memory is None else memory.bytes


_STATE_SERIES: tuple[Series[RankView], ...] = (
    gauge(
        "warmwatch_warm",
        "Whether nothing is left to wait for: the rank is warm or runs eagerly.",
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
        f"1 for what holds beside the state: {', '.join(CONDITIONS)}; else 0.",
        "condition",
        CONDITIONS,
        lambda view: one_hot(view.judgement.conditions, CONDITIONS),
    ),
)
_TRAINING_SERIES: tuple[Series[RankView], ...] = (
    gauge(
        "warmwatch_warmup_seconds",
        "Length of the latest warm-up, which a recompile opens again (the first one: "
        "warmwatch_first_warmup_seconds); absent until it ended and while it is open again.",
        _warmup_seconds,
    ),
    gauge(
        "warmwatch_first_warmup_seconds",
        "Length of the first warm-up, from the first compile activity to the end of its last; it "
        "stays. Absent until it ended.",
        _first_warmup_seconds,
    ),
    gauge(
        "warmwatch_warmup_steps",
        "Steps that the latest warm-up took; absent until it ended and while it is open again.",
        _warmup_steps,
    ),
    gauge(
        "warmwatch_warmup_end_timestamp_seconds",
        "When the latest warm-up ended; absent until then and while it is open again.",
        _warmup_end,
    ),
    gauge(
        "warmwatch_attach_timestamp_seconds",
        "When the agent attached to the training process.",
        lambda view: view.figures.who.attached_at,
    ),
    gauge(
        "warmwatch_world_size",
        "Ranks of the whole run as its launcher says, those on other hosts included.",
        lambda view: view.figures.who.world_size,
    ),
    gauges(
        "warmwatch_collective_timeout_seconds",
        "After which the rank's collectives give up, the shortest of its process groups, with that "
        "one's backend; absent where there is none.",
        "backend",
        BACKENDS,
        _collective_timeout,
    ),
    counter("warmwatch_steps_total", "Training steps.", lambda view: view.figures.steps.count),
    gauge(
        "warmwatch_last_step_timestamp_seconds",
        "When the last step ended.",
        lambda view: view.figures.steps.last_at,
    ),
    gauge(
        "warmwatch_steady_step_seconds",
        "The real speed: median length of the clean steps, within 2.5 % of the true one.",
        lambda view: view.figures.steps.clean.median,
    ),
    gauge(
        "warmwatch_stall_limit_seconds",
        "How long the rank may go without a step before it counts as stalled.",
        lambda view: view.figures.progress.stall_limit_seconds,
    ),
    gauges(
        "warmwatch_torch_memory_bytes",
        "What CUDA's caching allocator held when it was last looked at, at rare moments (the end "
        "of a compilation, warm); peaks since the program reset them. Absent until CUDA is up.",
        "kind",
        MEMORY,
        _torch_memory,
    ),
    counter(
        "warmwatch_tokens_total",
        "Tokens trained on: steps times what the user said a step is worth.",
        lambda view: view.figures.steps.tokens,
    ),
    counter(
        "warmwatch_samples_total",
        "Samples trained on: steps times what the user said a step is worth.",
        lambda view: view.figures.steps.samples,
    ),
    gauge(
        "warmwatch_mfu_ratio",
        "Model FLOPs utilization of the clean steps, against the dense peak of the rank's GPUs.",
        lambda view: view.utilization.ratio if view.utilization else None,
    ),
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
        "Errors of the agent's own that it swallowed.",
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
)
_BATCH_SERIES: tuple[Series[RankView], ...] = (
    counter(
        "warmwatch_batches_total",
        "Batches that DataLoaders handed out to the training.",
        lambda view: view.figures.steps.batches,
    ),
    counter(
        "warmwatch_data_wait_seconds_total",
        "Time in which the training waited for the next batch; absent until there was one.",
        _data_wait,
    ),
    gauge(
        "warmwatch_last_batch_timestamp_seconds",
        "When the last batch was handed out.",
        lambda view: view.figures.steps.last_batch_at,
    ),
)
_PAUSE_SERIES: tuple[Series[RankView], ...] = (
    counter(
        "warmwatch_checkpoint_seconds_total",
        "Time in which the training saved checkpoints and waited for it, the one in progress "
        "included.",
        lambda view: view.figures.pauses.saving_seconds,
    ),
    gauge(
        "warmwatch_checkpoint_start_timestamp_seconds",
        "When the save in progress began; absent where none is.",
        lambda view: view.figures.pauses.saving_since,
    ),
    counter(
        "warmwatch_evaluation_seconds_total",
        "Time in which the training evaluated, the one in progress included; absent until one was "
        "told of.",
        lambda view: view.figures.pauses.evaluating_seconds,
    ),
    counter(
        "warmwatch_evaluations_total",
        "Evaluations that have ended; absent until one was told of.",
        lambda view: view.figures.pauses.evaluations,
    ),
    gauge(
        "warmwatch_evaluation_start_timestamp_seconds",
        "When the evaluation in progress began; absent where none is.",
        lambda view: view.figures.pauses.evaluating_since,
    ),
)
RANK_SERIES: tuple[Series[RankView], ...] = (
    *_STATE_SERIES,
    *COMPILE_SERIES,
    *_TRAINING_SERIES,
    *_BATCH_SERIES,
    *_PAUSE_SERIES,
)


def families(snapshot: Snapshot) -> Iterator[Family]:
    """Every family of the ranks of ``snapshot``."""
    ranks = [
        (Labels({"run": run.run, "rank": str(view.rank)}), view)
        for run in snapshot.runs
        for view in run.ranks
    ]
    for series in RANK_SERIES:
        yield series.family(ranks)
    yield _step_seconds(ranks)
    yield _run_info(ranks)
    yield _gpu_info(ranks)


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
    if lengths.upto is None or lengths.count is None or lengths.sum_seconds is None:
        return None
    return Distribution(upto=lengths.upto, count=lengths.count, sum=lengths.sum_seconds)


def _run_info(ranks: Ranks) -> Family:
    """A label is empty, which is to say absent, where its fact is not known."""
    family = Family(name="warmwatch_run", help="What the rank runs on.", type="info")
    for labels, view in ranks:
        figures, who = view.figures, view.figures.who
        facts = {
            "torch": who.torch,
            "python": who.python,
            "agent": figures.agent.version,
            "launcher": who.launcher,
            "host": who.host,
            "warm_steps": str(figures.warmups.clean_steps_needed),
            "world_size": None if who.world_size is None else str(who.world_size),
        }
        known = {name: value or "" for name, value in facts.items()}
        family.add(Labels({**labels.values, **known}), 1)
    return family


def _gpu_info(ranks: Ranks) -> Family:
    family = Family(name="warmwatch_rank_gpu", help="Which GPU is whose.", type="info")
    for labels, view in ranks:
        for uuid in view.gpu_uuids if view.living else ():
            family.add(Labels({**labels.values, "uuid": uuid}), 1)
    return family
