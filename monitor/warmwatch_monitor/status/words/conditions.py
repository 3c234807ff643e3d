"""What a state alone does not express, one clause each: conditions, compilations that take too
long, and inefficiencies of compiled code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from warmwatch.shared.breaks import break_remedy_for, of_ddp, plain_break
from warmwatch.shared.fallbacks import FLEX, REMEDIES
from warmwatch.shared.phrases import counted, duration, place, took
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import (
    LONG_COMPILE_FLOOR_NS,
    LONG_COMPILE_TIMES,
    THRASHING_STEPS,
    THRASHING_WINDOW,
)
from warmwatch_monitor.figures.declared import Kind
from warmwatch_monitor.figures.machine import Compiler
from warmwatch_monitor.figures.rank import Slower
from warmwatch_monitor.model.figures import Figures
from warmwatch_monitor.model.journal import Fallback, Spill
from warmwatch_monitor.model.records import Recordings
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.amounts import (
    causes_of,
    compared,
    failure_of,
    label,
    own_words,
    percent,
    size,
)
from warmwatch_monitor.output.summary import Clause, Words, begin
from warmwatch_monitor.status.schema.rank import Inefficiency
from warmwatch_monitor.status.words.progress import halted, slower_than_before
from warmwatch_monitor.status.words.repeating import (
    REMEDY_OF_SIZES,
    bypasses,
    fallback,
    remedy_of_failure,
    remedy_of_fallback,
    remedy_of_repeating,
    repeating,
    strict_exports,
    unfused,
)
from warmwatch_monitor.status.words.requested import (
    cudagraph_skipped,
    last_remedy,
    never_compiled,
    remedy_of_never_compiled,
    remedy_of_skip,
    uncompiled_calls,
    workers_at_work,
)

IDLE_SECONDS = 5.0  # longer than a pause between two tasks of a process
_WORKING = 0.05  # of a core
_REPLAYED = "cudagraph"
_MOST = 10  # inefficiencies of each kind
_SPILLED = 16  # registers: as many as Inductor accepts in a configuration that it tunes
_SIZES = 3  # of a graph's inputs: a training, its last batch and an evaluation have three


def long_compile(view: RankView) -> Words:
    """``one compilation takes 12 min, the longest before took 48 s; nothing of it is busy...``."""
    activity = view.figures.compile.open
    took = f" takes {duration(activity.seconds)}" if activity else " takes too long"
    return begin(f"one compilation{took}, {_against(view)}", at_work(view))


def too_long(view: RankView) -> Words:
    """The same after a head with a duration: ``too long: the longest before...``, if that is the
    duration of this compilation.
    """
    activity, shown = view.figures.compile.open, view.figures.progress.stretch
    if activity and shown and duration(shown.seconds) != duration(activity.seconds):
        return long_compile(view)
    return begin(f"too long: {_against(view)}", at_work(view))


def _against(view: RankView) -> str:
    progress = view.figures.progress
    limit, before = progress.compile_limit_seconds, progress.compile_precedent_seconds
    explained = max(LONG_COMPILE_FLOOR_NS / 1e9, LONG_COMPILE_TIMES * (before or 0.0))
    if before is not None and (limit is None or limit >= explained):
        return f"the longest before took {duration(before)}"
    return f"the limit is {duration(limit)}" if limit is not None else "longer than any explains"


def at_work(view: RankView) -> str:
    """Which of its processes is busy, or that none is, so it hangs; empty if unknown."""
    process = view.process
    if process is None:
        return ""
    if process.stopped:
        return halted(view, short=True)
    if stopped := next((compiler for compiler in process.compilers if compiler.stopped), None):
        return f"{_named(stopped)} is stopped: it hangs until it is let go on"
    if busy := next((compiler for compiler in process.compilers if compiler.busy), None):
        return f"{_named(busy)} is busy ({duration(busy.cpu_seconds)} of CPU): it works, or loops"
    if process.workers_busy:
        return f"{counted(process.workers_busy, 'compile worker')} busy: it works, or loops"
    if process.cpu_ratio is not None and process.cpu_ratio >= _WORKING:
        used = f"{100 * process.cpu_ratio:.0f} % of a core"
        return f"its process is busy ({used}): it works, or loops"
    if view.idle_seconds is not None and view.idle_seconds >= IDLE_SECONDS:
        return f"nothing of it is busy, for {duration(view.idle_seconds)} now: it hangs"
    return ""


def _named(compiler: Compiler) -> str:
    return f"{compiler.name} (pid {compiler.pid})"


def conditions(view: RankView) -> dict[str, Clause]:
    """Every condition that holds for ``view``, in the verdict's order."""
    return {name: _CONDITIONS[name].clause(view) for name in view.judgement.conditions}


