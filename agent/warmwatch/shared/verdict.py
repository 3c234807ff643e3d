"""The verdict: maps recorded facts and the clock to a state. Pure; used by agent and monitor.

Everything Warmwatch claims is decided here. The agent asks it for ``warmwatch.state()``, the
monitor for every rank at every poll; neither judges on its own. The rules are those of the
contract: a step is clean where no compile activity touched it; a rank is warm after K clean steps
in a row; anything the compiler begins reopens it.

No I/O, no clock, no logging: the same facts and the same ``now_ns`` give the same judgement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from warmwatch.shared.record import ENDS, KINDS, PHASES, SETTLED_BY, CompileCounts, StepCounts

# given on: who asks for judgements needs their names
from warmwatch.shared.states import CONDITIONS as CONDITIONS
from warmwatch.shared.states import ENDED as ENDED
from warmwatch.shared.states import WARM as WARM
from warmwatch.shared.states import State as State
from warmwatch.shared.states import least_advanced as least_advanced

# Signals that a process brings upon itself, by abort() or a fault: no scheduler or launcher sends
# these. SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV and SIGSYS, by their numbers on Linux.
CRASHES = frozenset({4, 5, 6, 7, 8, 11, 31})
STALL_FLOOR_NS = 60 * 10**9
STALL_MEDIANS = 10
STALL_GAPS = 2
# A save that takes longer may as well hang, in a filesystem that does not answer: by then the other
# ranks' collectives have given up.
SAVING_PATIENCE_NS = 600 * 10**9
# An evaluation may take long; one in which nothing moves any more is not to be called one for ever.
EVALUATING_PATIENCE_NS = 3600 * 10**9
_FOR_EVER_NS = 2**62

# A process without steps that has not compiled for as long as `quiet_ns` of its record is warm. If
# its own compilations came further apart, twice the longest time between two of them; a gap of more
# than four times `quiet_ns` is not one within a warm-up (see ``record.CompileCounts``).
QUIET_GAPS = 2

LONG_COMPILE_FLOOR_NS = 5 * 60 * 10**9
LONG_COMPILE_TIMES = 5
LONG_COMPILE_NS = 3600 * 10**9  # whatever came before; a setting of the monitor

SLOWER_TIMES = 2
SLOWER_TIMES_OF_SEVERAL = 1.5
SLOWER_SEVERAL = 3  # earlier warm-ups, whose longest says how far they spread
SLOWER_FLOOR_NS = 30 * 10**9

# A rank that marks no step for so long may wait for what compiles in the background.
HELD_UP_FLOOR_NS = 3 * 10**9
HELD_UP_MEDIANS = 10
SILENT_STEPS = 10
SILENT_FLOOR_NS = 3 * 10**9

FEWEST_FAILURES = 3  # compilations, of which none has succeeded

THRASHING_WINDOW = 10
THRASHING_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One rank's recorded facts at one moment. Times are monotonic nanoseconds.

    Attributes:
        attached_ns: when the agent attached.
        warm_steps: K, the clean steps that make a rank warm.
        steps, compile: the two blocks of its slot.
        median_step_ns: median of its clean steps, ``None`` where there is none.
        longest_step_ns: the longest of them.
        usual_step_ns: how long a step takes now; ``None`` where that is not known. slower: a reader
        of all its steps found a lasting level far above the fastest one.
        alive: whether its process holds the record's lock.
        gone_ns: when a reader first saw the lock free; ``None`` where none saw it held.
        peers_compiled_ns: the latest moment at which another living rank of the run was known to
        compile: until then this one may have waited for it in a collective.
        last_batch_ns: when the loop last took a batch. working_ns: the latest moment at which
        its process or its GPUs, or those of a living rank that it may wait for, were seen to
        work. pause_ns: until when a living rank that it may wait for saves or evaluates. All
        are progress without an optimizer step.
        peers_longest_ns: the longest activity of the peers that have ended as many as this one has
        begun, so that they have done what it is at; 0 where there is none.
        long_compile_ns: how long an activity may take at most, 0 for as long as it likes.
        killed_by: the signal that killed its process, 0 where none did or nobody saw. fell_first:
        it was killed while its peers ran on, or before their launcher ended them.
        earlier_warmups_ns: lengths of the first warm-ups of comparable earlier runs, newest first.
        baseline_steps: how many first steps run eagerly on purpose: none of them is clean.
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
    killed_by: int = 0
    fell_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the facts amount to.

    Attributes:
        state: the rank's state. since_ns: when it began; ``None`` where nobody can know.
        compiling: compile activity is in progress now. phase: its phase, else ``None``.
        clean_steps: clean steps in a row since the last activity.
        conditions: those of CONDITIONS that hold. warm: nothing is left to wait for.
        warm_by: what ended the warm-up: ``steps``, ``quiet`` (nothing has compiled for long, and no
        steps are marked) or ``ready`` (the program says so); ``None`` if the rank is not warm.
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
    """Clean steps in a row as of now: none where activity has begun since the last mark."""
    if compile.activities_seen != compile.begun:
        return 0
    return max(0, steps.steps - compile.clean_after)


def _clean(facts: Facts) -> int:
    """The same of a rank, whose first steps may be eager on purpose."""
    after = max(0, facts.steps.steps - facts.baseline_steps)
    return min(after, clean_steps(facts.steps, facts.compile))


def is_settled(compile: CompileCounts) -> bool:
    """Whether a warm-up ended without steps, and no activity has begun since."""
    return compile.settled == compile.begun + 1 and not compile.active_since_ns


def quiet_limit_ns(steps: StepCounts, compile: CompileCounts) -> int | None:
    """How long nothing may compile before the rank is warm; ``None`` if only steps can show that.

    Steps show it where some were marked, or an optimizer exists that will step.
    """
    if steps.steps or compile.optimizers or not compile.quiet_ns:
        return None
    return max(compile.quiet_ns, QUIET_GAPS * compile.longest_gap_ns)


def quiet_at_ns(facts: Facts) -> int | None:
    """When a rank without steps becomes warm if nothing compiles before; ``None`` if never."""
    compile = facts.compile
    limit = quiet_limit_ns(facts.steps, compile)
    if limit is None or compile.active_since_ns or compile.asynchronous:
        return None
    return quiet_since_ns(facts) + limit if _runs_compiled_code(compile) else None


def _runs_compiled_code(compile: CompileCounts) -> bool:
    """Whether anything compiled runs: from this record's time, or from before it."""
    return bool(compile.begun or compile.graphs_before or compile.precompiled)


