"""A slot's content as values: blocks, identity, and the whole slot.

All frozen. Counts are cumulative; ``*_ns`` are monotonic nanoseconds, 0 meaning "not yet".

The layout of a counter block follows from its fields.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from warmwatch.shared.record.recent import (
    HALF_A_BIN,
    Trend,
    length_ns,
    level_ns,
    quantile_ns,
    queued_ns,
    recent_lengths,
    unsettled,
    vary,
)
from warmwatch.shared.values import CACHES, CATEGORIES, KINDS, MEMORY, MOST_PLAIN, PHASES

MOST_TOUCHED = 10


class StepCounts(NamedTuple):
    """The hot words: only values that change at every step. Each field is an independent word.

    Attributes:
        steps: optimizer steps, or explicit marks, so far.
        last_step_ns: when the last step was marked.
        last_duration_ns: its length; 0 if its begin was not marked. A regular step stores it only
            in the ring (see ``recent``), from which ``unpack`` takes it.
        batches: batches that a ``torch.utils.data.DataLoader`` returned in this process.
        last_batch_ns: the time of the last one. batch_wait_ns: time spent in ``next()`` for them,
            without evaluations.
    """

    steps: int = 0
    last_step_ns: int = 0
    last_duration_ns: int = 0
    batches: int = 0
    last_batch_ns: int = 0
    batch_wait_ns: int = 0


class Warmup(NamedTuple):
    """One warm-up, from its first activity (or step) to the last activity's end.

    Attributes:
        began_ns: its first activity, or the first step if that came earlier.
        ended_ns: the end of its last activity.
        warm_ns: when the K-th clean step after it was marked.
        steps: its number of steps, including the one with its last activity.
    """

    began_ns: int = 0
    ended_ns: int = 0
    warm_ns: int = 0
    steps: int = 0


class CompileCounts(NamedTuple):
    """The compile block: all compile facts, cumulative, and a few other rare values.

    Attributes:
        begun, ended: outermost intervals of compile activity in this process.
        active_since_ns: begin of the one in progress; 0 if there is none.
        active_phase: 1 + its phase's position in PHASES; 0 if there is none.
        accounted_ns: time up to which ``phase_ns`` accounts for the one in progress.
        first_begin_ns, last_end_ns: begin of the first activity, end of the last.
        graphs, failures: as Dynamo counts them. graph_breaks: also those that it does not count.
        recompiles_after_warm: recompiles after the rank had been warm, and functions that a reset
            of Dynamo made compile again.
        fallbacks: functions of which some calls run eagerly: frames that hit the recompile limit,
            and those of the two words below.
        asynchronous: 1 if a mode was on that swaps in compiled code later, without an event.
        clean_after: the number of the last step that was not clean; all later ones were, unless
            activity has begun since.
        activities_seen: ``begun`` at the last irregular step; if it differs now, activity has begun
            since and there are no clean steps.
        first_step_ns, first_duration_ns: mark and length (0: unknown) of step 1, which begins as
            ``warmwatch.ledger.counters`` decides.
        irregular_step_ns: mark of the last step that was the first or had activity; all since were
            clean. clean_sum_ns: total length of the clean steps before it.
        compile_step_sum_ns: total length of steps with activity, without pauses. longest_rest_ns:
            the longest of them, without its compile activity.
        warmups: how many times the rank became warm.
        episode_began_ns, episode_began_steps: begin of the warm-up now open, steps before it.
        end_code: position in ENDS; ``ended_ns`` is when.
        agent_errors: errors in the agent, which it caught.
        journal_dropped: journal lines that could not be written.
        first_warmup, last_warmup: the first warm-up and the latest one that ended.
        touched_steps: numbers of the last steps that were not clean, newest first.
        phase_ns: exclusive time of each of PHASES. compilations: of each of KINDS.
        recompiles_by_category: of each of CATEGORIES. cache_hits, cache_misses: of each of CACHES.
        graphs_before: graphs that Dynamo had captured before this record began.
        tokens_per_step, samples_per_step: the user's values for each step after number
            ``worth_since``; 0 if unknown. tokens_before, samples_before: the sums up to that step,
            so a changed value does not change them (see ``Slot.tokens``).
        exit_code: 1 + the exit code, 0 to 255; 0 if it was unknown when ``end_code`` was stored
            (see ``record.with_exit_code``).
        longest_activity_ns: length of the longest activity that has ended.
        progress_of: 1 + its position in PROGRESS: what the activity in progress counts; 0 if it
            counts nothing. progress_done, progress_total: the number done, and the total.
        wrappers: the number of functions and modules passed to ``torch.compile``.
        disabled: position in DISABLED.
        cudagraph_skips: how often requested CUDA graphs were skipped.
        memory: bytes of CUDA's caching allocator, by MEMORY, over the process's devices, as of
            ``memory_ns``; 0 means never read.
        saving_ns: time spent in ``torch.save`` and similar functions;
            saving_since_ns: begin of the one in progress, 0 if there is none; saved_ns: end of the
            last one. Only saves that the training waited for.
        evaluating_ns, evaluating_since_ns, evaluated_ns: the same for evaluations that a framework
            or the user reports, without saves within them; evaluations: the number that have ended.
        between_cells_ns, between_cells_since_ns, between_cells_until_ns: the same for the times in
            which no cell of a notebook or an interactive IPython runs.
        quiet_ns: how long nothing may compile before a process without steps counts as warm; 0:
            never. longest_gap_ns: the longest time between two activities of one warm-up.
            optimizers: 1 if the process made an optimizer of ``torch.optim``.
        settled: 1 + ``begun`` when a warm-up last ended without steps, 0 if none did; settled_ns:
            that time; settled_by: position in SETTLED_BY.
        background: activities of ``begun`` that were in progress on other threads when a step was
            marked, and did not hold it up: background compilation.
        background_since_ns: begin of the oldest background compilation in progress; 0 if there is
            none. background_ns: time of the ended ones, added up over threads;
            background_ended_ns: end of the last one.
        precompiled: a bit for each of PRECOMPILED that runs.
        disabled_since_steps: the number of steps when ``disabled`` last changed.
        eager_calls: calls of compiled functions that the stance ``force_eager`` ran eagerly;
            eager_calls_since: the step of the first. refused_calls, refused_calls_since: the same
            for calls that ``fail_on_recompile`` refused; on_recompile_calls,
            on_recompile_calls_since: for all calls under ``eager_on_recompile``, as nothing shows
            which of them ran eagerly. uncompiled_step: the step of the last one of any.
        background_saving_ns: time of saves on threads that do not mark steps;
            background_saving_since_ns: begin of the one in progress, 0 if there is none.
        allocator_retries: 1 + the number of times that CUDA's caching allocator found no memory,
            freed its cache, and tried again, as of ``memory_ns``.
        uncompiled_evaluations: evaluations in which no compiled function was called.
        evaluation_batches, evaluation_batches_ns: batches of the evaluations in which nothing
            compiled, and the length of those evaluations.
        requested_at: 1 + the number of steps at the last call of ``torch.compile`` with an object
            that trains (see ``hooks.dynamo.compile_calls``); 0 if there was none.
        clean_sum_before_ns: ``clean_sum_ns`` at step ``clean_after``. waited_before_ns: the same of
            ``batch_wait_ns``.
        before_first_step_ns: compile time before step 1 began, as in an evaluation; as known so far
            if that step is not marked.
        compiling_since_ns: begin of the first activity since the last step, as a
            backward is compiled after its forward has run; compiling_before_ns: compile time
            before it. In a process without steps, only short pauses are between it and the last.
        repeated: for how many steps in a row one function has compiled again, or failed to compile,
            up to the step ``repeated_step``, counted from 1; 0 if none has.
        paused_before_ns: saves and evaluations before the first activity, or before the end of step
            1 if that came earlier. paused_warmup_ns: those between the activities of the first
            warm-up.
        unfused: functions that called ``flex_attention`` uncompiled. skipped: functions that got a
            new input while ``torch._dynamo.config.disable`` was set, or ran in a dispatch mode.
        plain: of each of PLAIN, then 0.
    """

    begun: int = 0
    ended: int = 0
    active_since_ns: int = 0
    active_phase: int = 0
    accounted_ns: int = 0
    first_begin_ns: int = 0
    last_end_ns: int = 0
    graphs: int = 0
    graph_breaks: int = 0
    failures: int = 0
    recompiles_after_warm: int = 0
    fallbacks: int = 0
    asynchronous: int = 0
    clean_after: int = 0
    activities_seen: int = 0
    first_step_ns: int = 0
    first_duration_ns: int = 0
    irregular_step_ns: int = 0
    clean_sum_ns: int = 0
    compile_step_sum_ns: int = 0
    longest_rest_ns: int = 0
    warmups: int = 0
    episode_began_ns: int = 0
    episode_began_steps: int = 0
    end_code: int = 0
    ended_ns: int = 0
    agent_errors: int = 0
    journal_dropped: int = 0
    first_warmup: Warmup = Warmup()
    last_warmup: Warmup = Warmup()
    touched_steps: tuple[int, ...] = (0,) * MOST_TOUCHED
    phase_ns: tuple[int, ...] = (0,) * len(PHASES)
    compilations: tuple[int, ...] = (0,) * len(KINDS)
    recompiles_by_category: tuple[int, ...] = (0,) * len(CATEGORIES)
    cache_hits: tuple[int, ...] = (0,) * len(CACHES)
    cache_misses: tuple[int, ...] = (0,) * len(CACHES)
    graphs_before: int = 0
    tokens_per_step: int = 0
    samples_per_step: int = 0
    tokens_before: int = 0
    samples_before: int = 0
    worth_since: int = 0
    exit_code: int = 0
    longest_activity_ns: int = 0
    progress_of: int = 0
    progress_done: int = 0
    progress_total: int = 0
    wrappers: int = 0
    disabled: int = 0
    cudagraph_skips: int = 0
    memory: tuple[int, ...] = (0,) * len(MEMORY)
    memory_ns: int = 0
    saving_ns: int = 0
    saving_since_ns: int = 0
    saved_ns: int = 0
    evaluating_ns: int = 0
    evaluating_since_ns: int = 0
    evaluated_ns: int = 0
    evaluations: int = 0
    between_cells_ns: int = 0
    between_cells_since_ns: int = 0
    between_cells_until_ns: int = 0
    quiet_ns: int = 0
    longest_gap_ns: int = 0
    optimizers: int = 0
    settled: int = 0
    settled_ns: int = 0
    settled_by: int = 0
    background: int = 0
    background_since_ns: int = 0
    background_ns: int = 0
    background_ended_ns: int = 0
    precompiled: int = 0
    disabled_since_steps: int = 0
    eager_calls: int = 0
    eager_calls_since: int = 0
    refused_calls: int = 0
    refused_calls_since: int = 0
    uncompiled_step: int = 0
    background_saving_ns: int = 0
    background_saving_since_ns: int = 0
    allocator_retries: int = 0
    uncompiled_evaluations: int = 0
    evaluation_batches: int = 0
    evaluation_batches_ns: int = 0
    requested_at: int = 0
    clean_sum_before_ns: int = 0
    before_first_step_ns: int = 0
    compiling_since_ns: int = 0
    paused_before_ns: int = 0
    paused_warmup_ns: int = 0
    compiling_before_ns: int = 0
    repeated: int = 0
    repeated_step: int = 0
    waited_before_ns: int = 0
    unfused: int = 0
    skipped: int = 0
    on_recompile_calls: int = 0
    on_recompile_calls_since: int = 0
    plain: tuple[int, ...] = (0,) * MOST_PLAIN


class Identity(NamedTuple):
    """The process that a record describes. Unknown strings are empty, unknown numbers ``None``.

    Attributes:
        run: the run's name. launch: an id that all ranks of one launch on a host share:
            ``slurm:JOB.STEP``, ``ray:JOB``, or ``parent:`` or ``process:`` with an id of that
            process: ``PID:PID_NAMESPACE:START``, empty if unknown.
        rank, local_rank, world_size: from the launcher or ``torch.distributed``.
        attempt: restarts of the same run by its launcher or its scheduler, from 0.
        launcher: ``torchelastic``, ``ray``, ``slurm``, ``mpi``, ``env`` or ``""``.
        pid: in the training's own pid namespace; a reader gets its own view from the lock.
        boot_id: of the kernel, so that monotonic times are not compared across reboots.
        clock_offset_ns: offset of the process's time namespace to the machine's monotonic clock;
            ``None`` if the kernel does not report it.
        hooks: installed hook points; ``missing``: those that this torch does not have.
        gpus: uuids of the CUDA devices that the process uses, ``GPU-...`` or ``MIG-...``, in the
            order of its own indices; empty until CUDA is initialized.
        tokens_per_step, samples_per_step, flops_per_step: the user's values.
        parameters: of the model, set by the user; parameters_seen: those that its optimizers hold.
        dtype: the dtype of its computation, one of ``values.DTYPES``, set by the user.
        collective_timeout: the shortest timeout of the process's process groups in seconds;
            ``None`` if there are none. collective_backend: the backend of that group, such as
            ``nccl``.
        started_by: the ``warmwatch run`` that started it and stays its parent; else empty.
        script: its base name. commit: the one checked out in the script's repository.
        cuda, triton: versions, if they are imported.
        caches: ``cold`` or ``warm``, by COMPILE_CACHES, when the record began; a cache of unknown
            state is left out.
        compile_threads: workers that Inductor may use.
        baseline_steps: the number of first steps that run eagerly on purpose, before compilation.
        baseline_seconds: their median, once they are over.
        expected_ranks: the number of ranks with the agent, if the user set it.
        flops_counted: floating-point operations of a step, counted in the graphs that it calls.
            flops_excluded: names of operations in them that are not counted. flops_by_dtype: how
            many compute in each type, of ``values.DTYPES`` or ``OTHER_DTYPE``.
        labels: what cluster software calls the process, by label (``shared/deployment.py``).
        unnumbered: the run's name without its number, if the agent appended one because another
            launch had that name.
        child: ``daemon`` of a child process that its parent terminates once it is no longer needed,
            such as a worker of ``multiprocessing.Pool``; else empty.
    """

    run: str
    launch: str = ""
    rank: int = 0
    local_rank: int | None = None
    world_size: int | None = None
    attempt: int = 0
    launcher: str = ""
    host: str = ""
    pid: int = 0
    boot_id: str = ""
    clock_offset_ns: int | None = None
    python: str = ""
    torch: str = ""
    agent: str = ""
    hooks: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    tokens_per_step: int | None = None
    samples_per_step: int | None = None
    flops_per_step: float | None = None
    parameters: int | None = None
    parameters_seen: int | None = None
    dtype: str = ""
    collective_timeout: float | None = None
    collective_backend: str = ""
    started_by: str = ""
    script: str = ""
    commit: str = ""
    cuda: str = ""
    triton: str = ""
    caches: Mapping[str, str] = MappingProxyType({})
    compile_threads: int | None = None
    baseline_steps: int | None = None
    baseline_seconds: float | None = None
    expected_ranks: int | None = None
    flops_counted: float | None = None
    flops_excluded: tuple[str, ...] = ()
    flops_by_dtype: Mapping[str, float] = MappingProxyType({})
    labels: Mapping[str, str] = MappingProxyType({})
    unnumbered: str = ""
    child: str = ""


class Header(NamedTuple):
    """The slot's first words: K, and the moment of attaching on both clocks."""

    warm_steps: int
    attached_ns: int
    attached_epoch_ns: int

    def epoch_seconds(self, monotonic_ns: int) -> float:
        """Seconds since the epoch for a monotonic time of this record."""
        return (self.attached_epoch_ns + monotonic_ns - self.attached_ns) / 1e9