def conditions_beyond(view: RankView) -> dict[str, Clause]:
    """The same, for use after a head with the compile time of ``view``."""
    clauses = conditions(view)
    if "long_compile" in clauses:
        clauses["long_compile"] = _Condition(too_long).clause(view)
    return clauses


def remedy_of(name: str, view: RankView) -> str | None:
    """What to do about a condition that holds; ``None`` if that does not follow from its words."""
    remedy = _CONDITIONS[name].remedy
    return remedy(view.figures) if remedy else None


_CHANGED = {
    "python_value": "a value",
    "object_identity": "another object",
    NEW_INSTANCE: "another module of the same class",
}


def _thrashing(figures: Figures) -> Words:
    if clause := repeating(figures):
        return clause
    touched = figures.steps.touched_lately
    if touched is None:
        several = f"{THRASHING_STEPS} or more of the last {THRASHING_WINDOW} steps"
        return begin(f"thrashing: {several} compiled")
    last = min(THRASHING_WINDOW, figures.steps.count)
    if failed := _failed_lately(figures):
        return begin(f"{touched} of the last {last} steps compiled in vain", failed, ": ")
    reasons = Counter(c.category for c in figures.log.compilations if c.category)
    most = reasons.most_common(1)[0][0] if reasons else ""
    what = _CHANGED.get(most, most.replace("_", " "))
    lead = f", mostly for {what}" if what else ""
    changing = last_remedy(
        figures.log, of=[c.id for c in figures.log.compilations if c.category == most]
    )
    because = f" ({changing.text})" if changing else ""
    return begin(f"thrashing: {touched} of the last {last} steps compiled{lead}", because, "")


def background(view: RankView) -> Words:
    """That another thread compiles, and whether the steps go on meanwhile."""
    figures = view.figures
    seconds = figures.compile.background_for_seconds
    since = "" if seconds is None else f" for {duration(seconds)}"
    clause = f"another thread compiles in the background{since}"
    if view.judgement.clean_steps or not figures.steps.count:
        return begin(clause, "steps do not wait for it")
    quiet = figures.progress.quiet_seconds
    return begin(clause, f"no step for {duration(quiet)}, which may wait for it")


def _unknown(_figures: Figures) -> Words:
    return begin("Inductor compiles asynchronously", "when it has ended cannot be seen", ": ")


def nothing_captured(figures: Figures) -> tuple[str, str]:
    """``Dynamo captured nothing``, so this is eager speed; and why: ``3 graph breaks: ...``.

    If every compilation failed, there was something to capture, so the failure is reported instead.
    """
    breaks = _breaks(figures)
    failures = figures.compile.failures or 0
    if failures and failures >= (figures.compile.compilations_by_kind or {}).get("forward", 0):
        why = "; ".join(filter(None, (f"{failures}{_failure(figures)}", breaks)))
        return "every compilation failed", why
    because = [breaks, f"{counted(failures, 'compilation')} failed" if failures else ""]
    return "Dynamo captured nothing", "; ".join(filter(None, because))