def _warm_by(facts: Facts, now_ns: int) -> tuple[str, int] | None:
    """What ended the warm-up that nothing has reopened, and when; ``None`` if it is open."""
    compile = facts.compile
    if compile.active_since_ns or _held_up(facts, now_ns):
        return None
    if _clean(facts) >= facts.warm_steps and not (compile.begun and compile.asynchronous):
        # a reader may come between the K-th mark and the entry of the warm-up it ended
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
    """The last sign that it is not stuck: progress, or work, or a peer that it waited for."""
    return max(
        quiet_since_ns(facts),
        facts.peers_compiled_ns,
        facts.last_batch_ns,
        facts.working_ns,
        facts.pause_ns,
        pause_ns(facts.steps, facts.compile),
    )


def saving_since_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """Since when the rank saves; 0 where it does not.

    The thread that saves is that of the steps: where one was marked since, the end was lost.
    """
    since = compile.saving_since_ns
    return since if since >= steps.last_step_ns else 0


def evaluating_since_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """Since when the rank evaluates; 0 where it does not, or has not said so. Likewise."""
    since = compile.evaluating_since_ns
    return since if since >= steps.last_step_ns else 0


def between_cells_since_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """Since when no cell of its notebook runs; 0 where one does, or it is in none. Likewise."""
    since = compile.between_cells_since_ns
    return since if since >= steps.last_step_ns else 0


