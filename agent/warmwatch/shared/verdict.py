"""The verdict: maps recorded facts and the clock to a state. Pure; used by agent and monitor.

Everything Warmwatch reports is decided here. The agent uses it for ``warmwatch.state()``, the
monitor for every rank at every poll; no other code judges. The contract has the rules: a step is
clean if no compile activity touched it; a rank is warm after K clean steps in a row; any further
compile activity reopens it.

No I/O, no clock, no logging: the same facts and the same ``now_ns`` give the same judgement.
"""

from itertools import pairwise
from typing import NamedTuple

from warmwatch.shared.record import ENDS, KINDS, PHASES, SETTLED_BY, CompileCounts, StepCounts
from warmwatch.shared.states import HELD_UP_FLOOR_NS, WARM, Conditions, State

# Signals that a process raises itself, by abort() or a fault; schedulers and launchers do not send
# them. SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV and SIGSYS, by their numbers on Linux.
CRASHES = frozenset({4, 5, 6, 7, 8, 11, 31})
STALL_FLOOR_NS = 60 * 10**9
STALL_MEDIANS = 10
STALL_GAPS = 2
# Of the timeout of its collectives, before a rank's first step: no earlier one shows how long is
# too long, and after the timeout the rank aborts.
STALL_TIMEOUT_SHARE = 0.5
# A longer save may as well hang, in a filesystem that does not reply: by then the collectives of
# the other ranks have timed out.
SAVING_PATIENCE_NS = 600 * 10**9
# An evaluation may take long, but one without progress must end at some time.
EVALUATING_PATIENCE_NS = 3600 * 10**9
_FOR_EVER_NS = 2**62

# A process without steps is warm when nothing has compiled for `quiet_ns` of its record. If its own
# compilations were further apart, twice the longest gap counts; a gap of more than four times
# `quiet_ns` is not within a warm-up (see ``record.CompileCounts``).
QUIET_GAPS = 2

LONG_COMPILE_FLOOR_NS = 5 * 60 * 10**9
LONG_COMPILE_TIMES = 5
LONG_COMPILE_NS = 3600 * 10**9  # without an earlier one; a monitor setting

SLOWER_TIMES = 2
SLOWER_TIMES_OF_SEVERAL = 1.5
SLOWER_SEVERAL = 3  # earlier warm-ups, so that the longest shows their spread
SLOWER_FLOOR_NS = 30 * 10**9

HELD_UP_MEDIANS = 10  # or HELD_UP_FLOOR_NS, if that is longer
SILENT_STEPS = 10
SILENT_FLOOR_NS = 3 * 10**9

FEWEST_FAILURES = 3  # compilations, if none has succeeded

THRASHING_WINDOW = 10
THRASHING_STEPS = 3
# One function that compiles again in as many steps in a row keeps doing so, also in a warm-up.
REPEATED_STEPS = 3