class Slot(NamedTuple):
    """A slot, unpacked. ``*_bins`` hold BINS counts each; ``recent`` the ring, newest first."""

    header: Header
    identity: Identity
    steps: StepCounts
    compile: CompileCounts
    clean_bins: tuple[int, ...]
    compile_bins: tuple[int, ...]
    recent: tuple[int, ...] = ()

    @property
    def clean_sum_ns(self) -> int:
        """Total length of the clean steps in the histogram."""
        # 0 if read between the stores of the two blocks: the sum must not fall
        since = max(0, self.steps.last_step_ns - self.compile.irregular_step_ns)
        return self.compile.clean_sum_ns + since

    @property
    def clean_since_activity(self) -> tuple[int, int]:
        """Number and total length of the clean steps since the last one that was not clean."""
        counts = self.compile
        count = max(0, self.steps.steps - counts.clean_after)
        return count, max(0, self.clean_sum_ns - counts.clean_sum_before_ns)

    @property
    def waited_since_activity_ns(self) -> int:
        """Time spent waiting for batches in the steps of :attr:`clean_since_activity`."""
        return max(0, self.steps.batch_wait_ns - self.compile.waited_before_ns)

    @property
    def unsettled(self) -> Trend | bool:
        """Whether the clean steps so far may not show the speed (see ``recent.unsettled``)."""
        count = max(0, self.steps.steps - self.compile.clean_after)
        _, total_ns = self.clean_since_activity
        at_least = sum(length_ns(word) for word in self.recent[:count])
        # after a later compilation, some steps in the histogram are of earlier code
        bins = self.clean_bins if self.compile.warmups <= 1 else ()
        return unsettled(self.recent, count, max(total_ns, at_least), bins)

    @property
    def typical_step_ns(self) -> float | None:
        """The length of a clean step of the whole run (see ``typical``); ``None`` without one."""
        count, median = sum(self.clean_bins), quantile_ns(self.clean_bins, 0.5)
        return typical(count, self.clean_sum_ns, median, self.clean_bins)

    @property
    def recent_step_ns(self) -> float | None:
        """Length of recent clean steps (see ``level_ns``), or of the whole run if the record has
        no ring; ``None`` if there are too few. With GPUs, see ``queued_ns``.
        """
        if not any(self.recent):
            return self.typical_step_ns
        lengths = recent_lengths(self.recent)
        if self.identity.gpus:
            return queued_ns(
                lengths, self.clean_bins, *self.clean_since_activity, queue_was_empty=True
            )
        return level_ns(lengths)

    @property
    def tokens(self) -> int | None:
        """Tokens trained on; ``None`` if the tokens of a step are unknown."""
        return self._earned(self.compile.tokens_before, self.compile.tokens_per_step)

    @property
    def samples(self) -> int | None:
        """Samples trained on; ``None`` if the samples of a step are unknown."""
        return self._earned(self.compile.samples_before, self.compile.samples_per_step)

    def _earned(self, before: int, worth: int) -> int | None:
        # 0 if read between the stores of the two blocks: the sum must not fall
        since = max(0, self.steps.steps - self.compile.worth_since)
        return before + since * worth if worth else None