def pause_ns(steps: StepCounts, compile: CompileCounts) -> int:
    """Until when a rank saves, evaluates, or waits for its user to run another cell.

    That is the last one's end, or that of our patience, which a user is not asked for.
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
    """Of a rank that compiles: since when it has been at it, whatever it did in between.

    That is the begin of the warm-up that is open, or the last step where that is later: the step
    that holds a forward's and a backward's compilation is one story.
    """
    compile = facts.compile
    if not compile.active_since_ns:
        return None
    began = compile.episode_began_ns or compile.active_since_ns
    return min(compile.active_since_ns, max(began, facts.steps.last_step_ns))


def stall_after_ns(facts: Facts) -> int:
    """How long a rank that steps may stay quiet before it counts as stalled."""
    median = int(STALL_MEDIANS * (facts.median_step_ns or 0))
    gap = max(facts.longest_step_ns, facts.compile.longest_rest_ns)
    return max(STALL_FLOOR_NS, median, STALL_GAPS * gap)


def compile_precedent_ns(facts: Facts) -> int:
    """The longest activity that explains how long the one in progress takes; 0 where none does.

    Of its own only where it was warm before: in a first warm-up each activity is the first of its
    graph, and a small one says nothing of a large one.
    """
    own = facts.compile.longest_activity_ns if facts.compile.warmups else 0
    return max(own, facts.peers_longest_ns)


def compile_limit_ns(facts: Facts) -> int | None:
    """How long an activity may take before it counts as long; ``None``: that is not asked."""
    most = facts.long_compile_ns
    if not most:
        return None
    precedent = compile_precedent_ns(facts)
    if not precedent:
        return most
    return min(most, max(LONG_COMPILE_FLOOR_NS, LONG_COMPILE_TIMES * precedent))


def judge(facts: Facts, now_ns: int) -> Judgement:
    """Judge one rank at ``now_ns``."""
    judged = _ended(facts) or _living(facts, now_ns)
    holds = conditions(facts, now_ns)
    return replace(judged, conditions=holds) if holds else judged


def conditions(facts: Facts, now_ns: int) -> tuple[str, ...]:
    """Those of CONDITIONS that hold, whatever the state."""
    holds = {
        "thrashing": _thrashing(facts),
        "fallback": facts.compile.fallbacks > 0,
        "unknown": facts.compile.asynchronous > 0,
        "nothing_captured": _nothing_captured(facts, now_ns),
        "long_compile": _long_compile(facts, now_ns),
        "never_compiled": _never_compiled(facts, now_ns),
        "cudagraph_skipped": facts.compile.cudagraph_skips > 0,
        "slower_than_before": _slower_than_before(facts),
        "uncompiled_calls": _uncompiled_calls(facts),
        "background": facts.compile.background_since_ns > 0 and _ended(facts) is None,
        "silent": _silent(facts, now_ns),
        "slower": facts.slower and _ended(facts) is None and not facts.compile.active_since_ns,
    }
    return tuple(name for name in CONDITIONS if holds[name])


def _thrashing(facts: Facts) -> bool:
    """THRASHING_STEPS of the last steps compiled, and it goes on.

    Steps of the first warm-up do not count. It is over when no step has compiled for longer than
    between two of those that did, and for as many steps as make a rank warm.
    """
    compile, first = facts.compile, facts.compile.first_warmup.steps
    if not compile.warmups:
        return False
    touched = sorted(step for step in recently_touched(facts.steps, compile) if step > first)
    if len(touched) < THRASHING_STEPS:
        return False
    longest = max(later - earlier for earlier, later in pairwise(touched))
    return facts.steps.steps - touched[-1] <= max(facts.warm_steps, longest)


def _uncompiled_calls(facts: Facts) -> bool:
    """Whether a stance ran or refused calls lately."""
    step = facts.compile.uncompiled_step
    return 0 < step > facts.steps.steps - THRASHING_WINDOW


def _long_compile(facts: Facts, now_ns: int) -> bool:
    since, limit = facts.compile.active_since_ns, compile_limit_ns(facts)
    return since != 0 and limit is not None and _ended(facts) is None and now_ns - since > limit


def silent_after_ns(facts: Facts) -> int | None:
    """How long after a step the next one counts as missing; ``None`` where that is not known."""
    if not facts.usual_step_ns or not facts.steps.steps:
        return None
    return max(SILENT_FLOOR_NS, round(SILENT_STEPS * facts.usual_step_ns))


def _silent(facts: Facts, now_ns: int) -> bool:
    """No step for far too long, and no compilation or pause of any rank explains it.

    Batches and busy GPUs do not: unlike ``stalled`` this says what is missing, and blames nothing.
    """
    limit = silent_after_ns(facts)
    compile = facts.compile
    compiles = compile.active_since_ns or compile.background_since_ns  # which a step may wait for
    if limit is None or compiles or _ended(facts) is not None:
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
    """Its first warm-up is far beyond the longest of earlier runs: one says less than several."""
    earlier, first = facts.earlier_warmups_ns, facts.compile.first_warmup
    if not earlier or not facts.compile.warmups:
        return False
    times = SLOWER_TIMES_OF_SEVERAL if len(earlier) >= SLOWER_SEVERAL else SLOWER_TIMES
    took, longest = first.ended_ns - first.began_ns, max(earlier)
    return took >= times * longest and took - longest >= SLOWER_FLOOR_NS


def _nothing_captured(facts: Facts, now_ns: int) -> bool:
    """Where a torch tells of no compilation there is none to be judged by, so this never holds."""
    compile = facts.compile
    looked_at = compile.compilations[KINDS.index("forward")]
    # one that fails at every call is tried again at every call: then no step is clean
    in_vain = looked_at == compile.failures >= FEWEST_FAILURES
    return (
        looked_at > 0
        and not compile.graphs + compile.graphs_before
        and (in_vain or _warm_by(facts, now_ns) is not None)
    )


def _never_compiled(facts: Facts, now_ns: int) -> bool:
    """Asked for, and Dynamo has not looked at a single frame in steps that would make it eager.

    Activity of other compilers (a Triton kernel, a C++ extension) is none of Dynamo's; what nobody
    can tell apart (phase ``other``) may be.
    """
    compile = facts.compile
    dynamo = (compile.phase_ns[PHASES.index(phase)] for phase in ("dynamo", "other"))
    return (
        compile.wrappers > 0
        and not compile.precompiled  # what is wrapped may have been compiled before
        and not compile.disabled
        and not compile.active_since_ns
        and not compile.compilations[KINDS.index("forward")]
        and not compile.graphs + compile.graphs_before
        and not any(dynamo)
        and _warm_by(facts, now_ns) is not None
    )


def recently_touched(steps: StepCounts, compile: CompileCounts) -> tuple[int, ...]:
    """The numbers of those of the last THRASHING_WINDOW steps that held compile activity."""
    window = steps.steps - THRASHING_WINDOW
    if max(compile.touched_steps) <= window:  # so it is of every rank that is warm
        return ()
    return tuple(step for step in compile.touched_steps if step and step > window)


def _living(facts: Facts, now_ns: int) -> Judgement:
    steps, compile = facts.steps, facts.compile
    if compile.active_since_ns:
        state = State.RECOMPILING if compile.warmups else State.COMPILING
        since = compile.episode_began_ns if compile.warmups else open_since_ns(facts)
        phase = PHASES[compile.active_phase - 1] if compile.active_phase else None
        return Judgement(state=state, since_ns=since, compiling=True, phase=phase)
    warm_by = _warm_by(facts, now_ns)
    if not steps.steps and not compile.begun and not warm_by:
        return Judgement(state=State.STARTING, since_ns=facts.attached_ns)
    clean = 0 if _held_up(facts, now_ns) else _clean(facts)
    stalled_at = moved_ns(facts) + stall_after_ns(facts)
    if steps.steps and now_ns > stalled_at:
        return Judgement(state=State.STALLED, since_ns=stalled_at, clean_steps=clean)
    return _without_activity(facts, clean, warm_by)


def _held_up(facts: Facts, now_ns: int) -> bool:
    """Whether a compilation in the background may hold up the step in progress.

    No event tells whether one thread waits for another, so the time without a step decides.
    """
    if not facts.compile.background_since_ns:
        return False
    median = int(HELD_UP_MEDIANS * (facts.median_step_ns or 0))
    return now_ns - facts.steps.last_step_ns > max(HELD_UP_FLOOR_NS, median)


def _ended(facts: Facts) -> Judgement | None:
    """A process that says "finished" is believed when it is gone: its exit code, which decides,
    is not known before.
    """
    name = ENDS[facts.compile.end_code]
    if name and not (name == "finished" and facts.alive):
        state = State.FAILED if name == "failed" else State.FINISHED
        return _over(facts, state, facts.compile.ended_ns or facts.gone_ns)
    if facts.alive:
        return None
    # ``ended_ns``: it had come to its end, and was killed there
    crashed = facts.killed_by in CRASHES and not facts.compile.ended_ns
    if crashed or facts.fell_first:
        return _over(facts, State.FAILED, facts.gone_ns)
    return _over(facts, State.LOST, facts.gone_ns or facts.compile.ended_ns or None)


def _over(facts: Facts, state: State, since_ns: int | None) -> Judgement:
    return Judgement(state=state, since_ns=since_ns, clean_steps=_clean(facts))


def _without_activity(facts: Facts, clean: int, warm_by: tuple[str, int] | None) -> Judgement:
    """A living rank with no activity in progress that moves along."""
    compile = facts.compile
    if warm_by is not None:
        by, since = warm_by
        # attached to a process that had compiled: what it runs may well be compiled
        state = State.WARM if _runs_compiled_code(compile) else State.EAGER
        return Judgement(state=state, since_ns=since, clean_steps=clean, warm_by=by)
    if not compile.begun:
        return Judgement(state=State.WARMING, since_ns=compile.first_step_ns, clean_steps=clean)
    if compile.warmups:
        since = compile.episode_began_ns or facts.steps.last_step_ns  # 0: it is held up
        return Judgement(state=State.RECOMPILING, since_ns=since, clean_steps=clean)
    return Judgement(state=State.WARMING, since_ns=compile.last_end_ns, clean_steps=clean)