class Facts(NamedTuple):
    """One rank's recorded facts at one moment. Times are monotonic nanoseconds.

    Attributes:
        attached_ns: when the agent attached.
        warm_steps: K, the clean steps that make a rank warm.
        steps, compile: the two blocks of its slot.
        median_step_ns: median of its clean steps, ``None`` if there are none.
        longest_step_ns: the longest of them.
        usual_step_ns: the present length of a step; ``None`` if unknown. slower: a reader of all
            its steps found a lasting level far above the fastest one.
        alive: whether its process holds the record's lock.
        gone_ns: when a reader first saw the lock free; ``None`` if no reader saw it held.
        peers_compiled_ns: the latest time at which another living rank of the run was known to
            compile: until then this one may have waited for it in a collective.
        last_batch_ns: when the loop last took a batch. working_ns: the latest time at which its
            process or its GPUs, or those of a living rank that it may wait for, were seen to work.
            pause_ns: until when a living rank that it may wait for saves or evaluates. All are
            progress without an optimizer step.
        peers_longest_ns: the longest activity of the peers that have ended as many activities as
            this one has begun, so they have done its present one; 0 if there are none.
        long_compile_ns: the longest time that an activity may take, 0 for no limit.
        killed_by: the signal that killed its process, 0 if none did or nothing saw it.
            fell_first: it was killed while its peers ran on, or before their launcher ended them.
            dismissed: it left no exit status because its parent needed it no longer.
        earlier_warmups_ns: lengths of the first warm-ups of comparable earlier runs, newest first.
        workers_compile: workers of its DataLoaders compile, or later ones compiled again.
        baseline_steps: the number of first steps that run eagerly on purpose: none is clean.
        collective_timeout_ns: the timeout of the collectives in which it may wait for its first
            step; 0 if it has none, or if nothing shows that it does not work.
    """

    attached_ns: int
    warm_steps: int
    steps: StepCounts
    compile: CompileCounts
    median_step_ns: float | None = None
    longest_step_ns: int = 0
    alive: bool = True
    gone_ns: int | None = None
    peers_compiled_ns: int = 0
    last_batch_ns: int = 0
    working_ns: int = 0
    peers_longest_ns: int = 0
    long_compile_ns: int = LONG_COMPILE_NS
    pause_ns: int = 0
    earlier_warmups_ns: tuple[int, ...] = ()
    baseline_steps: int = 0
    usual_step_ns: float | None = None
    slower: bool = False
    memory_growing: bool = False
    workers_compile: bool = False
    workers_memory: bool = False
    killed_by: int = 0
    fell_first: bool = False
    dismissed: bool = False
    collective_timeout_ns: int = 0


class Judgement(NamedTuple):
    """The judgement of the facts.

    Attributes:
        state: the rank's state. since_ns: when it began; ``None`` if unknown.
        compiling: compile activity is in progress now. phase: its phase, else ``None``.
        clean_steps: clean steps in a row since the last activity.
        conditions: those of CONDITIONS that hold. warm: nothing is left to wait for.
        warm_by: what ended the warm-up: ``steps``, ``quiet`` (nothing has compiled for long, and no
            steps are marked) or ``ready`` (reported by the program); ``None`` if the rank is not
            warm.
    """

    state: State
    since_ns: int | None
    compiling: bool = False
    phase: str | None = None
    clean_steps: int = 0
    conditions: tuple[str, ...] = ()
    warm_by: str | None = None

    @property
    def warm(self) -> bool:
        return self.state in WARM


def clean_steps(steps: StepCounts, compile: CompileCounts) -> int:
    """Clean steps in a row; none if activity has begun since the last mark."""
    if compile.activities_seen != compile.begun:
        return 0
    return max(0, steps.steps - compile.clean_after)


def _clean(facts: Facts) -> int:
    """The same for a rank, whose first steps may be an eager baseline."""
    after = max(0, facts.steps.steps - facts.baseline_steps)
    return min(after, clean_steps(facts.steps, facts.compile))


def is_settled(compile: CompileCounts) -> bool:
    """Whether a warm-up ended without steps, and no activity has begun since."""
    return compile.settled == compile.begun + 1 and not compile.active_since_ns


def quiet_limit_ns(steps: StepCounts, compile: CompileCounts) -> int | None:
    """How long nothing may compile before the rank is warm; ``None`` if only steps can show that.

    Steps show it if some were marked, or if there is an optimizer that will step.
    """
    if steps.steps or compile.optimizers or not compile.quiet_ns:
        return None
    return max(compile.quiet_ns, QUIET_GAPS * compile.longest_gap_ns)


def quiet_at_ns(facts: Facts) -> int | None:
    """When a rank without steps becomes warm if nothing compiles until then; ``None``: never."""
    compile = facts.compile
    limit = quiet_limit_ns(facts.steps, compile)
    if limit is None or compile.active_since_ns or compile.asynchronous:
        return None
    return quiet_since_ns(facts) + limit if _runs_compiled_code(compile) else None


def _runs_compiled_code(compile: CompileCounts) -> bool:
    """Whether anything compiled runs, from during this record or before it."""
    return bool(compile.begun or compile.graphs_before or compile.precompiled)