def remedy_of_nothing_captured(figures: Figures) -> str:
    """What failed, or what breaks the graphs."""
    compilations = figures.log.compilations
    if compilations and all(compilation.failure for compilation in compilations):
        last = compilations[-1]
        return remedy_of_failure(last)
    breaks = figures.log.breaks
    if breaks and all(of_ddp(one.reason, library=one.library) for one in breaks):
        return _CONTAINER_IN_DDP
    return next(filter(None, map(break_remedy_for, breaks)), None) or (
        "Find what breaks the graph in every frame (TORCH_LOGS=graph_breaks shows where). "
        f"{_CONTAINER_IN_DDP}"
    )


# PyTorch compiles no code of its own containers: below the wrapper nothing is left to capture.
_CONTAINER_IN_DDP = (
    "With DistributedDataParallel around a container of PyTorch (Sequential), compile the "
    "container before you wrap it."
)


def _nothing_captured(figures: Figures) -> Words:
    """``Dynamo captured nothing: this is eager speed (3 graph breaks: ...)``."""
    text, why = nothing_captured(figures)
    if not figures.steps.repeated:  # else each step compiles in vain: far slower than eager
        text = f"{text}: this is eager speed"
    return begin(text, f" ({why})" if why else "", "")


def _breaks(figures: Figures) -> str:
    breaks = figures.compile.graph_breaks
    if not breaks:
        return ""
    if not (graph_breaks := figures.log.breaks):
        return counted(breaks, "graph break")
    first = graph_breaks[0]
    plain = plain_break(first.reason, first.name, library=first.library)
    lead = "" if len(graph_breaks) == 1 else ", the first"  # others may have another reason
    return f"{counted(breaks, 'graph break')}{lead}: {plain or own_words(first.reason, 60)}"


def _failure(figures: Figures) -> str:
    """``: Unsupported: Data-dependent branching``, the last that is known."""
    failed = (each for each in reversed(figures.log.compilations) if each.failure)
    last = next(failed, None)
    return f": {failure_of(last)}" if last else ""


def _failed_lately(figures: Figures) -> str:
    """``14 compilations failed: RuntimeError``; empty where most of the last ones did not."""
    last, failures = figures.log.compilations, figures.compile.failures or 0
    if 2 * sum(compilation.failure is not None for compilation in last) <= len(last):
        return ""
    backward = all(compilation.kind == "backward" for compilation in last if compilation.failure)
    noun = "backward compilation" if backward else "compilation"
    return f"{counted(failures, noun)} failed{_failure(figures)}"


def failed(figures: Figures) -> str:
    """How many compilations failed, and why the last one did."""
    return f"{counted(figures.compile.failures or 0, 'compilation')} failed{_failure(figures)}"


def slower(view: RankView) -> Words:
    """``slower: 400 ms a step since step 301 (24 ms before, 17x); load 8.9 on 2 CPUs``."""
    if view.slower is None:  # a Prometheus server that has not scraped the numbers
        return begin("slower than before")
    since, speed = slower_since(view.slower), f"slower: {took(view.slower.seconds)} a step"
    whole = begin(f"{speed} {since.text}", slower_causes(view.slower)).text
    return Words(whole, f"{speed} {since.short}".rstrip())


def slower_since(slower: Slower) -> Words:
    """``since step 301 (24 ms before, 17x)``."""
    since = "" if slower.since_step is None else f"since step {slower.since_step + 1}"
    return Words(f"{since} {compared(slower)}".lstrip(), since)


def slower_causes(slower: Slower) -> str:
    """Known differences; empty if none were measured on this host."""
    return "" if slower.causes is None else causes_of(slower)


def memory_growing(view: RankView) -> Words:
    """``host memory grows by 4.2 MB a step since step 300 (240 MB so far, used up in 2 h)``."""
    growth = view.memory_growth
    if growth is None:  # a Prometheus server has no numbers
        return begin("memory grows steadily")
    what = "GPU memory" if growth.of == "gpu" else "host memory"
    left = None if growth.left_seconds is None else f", used up in {took(growth.left_seconds)}"
    so_far = f"({size(growth.grown_bytes)} so far{left or ''})"
    text = f"{what} grows by {size(growth.bytes_per_step)} a step since step {growth.since_step}"
    names, more = (
        ", ".join(f"`{name}`" for name in growth.recompiled[:3]),
        len(growth.recompiled) - 3,
    )
    names += f" and {more} more" if more > 0 else ""
    return begin(text, f"{so_far}{f'; {names} compiled then' if names else ''}", " ")