def typical(
    count: int | None,
    total: float | None,
    median: float | None,
    bins: Sequence[int] = (),
    *,
    unit_ns: int = 1,
) -> float | None:
    """A typical duration of ``count`` steps with this ``total``; ``None`` if there are none.

    If the steps are similar, or have several lengths (see ``level_ns``), it is their mean. If a
    few took much longer, the median is the better value. ``bins``: their histogram, if known.
    ``unit_ns``: the unit of ``total``, ``median`` and the result, in nanoseconds.
    """
    if not median:
        return None
    mean = total / count if count and total else median
    if abs(mean - median) <= 2 * HALF_A_BIN * median:
        return mean
    return mean if vary(bins, median * unit_ns, (total or 0) * unit_ns) else median


_Block = TypeVar("_Block", StepCounts, CompileCounts, Warmup)


def flatten(block: Any) -> list[int]:
    """The words of a block, in the order of its fields."""
    flat: list[int] = []
    for value in block:
        if isinstance(value, int):
            flat.append(value)
        else:  # a list of counts, or a Warmup
            flat.extend(value)
    return flat


def unflatten(default: _Block, words: Sequence[int]) -> _Block:
    """A block of the type of ``default`` from its words."""
    values: dict[str, Any] = {}
    start = 0
    for name, value in default._asdict().items():
        if isinstance(value, int):
            values[name] = words[start]
            start += 1
            continue
        given = words[start : start + len(value)]
        start += len(value)
        values[name] = unflatten(value, given) if isinstance(value, Warmup) else tuple(given)
    return default._replace(**values)


def index(block: Any, start: int = 0, prefix: str = "") -> dict[str, int]:
    """The word index of each field of a block, such as ``first_warmup.steps``."""
    counts: dict[str, int] = {}
    for name, value in block._asdict().items():
        counts[prefix + name] = start
        if isinstance(value, Warmup):
            counts |= index(value, start, f"{prefix}{name}.")
        start += 1 if isinstance(value, int) else len(value)
    return counts