def _warm_by(facts: Facts, now_ns: int) -> tuple[str, int] | None:
    """What ended the last warm-up, and when; ``None`` if it is open or was reopened."""
    compile = facts.compile
    if compile.active_since_ns or _held_up(facts, now_ns):
        return None
    if _clean(facts) >= facts.warm_steps and not (compile.begun and compile.asynchronous):
        # a reader may read between the K-th mark and the entry of the warm-up that it ended
        warm_ns = max(compile.last_warmup.warm_ns, compile.last_end_ns)
        return "steps", warm_ns if compile.begun else compile.first_step_ns
    if is_settled(compile):
        return SETTLED_BY[compile.settled_by], compile.settled_ns
    quiet_at = quiet_at_ns(facts)
    return ("quiet", quiet_at) if quiet_at is not None and now_ns >= quiet_at else None


def quiet_since_ns(facts: Facts) -> int:
    """The last sign of progress: a step, the end of an activity, or attaching."""
    return max(facts.attached_ns, facts.steps.last_step_ns, facts.compile.last_end_ns)


def moved_ns(facts: Facts) -> int:
    """The last sign that it is not stuck: progress, work, or a peer that it waited for."""
    return max(
        quiet_since_ns(facts),
        facts.peers_compiled_ns,
        facts.last_batch_ns,
        facts.working_ns,
        facts.pause_ns,
        pause_ns(facts.steps, facts.compile),
    )


def saving_since_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """The begin of the save in progress; 0 if there is none."""
    return _unless_stepped(compile.saving_since_ns, steps)


def evaluating_since_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """The begin of the evaluation in progress; 0 if there is none."""
    return _unless_stepped(compile.evaluating_since_ns, steps)


def between_cells_since_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """Since when no cell of its notebook runs; 0 if one does."""
    return _unless_stepped(compile.between_cells_since_ns, steps)


def _unless_stepped(since_ns: int, steps: StepCounts) -> int:
    """0 if a step was marked since. The thread that pauses marks the steps: the end was lost."""
    return since_ns if since_ns >= steps.last_step_ns else 0


def pause_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """Until when a rank saves, evaluates, or waits for its user to run another cell.

    That is the end of the last pause, or a limit for those in progress; a user has no limit.
    """
    saving, evaluating = saving_since_ns(steps, compile), evaluating_since_ns(steps, compile)
    return max(
        compile.saved_ns,
        compile.evaluated_ns,
        compile.between_cells_until_ns,
        saving + SAVING_PATIENCE_NS if saving else 0,
        evaluating + EVALUATING_PATIENCE_NS if evaluating else 0,
        _FOR_EVER_NS if between_cells_since_ns(steps, compile) else 0,
    )


def open_since_ns(facts: Facts) -> int | None:
    """When a compiling rank's present work began.

    That is the begin of the open warm-up, or the last step if that is later: a step with a forward
    and a backward compilation is one piece of work.
    """
    compile = facts.compile
    if not compile.active_since_ns:
        return None
    began = compile.episode_began_ns or compile.active_since_ns
    return min(compile.active_since_ns, max(began, facts.steps.last_step_ns))


def compiling_since_ns(facts: Facts) -> int | None:
    """When the first activity since its last step began; ``None`` without one.

    Pauses and evaluations do not end this stretch: another rank may compile in them.
    """
    opened, since = open_since_ns(facts), facts.compile.compiling_since_ns
    if opened is not None:
        return max(opened, since)
    return since if since and since >= advanced_ns(facts) else None


def advanced_ns(facts: Facts) -> int:
    """The last step, or the end of a wait for a notebook's user, if later.

    Activity before it is over. 0: there was none.
    """
    compile = facts.compile
    return max(facts.steps.last_step_ns, compile.between_cells_until_ns, compile.settled_ns)


def stall_after_ns(facts: Facts) -> int | None:
    """How long a rank may be quiet before it counts as stalled; ``None``: nothing shows that."""
    if not facts.steps.steps:
        share = round(STALL_TIMEOUT_SHARE * facts.collective_timeout_ns)
        return max(STALL_FLOOR_NS, share) if share else None
    median = int(STALL_MEDIANS * (facts.median_step_ns or 0))
    gap = max(facts.longest_step_ns, facts.compile.longest_rest_ns)
    return max(STALL_FLOOR_NS, median, STALL_GAPS * gap)