def workers_memory(view: RankView) -> Words:
    """``93 % of 64 GB memory (cgroup limit) is used; 32 compile workers hold 41 GB``."""
    memory = view.workers_memory
    if memory is None:
        return begin("nearly all memory is used, much of it by compile workers")
    limit = " (cgroup limit)" if memory.cgroup else ""
    share = f"{100 * memory.used_bytes / memory.limit_bytes:.0f} %"
    holds = "holds" if memory.workers == 1 else "hold"
    held = f"{counted(memory.workers, 'compile worker')} {holds} {size(memory.workers_bytes)}"
    fewer = "TORCHINDUCTOR_COMPILE_THREADS sets their number"
    used = f"{share} of {size(memory.limit_bytes)} memory{limit} is used"
    return begin(used, f"{held}; {fewer}")


# Each worker is a process of its own, which compiles for itself.
WORKERS_REMEDY = (
    "one DataLoader with persistent_workers=True keeps them; or compile in the training process"
)


def workers_compile(view: RankView) -> Words:
    """``4 DataLoader workers compile `aug` for 12 s; one DataLoader with persist...``."""
    workers = view.figures.loader_workers
    if workers is None:
        return begin("DataLoader workers compile", WORKERS_REMEDY)
    if view.judgement.compiling:  # the head of the sentence has the rest
        return begin("each worker compiles for itself", WORKERS_REMEDY)
    if now := workers_at_work(view.figures):
        return begin(f"{now} for {duration(workers.for_seconds or 0.0)}", WORKERS_REMEDY)
    what = f" {place(workers.name)}" if workers.name else ""
    if workers.processes == 1:
        compiled = f"1 DataLoader worker has compiled{what} for {duration(workers.seconds)}"
    else:
        have = f"{workers.processes} DataLoader workers have compiled{what}"
        compiled = f"{have}, each separately, {duration(workers.seconds)} in all"
    return begin(compiled, WORKERS_REMEDY)


def silent(figures: Figures) -> Words:
    """``no step for 38 s (usually 53 ms)``."""
    age, usual = figures.progress.last_step_age_seconds, figures.steps.length
    usually = f" (usually {took(usual)})" if usual else ""
    return begin(f"no step for {duration(age or 0.0)}", usually, "")


def _remedy_of_silent(figures: Figures) -> str | None:
    """Steps that a CUDA graph of the program replays are not seen."""
    if _REPLAYED not in (figures.compile.precompiled or ()):
        return None
    return "If the program replays steps as a CUDA graph, mark each with warmwatch.step()."


def exiting(view: RankView) -> Words:
    """``exiting after 400 steps: its program has ended``."""
    count = view.figures.steps.count
    title = f"exiting after {counted(count, 'step')}" if count else "exiting"
    return begin(title, "its program has ended", ": ")


class _Condition(Struct, frozen=True):
    words: Callable[[RankView], Words]
    kind: Kind = Kind.ATTENTION
    remedy: Callable[[Figures], str | None] | None = None

    def clause(self, view: RankView) -> Clause:
        clause = self.words(view)
        return Clause(clause.text, self.kind, clause.short)


def _of(words: Callable[[Figures], Words]) -> Callable[[RankView], Words]:
    return lambda view: words(view.figures)


