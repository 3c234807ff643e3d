"""All series of one rank, in the order in which /metrics lists them.

Names, types and labels are public. Counters of a rank that has ended keep their last value until it
leaves; ``warmwatch_warm`` and ``warmwatch_compiling`` are then 0 and ``warmwatch_state`` says how
it ended.
"""

from __future__ import annotations

from warmwatch.verdict import CONDITIONS, State
from warmwatch_monitor.export import figures
from warmwatch_monitor.export.compile_series import COMPILE_SERIES
from warmwatch_monitor.export.series import Rank, Series, counter, gauge, one_hot

STATES = tuple(state.value for state in State)


def _warmup_end(rank: Rank) -> float | None:
    ended = rank.warmup
    return None if ended is None else rank.slot.header.epoch_seconds(ended.ended_ns)


def _warmup_seconds(rank: Rank) -> float | None:
    ended = rank.warmup
    return None if ended is None else (ended.ended_ns - ended.began_ns) / 1e9


def _epoch(rank: Rank, monotonic_ns: int | None) -> float | None:
    return rank.slot.header.epoch_seconds(monotonic_ns) if monotonic_ns else None


def _steady(rank: Rank) -> float | None:
    median_ns = figures.median_step_ns(rank.slot)
    return None if median_ns is None else median_ns / 1e9


_STATE_SERIES = (
    gauge(
        "warmwatch_warm",
        "Whether nothing is left to wait for: the rank is warm or runs eagerly.",
        lambda rank: rank.view.judgement.warm,
    ),
    gauge(
        "warmwatch_compiling",
        "Whether compile activity is in progress now.",
        lambda rank: rank.view.judgement.compiling,
    ),
    Series(
        name="warmwatch_state",
        type="gauge",
        help="1 for the state that the rank is in, 0 for the others.",
        label="state",
        values=STATES,
        read=lambda rank: one_hot(rank.view.judgement.state.value, STATES),
    ),
    gauge(
        "warmwatch_state_start_timestamp_seconds",
        "When the present state began.",
        lambda rank: _epoch(rank, rank.view.judgement.since_ns),
    ),
    gauge(
        "warmwatch_clean_steps",
        "Steps in a row without compile activity, up to now.",
        lambda rank: rank.view.judgement.clean_steps,
    ),
    Series(
        name="warmwatch_condition",
        type="gauge",
        help="1 for what holds beside the state: thrashing, fallback, unknown; else 0.",
        label="condition",
        values=CONDITIONS,
        read=lambda rank: [float(c in rank.view.judgement.conditions) for c in CONDITIONS],
    ),
)
_TRAINING_SERIES = (
    gauge(
        "warmwatch_warmup_seconds",
        "Length of the latest warm-up; absent until it ended and while it is open again.",
        _warmup_seconds,
    ),
    gauge(
        "warmwatch_warmup_steps",
        "Steps that the latest warm-up took; absent until it ended and while it is open again.",
        lambda rank: None if rank.warmup is None else rank.warmup.steps,
    ),
    gauge(
        "warmwatch_warmup_end_timestamp_seconds",
        "When the latest warm-up ended; absent until then and while it is open again.",
        _warmup_end,
    ),
    gauge(
        "warmwatch_attach_timestamp_seconds",
        "When the agent attached to the training process.",
        lambda rank: _epoch(rank, rank.slot.header.attached_ns),
    ),
    gauge(
        "warmwatch_world_size",
        "Ranks of the whole run as its launcher says, those on other hosts included.",
        lambda rank: rank.slot.identity.world_size,
    ),
    counter("warmwatch_steps_total", "Training steps.", lambda rank: rank.slot.steps.steps),
    gauge(
        "warmwatch_last_step_timestamp_seconds",
        "When the last step ended.",
        lambda rank: _epoch(rank, rank.slot.steps.last_step_ns),
    ),
    gauge(
        "warmwatch_steady_step_seconds",
        "The real speed: median length of the clean steps, exact to two figures.",
        _steady,
    ),
    gauge(
        "warmwatch_stall_limit_seconds",
        "How long the rank may go without a step before it counts as stalled.",
        lambda rank: figures.stall_limit_ns(rank.view) / 1e9,
    ),
    counter(
        "warmwatch_tokens_total",
        "Tokens trained on: steps times what the user said a step is worth.",
        lambda rank: rank.slot.tokens,
    ),
    counter(
        "warmwatch_samples_total",
        "Samples trained on: steps times what the user said a step is worth.",
        lambda rank: rank.slot.samples,
    ),
    counter(
        "warmwatch_process_cpu_seconds_total",
        "CPU time of the training process.",
        lambda rank: None if rank.process is None else rank.process.cpu_seconds,
    ),
    gauge(
        "warmwatch_process_resident_memory_bytes",
        "Resident memory of the training process.",
        lambda rank: None if rank.process is None else rank.process.resident_bytes,
    ),
    gauge(
        "warmwatch_process_threads",
        "Threads of the training process.",
        lambda rank: None if rank.process is None else rank.process.threads,
    ),
    counter(
        "warmwatch_agent_errors_total",
        "Errors of the agent's own that it swallowed.",
        lambda rank: rank.compile.agent_errors,
    ),
    counter(
        "warmwatch_journal_dropped_lines_total",
        "Journal lines that the agent could not write.",
        lambda rank: rank.compile.journal_dropped,
    ),
)
RANK_SERIES: tuple[Series, ...] = (*_STATE_SERIES, *COMPILE_SERIES, *_TRAINING_SERIES)
