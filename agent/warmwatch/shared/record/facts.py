"""A slot's content as values: closed lists, blocks, identity, and the whole slot.

All frozen. Counts are cumulative; ``*_ns`` are monotonic nanoseconds, 0 meaning "not yet".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warmwatch.shared.record.histogram import quantile_ns, typical
from warmwatch.shared.record.recent import median_ns, recent_lengths

# The closed lists. A position is a code in the slot: append, never reorder.
PHASES = (
    "dynamo",
    "aot_autograd",
    "inductor",
    "kernel_compile",
    "autotune",
    "cudagraph",
    "cache_load",
    "other",
)
KINDS = (
    "forward",
    "backward",
    "autotune",
    "cudagraph",
    "other",
    "triton",
    "cpp_extension",
    "custom",
)
CATEGORIES = (
    "shape",
    "grad_mode",
    "dtype",
    "requires_grad",
    "autocast",
    "python_value",
    "module_state",
    "object_identity",
    "global_state",
    "device",
    "other",
)
CACHES = ("inductor_fx", "aot_autograd", "triton")
COMPILE_CACHES = ("inductor", "triton")  # directories, of which each is cold or warm
PROGRESS = ("kernels", "choices")  # what an activity in progress counts
# by what compilation is turned off; by the last two, for new inputs alone
DISABLED = ("", "environment", "stance", "config", "eager_on_recompile", "fail_on_recompile")
# What runs that was compiled ahead of time: bits of one word, by position.
PRECOMPILED = ("aoti", "precompile", "jit", "tensorrt", "cudagraph")
SETTLED_BY = ("", "quiet", "ready")  # how a warm-up ended without steps
MEMORY = ("allocated", "reserved", "peak_allocated", "peak_reserved")
TOUCHED_KEPT = 10
ENDS = ("", "finished", "failed", "detached", "interrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """The hot words: only what changes at every step. Each field is a word that stands alone.

    Attributes:
        steps: optimizer steps, or explicit marks, so far.
        last_step_ns: when the last step was marked.
        last_duration_ns: its length; 0 where nothing marked its beginning. A regular step stores
            it in the ring alone (see ``recent``), from which ``unpack`` takes it.
        batches: batches that a ``torch.utils.data.DataLoader`` handed out in this process.
        last_batch_ns: when the last one was. batch_wait_ns: time spent in ``next()`` for them.
    """

    steps: int = 0
    last_step_ns: int = 0
    last_duration_ns: int = 0
    batches: int = 0
    last_batch_ns: int = 0
    batch_wait_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """One warm-up, from the first activity (or step) of it to the last activity's end.

    Attributes:
        began_ns: its first activity, or the first step where that came before.
        ended_ns: the end of its last activity.
        warm_ns: when the K-th clean step after it was marked.
        steps: steps that it took, the one that held its last activity included.
    """

    began_ns: int = 0
    ended_ns: int = 0
    warm_ns: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCounts:
    """The rare block: all compile facts, cumulative, and what few others change rarely.

    Attributes:
        begun, ended: outermost intervals of compile activity in this process.
        active_since_ns: begin of the one in progress; 0 where none is.
        active_phase: 1 + its phase's position in PHASES; 0 where none is.
        accounted_ns: time up to which ``phase_ns`` accounts for the one in progress.
        first_begin_ns, last_end_ns: begin of the first activity, end of the last.
        graphs, graph_breaks, failures: as Dynamo counts them.
        recompiles_after_warm: recompiles while the rank had been warm before, and functions that
            a reset of Dynamo made compile again.
        fallbacks: frames that hit the recompile limit: their new inputs run eagerly.
        asynchronous: 1 where a mode was on that swaps compiled code in later, with no event.
        clean_after: the number of the last step that was not clean; all after it were, unless
            activity has begun since.
        activities_seen: ``begun`` as it was at the last irregular step; where it differs now,
            activity has begun since and there are no clean steps.
        first_step_ns, first_duration_ns: mark and length (0: unknown) of step 1.
        irregular_step_ns: mark of the last step that was the first or held activity; all since
            were clean. clean_sum_ns: total length of the clean steps before it.
        compile_step_sum_ns: total length of steps that held activity. longest_rest_ns: the
            longest of them, its compile activity not counted.
        warmups: how many times the rank became warm.
        episode_began_ns, episode_began_steps: begin of the warm-up now open, steps before it.
        end_code: position in ENDS; ``ended_ns`` is when.
        agent_errors: errors of the agent's own that it swallowed.
        journal_dropped: journal lines that could not be written.
        first_warmup, last_warmup: the first warm-up and the latest one that ended.
        touched_steps: numbers of the last steps that were not clean, newest first.
        phase_ns: exclusive time of each of PHASES. compilations: of each of KINDS.
        recompiles: of each of CATEGORIES. cache_hits, cache_misses: of each of CACHES.
        graphs_before: graphs that Dynamo had captured before this record began.
        tokens_per_step, samples_per_step: what a step after number ``worth_since`` is worth, as
            the user said; 0 where not said. tokens_before, samples_before: what the steps up to
            that one were worth, so a value said anew changes no sum (see ``Slot.tokens``).
        exit_code: 1 + the exit code, 0 to 255; 0 where it was not known when ``end_code`` was
            stored (see ``record.with_exit_code``).
        longest_activity_ns: length of the longest activity that has ended.
        progress_of: 1 + its position in PROGRESS: what the activity in progress counts; 0 where it
            counts nothing. progress_done, progress_total: how many of them are done, of how many.
        wrappers: how many functions and modules were handed to ``torch.compile``.
        disabled: position in DISABLED.
        cudagraph_skips: how often CUDA graphs were asked for and left out.
        memory: bytes of CUDA's caching allocator, by MEMORY, over the process's devices, as of
            ``memory_ns``, where 0 means that nobody looked.
        saving_ns: time spent in ``torch.save`` and its kin;
            saving_since_ns: begin of the one in progress, 0 where there is none; saved_ns: when
            the last one ended. Only those for which the training waited.
        evaluating_ns, evaluating_since_ns, evaluated_ns: the same of evaluations, which a framework
            or the user tells of; evaluations: how many have ended.
        between_cells_ns, between_cells_since_ns, between_cells_until_ns: the same of a notebook or
            an interactive IPython in which no cell runs.
        quiet_ns: how long nothing may compile before a process without steps counts as warm; 0 if
            it never does so. longest_gap_ns: the longest time between two activities of one
            warm-up. optimizers: 1 if the process made an optimizer of ``torch.optim``.
        settled: 1 + ``begun`` at the time when a warm-up last ended without steps, 0 if none did;
            settled_ns: that time; settled_by: position in SETTLED_BY.
        background: activities of ``begun`` that were still in progress on other threads when a step
            was marked, and had held up no part of it: compilation in the background.
        background_since_ns: begin of the oldest compilation in the background that is in progress;
            0 where none is. background_ns: time of those that have ended, added up over threads;
            background_ended_ns: when the last one ended.
        precompiled: what runs that was compiled ahead of time: a bit for each of PRECOMPILED.
        disabled_since_steps: how many steps there were when ``disabled`` last changed.
        eager_calls: calls of compiled functions that the stance ``force_eager`` ran eagerly;
            eager_calls_since: the step of the first. refused_calls, refused_calls_since: the same
            of those that ``fail_on_recompile`` refused. uncompiled_step: the step of the last one.
        background_saving_ns: time in which other threads than that of the steps saved;
            background_saving_since_ns: begin of that in progress, 0 where there is none.
        allocator_retries: how often CUDA's caching allocator found no memory, freed what it had
            cached, and tried again; 1 + the number, as of ``memory_ns``.
        new_instances: first compilations of a module whose class's code had been compiled for
            another module before.
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
    touched_steps: tuple[int, ...] = (0,) * TOUCHED_KEPT
    phase_ns: tuple[int, ...] = (0,) * len(PHASES)
    compilations: tuple[int, ...] = (0,) * len(KINDS)
    recompiles: tuple[int, ...] = (0,) * len(CATEGORIES)
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
    new_instances: int = 0
    disabled_since_steps: int = 0
    eager_calls: int = 0
    eager_calls_since: int = 0
    refused_calls: int = 0
    refused_calls_since: int = 0
    uncompiled_step: int = 0
    background_saving_ns: int = 0
    background_saving_since_ns: int = 0
    allocator_retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a record speaks for. Strings are empty, numbers ``None``, where not known.

    Attributes:
        run: the run's name. launch: an id that all ranks of one launch on a host share:
            ``slurm:JOB.STEP``, ``ray:JOB``, or ``parent:`` or ``process:`` with what tells that
            process from any other: ``PID:PID_NAMESPACE:START``, empty where not known.
        rank, local_rank, world_size: as the launcher or ``torch.distributed`` says.
        attempt: restarts of the same run by its launcher or its scheduler, from 0.
        launcher: ``torchelastic``, ``ray``, ``slurm``, ``mpi``, ``env`` or ``""``.
        pid: in the training's own pid namespace; a reader gets its own view from the lock.
        boot_id: of the kernel, so that monotonic times are not compared across reboots.
        clock_offset_ns: what the process's time namespace adds to the machine's monotonic clock;
            ``None`` where the kernel does not tell.
        hooks: seams that were installed; ``missing`` those this torch does not have.
        gpus: uuids of the CUDA devices that the process uses, ``GPU-...`` or ``MIG-...``, in the
            order of its own indices; empty until CUDA is up.
        tokens_per_step, samples_per_step, flops_per_step: what the user said a step is worth.
        parameters: of the model, as the user said; parameters_seen: those that its optimizers hold.
        dtype: in which it computes, of ``bounds.DTYPES``, as the user said.
        collective_timeout: seconds after which the process's collectives give up, the shortest of
            its process groups; ``None`` where there are none. collective_backend: of that one,
            such as ``nccl``.
        started_by: which ``warmwatch run`` started it, where that stays beside it; else empty.
        script: its base name. commit: that was checked out where the script lies.
        cuda, triton: versions, as far as they are imported.
        caches: ``cold`` or ``warm``, by COMPILE_CACHES, when the record began; a cache of which
            that is not known is left out.
        compile_threads: workers that Inductor may use.
        baseline_steps: how many first steps run eagerly on purpose, before anything is compiled.
        baseline_seconds: the median of them, once they are over.
        expected_ranks: how many ranks of the run have the agent, where the user said so.
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
    caches: Mapping[str, str] = field(default_factory=dict)
    compile_threads: int | None = None
    baseline_steps: int | None = None
    baseline_seconds: float | None = None
    expected_ranks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The slot's first words: K, and the moment of attaching on both clocks."""

    warm_steps: int
    attached_ns: int
    attached_epoch_ns: int

    def epoch_seconds(self, monotonic_ns: int) -> float:
        """Seconds since the epoch for a monotonic time of this record."""
        return (self.attached_epoch_ns + monotonic_ns - self.attached_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
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
        """Total length of the binned clean steps."""
        # 0 while a reader comes between the stores of the two blocks: the sum never falls
        since = max(0, self.steps.last_step_ns - self.compile.irregular_step_ns)
        return self.compile.clean_sum_ns + since

    @property
    def typical_step_ns(self) -> float | None:
        """How long a clean step takes, exact where they are alike; ``None`` where none was."""
        count, median = sum(self.clean_bins), quantile_ns(self.clean_bins, 0.5)
        return typical(count, self.clean_sum_ns, median)

    @property
    def recent_step_ns(self) -> float | None:
        """The median length of the recent clean steps (see ``recent``); of the whole run's where
        the record has no ring; ``None`` where there are too few.
        """
        if not any(self.recent):
            return self.typical_step_ns
        return median_ns(recent_lengths(self.recent))

    @property
    def tokens(self) -> int | None:
        """Tokens trained on; ``None`` where nobody said what a step is worth."""
        return self._earned(self.compile.tokens_before, self.compile.tokens_per_step)

    @property
    def samples(self) -> int | None:
        """Samples trained on, likewise."""
        return self._earned(self.compile.samples_before, self.compile.samples_per_step)

    def _earned(self, before: int, worth: int) -> int | None:
        # 0 while a reader comes between the stores of the two blocks: the sum never falls
        since = max(0, self.steps.steps - self.compile.worth_since)
        return before + since * worth if worth else None