_CONDITIONS = {
    "long_compile": _Condition(long_compile),
    "thrashing": _Condition(_of(_thrashing), remedy=remedy_of_repeating),
    "fallback": _Condition(_of(fallback), remedy=remedy_of_fallback),
    "unknown": _Condition(_of(_unknown), Kind.NOTE),
    "background": _Condition(background, Kind.NOTE),
    "nothing_captured": _Condition(_of(_nothing_captured), remedy=remedy_of_nothing_captured),
    "never_compiled": _Condition(
        lambda view: begin(*never_compiled(view.figures), ": "), remedy=remedy_of_never_compiled
    ),
    "cudagraph_skipped": _Condition(_of(cudagraph_skipped), Kind.NOTE, remedy_of_skip),
    "slower_than_before": _Condition(_of(slower_than_before), Kind.NOTE),
    "uncompiled_calls": _Condition(_of(uncompiled_calls)),
    "silent": _Condition(_of(silent), Kind.NOTE, _remedy_of_silent),
    "slower": _Condition(slower, Kind.NOTE),
    "memory_growing": _Condition(memory_growing, Kind.NOTE),
    "workers_memory": _Condition(workers_memory),
    "workers_compile": _Condition(workers_compile),
    "exiting": _Condition(exiting, Kind.NOTE),
}


def inefficiencies(figures: Figures) -> tuple[list[Inefficiency], int]:
    """Compiled code that runs slower than it could or compiles too often; how many more there are.

    The most expensive of each kind come first.
    """
    log = figures.log
    spills = sorted(log.spills, key=lambda spill: (-(spill.seconds or 0.0), -spill.registers))
    sizes = sorted(log.recordings, key=lambda recording: -max(recording.sizes))
    groups: tuple[list[Inefficiency], ...] = (
        [_unfused(fallback) for fallback in log.fallbacks if fallback.setting == FLEX],
        [_spilled(spill, figures.steps.length) for spill in spills if spill.registers > _SPILLED],
        [_recorded(size) for size in sizes if max(size.sizes) > _SIZES],
        strict_exports(figures),
        bypasses(figures),
    )
    listed = [inefficiency for kind in groups for inefficiency in kind[:_MOST]]
    return listed, sum(map(len, groups)) - len(listed)


def _unfused(fallback: Fallback) -> Inefficiency:
    return Inefficiency(
        kind="flex_attention",
        called=label(fallback),
        bytes=fallback.score_bytes,
        words=unfused(fallback).text,
        advice=REMEDIES[FLEX],
    )


# By the begin of a kernel's name: Inductor's templates, its other kernels, and those of users
_OF_INDUCTOR = "Set torch._inductor.config.max_fusion_size lower, which splits the kernel."
_UNSPILL = {
    "triton_tem_fused_flex_attention": "Pass smaller blocks to flex_attention, such as "
    'kernel_options={"BLOCK_M": 32, "BLOCK_N": 32}, if that is faster.',
    "triton_tem_": "A template that was tuned: it was the fastest of its choices all the same.",
    **dict.fromkeys(("triton_poi_", "triton_red_", "triton_per_", "triton_for_"), _OF_INDUCTOR),
    "": "Give the kernel smaller blocks, or more num_warps.",
}


def _spilled(spill: Spill, step: float | None) -> Inefficiency:
    launch = ""
    if spill.seconds is not None:
        share = f" ({percent(spill.seconds / step)} of a step)" if step else ""
        launch = f"; one launch takes {took(spill.seconds)}{share}"
    return Inefficiency(
        kind="register_spills",
        called=spill.kernel,
        count=spill.registers,
        seconds=spill.seconds,
        words=f"kernel `{spill.kernel}` spills {spill.registers} registers of each thread{launch}",
        advice=next(text for start, text in _UNSPILL.items() if spill.kernel.startswith(start)),
    )


def _recorded(recordings: Recordings) -> Inefficiency:
    where = place(*recordings.function)
    grown = f", {size(recordings.grown_bytes)} reserved meanwhile" if recordings.grown_bytes else ""
    # PyTorch records a graph when its size comes for the second time
    made = counted(recordings.recorded, "recording") if recordings.recorded else "none recorded"
    return Inefficiency(
        kind="cudagraph_sizes",
        called=label(recordings),
        count=max(recordings.sizes),
        seconds=recordings.seconds,
        bytes=recordings.grown_bytes,
        words=f"CUDA graphs of {where or 'a function'} for {max(recordings.sizes)} sizes: "
        f"{made} in {took(recordings.seconds)}{grown}",
        advice=REMEDY_OF_SIZES,
    )