def compile_precedent_ns(facts: Facts) -> int:
    """The longest activity that explains the length of the one in progress; 0 if none does.

    Its own activities count only if it was warm before: in a first warm-up each activity compiles
    another graph, and a small one does not predict a large one.
    """
    own = facts.compile.longest_activity_ns if facts.compile.warmups else 0
    return max(own, facts.peers_longest_ns)


def compile_limit_ns(facts: Facts) -> int | None:
    """How long an activity may take before it counts as long; ``None``: no limit."""
    most = facts.long_compile_ns
    if not most:
        return None
    precedent = compile_precedent_ns(facts)
    if not precedent:
        return most
    return min(most, max(LONG_COMPILE_FLOOR_NS, LONG_COMPILE_TIMES * precedent))


def judge(facts: Facts, now_ns: int) -> Judgement:
    over = _ended(facts)
    judged = over or _living(facts, now_ns)
    holds = conditions(facts, now_ns, living=over is None)
    return judged._replace(conditions=holds) if holds else judged


def conditions(facts: Facts, now_ns: int, *, living: bool) -> tuple[str, ...]:
    """The CONDITIONS that hold, in any state."""
    holds = Conditions(
        thrashing=repeats(facts.steps, facts.compile, facts.warm_steps) or _thrashing(facts),
        fallback=facts.compile.fallbacks > 0,
        unknown=facts.compile.asynchronous > 0,
        nothing_captured=_nothing_captured(facts, now_ns),
        long_compile=living and _long_compile(facts, now_ns),
        never_compiled=_never_compiled(facts, now_ns),
        # without CUDA, which has no memory to read, there was nothing to record
        cudagraph_skipped=facts.compile.cudagraph_skips > 0 and facts.compile.memory_ns > 0,
        slower_than_before=_slower_than_before(facts),
        background=living and facts.compile.background_since_ns > 0,
        uncompiled_calls=0 < facts.compile.uncompiled_step > facts.steps.steps - THRASHING_WINDOW,
        silent=living and _silent(facts, now_ns),
        slower=living and facts.slower and not facts.compile.active_since_ns,
        memory_growing=living and facts.memory_growing,
        workers_compile=living and facts.workers_compile,
        workers_memory=living and facts.workers_memory,
        exiting=living and facts.compile.ended_ns > 0,
    )
    if not any(holds.values()):
        return ()
    return tuple(name for name, held in holds.items() if held)


def repeats(steps: StepCounts, compile: CompileCounts, warm_steps: int) -> bool:
    """Whether one function has compiled again in each of the last steps, and it goes on."""
    clean = steps.steps - compile.repeated_step
    return compile.repeated >= REPEATED_STEPS and clean < warm_steps


def _thrashing(facts: Facts) -> bool:
    """Whether THRASHING_STEPS of the last steps compiled, and it goes on.

    Steps of the first warm-up count only in :func:`repeats`. It is over after enough steps in a
    row that did not compile: more than between any two that did, and as many as make a rank warm.
    """
    compile, first = facts.compile, facts.compile.first_warmup.steps
    if not compile.warmups:
        return False
    touched = sorted(step for step in recently_touched(facts.steps, compile) if step > first)
    if len(touched) < THRASHING_STEPS:
        return False
    longest = max(later - earlier for earlier, later in pairwise(touched))
    return facts.steps.steps - touched[-1] <= max(facts.warm_steps, longest)


def _long_compile(facts: Facts, now_ns: int) -> bool:
    if not (since := facts.compile.active_since_ns):
        return False
    limit = compile_limit_ns(facts)
    return limit is not None and now_ns - since > limit


def silent_after_ns(facts: Facts) -> int | None:
    """How long after a step the next one counts as missing; ``None`` if unknown."""
    if not facts.usual_step_ns or not facts.steps.steps:
        return None
    return max(SILENT_FLOOR_NS, round(SILENT_STEPS * facts.usual_step_ns))


def _silent(facts: Facts, now_ns: int) -> bool:
    """No step for far too long, and no compilation or pause of any rank explains it.

    Batches and busy GPUs do not explain it: unlike ``stalled``, this reports only a missing step.
    """
    limit = silent_after_ns(facts)
    compile = facts.compile
    compiles = compile.active_since_ns or compile.background_since_ns  # a step may wait for either
    exits = compile.ended_ns  # the program is over: no step is missing
    if limit is None or compiles or exits or now_ns - facts.steps.last_step_ns <= limit:
        return False
    explained = max(
        quiet_since_ns(facts),
        compile.background_ended_ns,
        facts.peers_compiled_ns,
        facts.pause_ns,
        pause_ns(facts.steps, facts.compile),
    )
    return now_ns - explained > limit


def _slower_than_before(facts: Facts) -> bool:
    """Its first warm-up is far longer than the longest of earlier runs; a single one needs more."""
    earlier, first = facts.earlier_warmups_ns, facts.compile.first_warmup
    if not earlier or not facts.compile.warmups:
        return False
    times = SLOWER_TIMES_OF_SEVERAL if len(earlier) >= SLOWER_SEVERAL else SLOWER_TIMES
    took, longest = first.ended_ns - first.began_ns, max(earlier)
    return took >= times * longest and took - longest >= SLOWER_FLOOR_NS


def _nothing_captured(facts: Facts, now_ns: int) -> bool:
    """A torch that reports no compilations gives no evidence, so this never holds there."""
    compile = facts.compile
    looked_at = compile.compilations[KINDS.index("forward")]
    # one that fails at every call is retried at every call: then no step is clean
    in_vain = looked_at == compile.failures >= FEWEST_FAILURES
    return (
        looked_at > 0
        and not compile.graphs + compile.graphs_before
        and (in_vain or _warm_by(facts, now_ns) is not None)
    )


def _never_compiled(facts: Facts, now_ns: int) -> bool:
    """Requested, but Dynamo has not looked at a single frame in K steps since.

    Only steps after a request for an object that trains show that: a function may be for an
    evaluation to come, or for a DataLoader's worker. A program that reports ready() is believed.

    Activity of other compilers (a Triton kernel, a C++ extension) is not Dynamo's; activity of the
    phase ``other`` may be.
    """
    compile = facts.compile
    possible = (
        compile.wrappers > 0
        and not compile.precompiled  # the wrapped function may be compiled already
        and not compile.disabled
        and not compile.active_since_ns
        and not compile.compilations[KINDS.index("forward")]
        and not compile.graphs + compile.graphs_before
        and not any(compile.phase_ns[PHASES.index(phase)] for phase in ("dynamo", "other"))
    )
    warm_by = _warm_by(facts, now_ns) if possible else None
    if warm_by is None:
        return False
    requested = compile.requested_at
    overdue = requested and facts.steps.steps + 1 - requested >= facts.warm_steps
    return bool(overdue or warm_by[0] == "ready")


def recently_touched(steps: StepCounts, compile: CompileCounts) -> tuple[int, ...]:
    """The numbers of those of the last THRASHING_WINDOW steps that held compile activity."""
    window = steps.steps - THRASHING_WINDOW
    if max(compile.touched_steps) <= window:  # so it is for every warm rank
        return ()
    return tuple(step for step in compile.touched_steps if step and step > window)


def _living(facts: Facts, now_ns: int) -> Judgement:
    steps, compile = facts.steps, facts.compile
    if compile.active_since_ns:
        state = State.RECOMPILING if compile.warmups else State.COMPILING
        since = compile.episode_began_ns if compile.warmups else compiling_since_ns(facts)
        phase = PHASES[compile.active_phase - 1] if compile.active_phase else None
        return Judgement(state=state, since_ns=since, compiling=True, phase=phase)
    warm_by = _warm_by(facts, now_ns)
    clean = 0 if _held_up(facts, now_ns) else _clean(facts)
    # most ranks have just stepped: only one that has not for the shortest limit may be stalled
    may_stall = bool(steps.steps) or warm_by is None
    if may_stall and now_ns - steps.last_step_ns > STALL_FLOOR_NS:
        limit = stall_after_ns(facts)
        if limit is not None and now_ns > (stalled_at := moved_ns(facts) + limit):
            return Judgement(state=State.STALLED, since_ns=stalled_at, clean_steps=clean)
    if not steps.steps and not compile.begun and not warm_by:
        return Judgement(state=State.STARTING, since_ns=facts.attached_ns)
    return _without_activity(facts, clean, warm_by)


def _held_up(facts: Facts, now_ns: int) -> bool:
    """Whether a background compilation may hold up the step in progress.

    No event reports that one thread waits for another, so the time without a step decides.
    """
    if not facts.compile.background_since_ns:
        return False
    return now_ns - facts.steps.last_step_ns > _held_up_after_ns(facts.median_step_ns)


def _held_up_after_ns(median_step_ns: float | None) -> int:
    return max(HELD_UP_FLOOR_NS, int(HELD_UP_MEDIANS * (median_step_ns or 0)))


def outside_since_ns(
    steps: StepCounts,
    compile: CompileCounts,
    median_step_ns: float | None,
    compilers_since_ns: int,
    now_ns: int,
) -> int:
    """Begin of the activity of busy compilers below a rank, of which its agent knows nothing; or 0.

    ``compilers_since_ns``: since when they run. It is none beside a training that steps, takes
    batches, pauses or has activity of its own. As in the background, the time without a step
    decides; without any step so far, nothing shows that the training goes on.
    """
    paused = max(
        saving_since_ns(steps, compile),
        evaluating_since_ns(steps, compile),
        between_cells_since_ns(steps, compile),
    )
    moved = max(steps.last_step_ns, steps.last_batch_ns if steps.steps else 0)
    limit = _held_up_after_ns(median_step_ns) if steps.steps else 0
    if compile.active_since_ns or paused or now_ns - moved <= limit:
        return 0
    return max(compilers_since_ns, steps.last_step_ns, compile.last_end_ns)


def _ended(facts: Facts) -> Judgement | None:
    """A process that reports "finished" is believed when it is gone: its exit code decides, and is
    unknown before.
    """
    name = ENDS[facts.compile.end_code]
    if name and not (name == "finished" and facts.alive):
        state = State.FAILED if name == "failed" else State.FINISHED
        return _over(facts, state, facts.compile.ended_ns or facts.gone_ns)
    if facts.alive:
        return None
    if facts.dismissed:
        return _over(facts, State.FINISHED, facts.gone_ns)
    # ``ended_ns``: it reached its end, and was killed there
    crashed = facts.killed_by in CRASHES and not facts.compile.ended_ns
    if crashed or facts.fell_first:
        return _over(facts, State.FAILED, facts.gone_ns)
    return _over(facts, State.LOST, facts.gone_ns or facts.compile.ended_ns or None)


def _over(facts: Facts, state: State, since_ns: int | None) -> Judgement:
    return Judgement(state=state, since_ns=since_ns, clean_steps=_clean(facts))


def _without_activity(facts: Facts, clean: int, warm_by: tuple[str, int] | None) -> Judgement:
    """A living rank that makes progress, with no activity in progress."""
    compile = facts.compile
    if warm_by is not None:
        by, since = warm_by
        # attached to a process that had compiled: it may well run compiled code
        state = State.WARM if _runs_compiled_code(compile) else State.EAGER
        return Judgement(state=state, since_ns=since, clean_steps=clean, warm_by=by)
    if not compile.begun:
        return Judgement(state=State.WARMING, since_ns=compile.first_step_ns, clean_steps=clean)
    if compile.warmups:
        since = compile.episode_began_ns or facts.steps.last_step_ns  # 0: it is held up
        return Judgement(state=State.RECOMPILING, since_ns=since, clean_steps=clean)
    return Judgement(state=State.WARMING, since_ns=compile.last_end_ns, clean_steps=clean)
