"""What a state alone does not express, one clause each: conditions, compilations that take too
long, and inefficiencies of compiled code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from warmwatch.shared.phrases import counted, duration, exact_length, place, step_length
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch.shared.verdict import (
    LONG_COMPILE_FLOOR_NS,
    LONG_COMPILE_TIMES,
    THRASHING_STEPS,
    THRASHING_WINDOW,
)
from warmwatch_monitor.model import Compiler, Fallback, Figures, RankView, Recordings, Slower, Spill
from warmwatch_monitor.output.amounts import own_words, percent, size, took
from warmwatch_monitor.output.summary import Importance
from warmwatch_monitor.status.schema.compile import Inefficiency
from warmwatch_monitor.status.words.breaks import break_remedy
from warmwatch_monitor.status.words.fallbacks import (
    CALL_COMPILED,
    FLEX,
    fallback,
    remedy_of_fallback,
    unfused,
)
from warmwatch_monitor.status.words.nothing import workers_at_work
from warmwatch_monitor.status.words.progress import slower_than_before
from warmwatch_monitor.status.words.repeating import (
    failure,
    remedy_of_failure,
    remedy_of_repeating,
    repeating,
)
from warmwatch_monitor.status.words.requested import (
    cudagraph_skipped,
    never_compiled,
    remedy,
    remedy_of_never_compiled,
    uncompiled_calls,
)

IDLE_SECONDS = 5.0  # longer than a pause between two tasks of a process
_WORKING = 0.05  # of a core
_MOST = 10  # inefficiencies of each kind
_SPILLED = 16  # registers: as many as Inductor accepts in a configuration that it tunes
_SIZES = 3  # of a graph's inputs: a training, its last batch and an evaluation have three


def long_compile(view: RankView) -> str:
    """``one compilation takes 12 min, the longest before took 48 s; nothing of it is busy...``."""
    activity = view.figures.compile.open
    took = f" takes {duration(activity.seconds)}" if activity else " takes too long"
    return "; ".join(filter(None, [f"one compilation{took}, {_against(view)}", at_work(view)]))


def too_long(view: RankView) -> str:
    """The same after a head with a duration: ``too long: the longest before...``, if that is the
    duration of this compilation.
    """
    activity, shown = view.figures.compile.open, view.figures.progress.stretch
    if activity and shown and duration(shown.seconds) != duration(activity.seconds):
        return long_compile(view)
    return "; ".join(filter(None, [f"too long: {_against(view)}", at_work(view)]))


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
        return "its process is stopped"
    if stopped := next((one for one in process.compilers if one.stopped), None):
        return f"{_named(stopped)} is stopped: it hangs until it is let go on"
    if busy := next((one for one in process.compilers if one.busy), None):
        return f"{_named(busy)} is busy ({duration(busy.cpu_seconds)} of CPU): it works, or loops"
    if process.workers_busy:
        return f"{counted(process.workers_busy, 'compile worker')} busy: it works, or loops"
    if process.cpu_ratio is not None and process.cpu_ratio >= _WORKING:
        used = f"{100 * process.cpu_ratio:.0f} % of a core"
        return f"its process is busy ({used}): it works, or loops"
    if view.idle_seconds is not None and view.idle_seconds >= IDLE_SECONDS:
        return f"nothing of it is busy, for {duration(view.idle_seconds)} now: it hangs"
    return ""


def _named(one: Compiler) -> str:
    return f"{one.name} (pid {one.pid})"


# A condition that is not listed is an Importance.NOTE.
IMPORTANCE = {
    "long_compile": Importance.ATTENTION,
    "thrashing": Importance.ATTENTION,
    "fallback": Importance.ATTENTION,
    "nothing_captured": Importance.ATTENTION,
    "never_compiled": Importance.ATTENTION,
    "uncompiled_calls": Importance.ATTENTION,
    "workers_memory": Importance.ATTENTION,
    "workers_compile": Importance.ATTENTION,
}
# A headline without enough room omits the part of a condition's words after this separator.
SHORT_BEFORE = {
    "long_compile": "; ",
    "unknown": ": ",
    "cudagraph_skipped": ": ",
    "workers_memory": "; ",
    "workers_compile": "; ",
    "fallback": " since step |: ",  # not " (": a function has its file in parentheses
}


def conditions(view: RankView) -> list[tuple[str, str]]:
    """Name and clause of every condition that holds for ``view``, in the verdict's order."""
    return [(name, _words(name, view)) for name in view.judgement.conditions]


def short_conditions(view: RankView) -> list[tuple[str, str]]:
    """The same, for use after a head with the compile time of ``view``."""
    return [
        (name, too_long(view) if name == "long_compile" else _words(name, view))
        for name in view.judgement.conditions
    ]


def remedy_of(name: str, view: RankView) -> str | None:
    """What to do about a condition that holds; ``None`` if that does not follow from its words."""
    find = _REMEDIES.get(name)
    return find(view.figures) if find else None


def _words(name: str, view: RankView) -> str:
    of_view = _OF_VIEW.get(name)
    return of_view(view) if of_view else _WORDS[name](view.figures)


def _thrashing(figures: Figures) -> str:
    if words := repeating(figures):
        return words
    touched = figures.steps.touched_lately
    if touched is None:
        return f"thrashing: {THRASHING_STEPS} or more of the last {THRASHING_WINDOW} steps compiled"
    last = min(THRASHING_WINDOW, figures.steps.count)
    if failed := _failed_lately(figures):
        return f"{touched} of the last {last} steps compiled in vain: {failed}"
    reasons = Counter(c.category for c in figures.log.compilations if c.category)
    most = reasons.most_common(1)[0][0] if reasons else ""
    what = "another module of the same class" if most == NEW_INSTANCE else most
    lead = f", mostly for {what}" if what else ""
    remedies = (remedy(one) for one in reversed(figures.log.varying))
    because = next((f" ({words})" for words in remedies if words), "")
    return f"thrashing: {touched} of the last {last} steps compiled{lead}{because}"


def background(view: RankView) -> str:
    """That another thread compiles, and whether the steps go on meanwhile."""
    figures = view.figures
    took = figures.compile.background_for_seconds
    since = "" if took is None else f" for {duration(took)}"
    clause = f"another thread compiles in the background{since}"
    if view.judgement.clean_steps or not figures.steps.count:
        return f"{clause}; steps do not wait for it"
    quiet = figures.progress.quiet_seconds
    return f"{clause}; no step for {duration(quiet)}, which may wait for it"


def _unknown(_figures: Figures) -> str:
    return "Inductor compiles asynchronously: when it has ended cannot be seen"


def nothing_captured(figures: Figures) -> tuple[str, str]:
    """``Dynamo captured nothing``, so this is eager speed; and why: ``3 graph breaks: ...``.

    If every compilation failed, there was something to capture, so the failure is reported instead.
    """
    breaks = _breaks(figures)
    failures = figures.compile.failures or 0
    if failures and failures >= (figures.compile.compilations or {}).get("forward", 0):
        known = "; ".join(filter(None, (f"{failures}{_failure(figures)}", breaks)))
        return "every compilation failed", known
    because = [breaks, f"{counted(failures, 'compilation')} failed" if failures else ""]
    return "Dynamo captured nothing", "; ".join(filter(None, because))


def remedy_of_nothing_captured(figures: Figures) -> str:
    """What failed, or what breaks the graphs."""
    failed_ones = [one for one in figures.log.compilations if one.failure]
    if failed_ones and len(failed_ones) == len(figures.log.compilations):
        return remedy_of_failure(failed_ones[-1].name, failed_ones[-1].failure_hint)
    known = filter(None, map(break_remedy, figures.log.breaks))
    return next(known, None) or (
        "Find what breaks the graph in every frame (TORCH_LOGS=graph_breaks shows where). With "
        "DistributedDataParallel around a container of PyTorch (Sequential), compile the "
        "container before you wrap it."
    )


def _nothing_captured(figures: Figures) -> str:
    """``Dynamo captured nothing: this is eager speed (3 graph breaks: ...)``."""
    words, why = nothing_captured(figures)
    if figures.steps.repeated:  # each step compiles in vain, which is far slower than eager
        return f"{words}{f' ({why})' if why else ''}"
    return f"{words}: this is eager speed{f' ({why})' if why else ''}"


def _breaks(figures: Figures) -> str:
    breaks = figures.compile.graph_breaks
    if not breaks:
        return ""
    known = figures.log.breaks
    lead = ": " if len(known) == 1 else ", the first: "  # others may have another reason
    first = f"{lead}{own_words(known[0].reason, 60)}" if known else ""
    return f"{counted(breaks, 'graph break')}{first}"


def _failure(figures: Figures) -> str:
    """``: Unsupported: Data-dependent branching``, the last that is known."""
    known = [one for one in figures.log.compilations if one.failure]
    return f": {failure(known[-1].failure, known[-1].failure_reason)}" if known else ""


def _failed_lately(figures: Figures) -> str:
    """``14 compilations failed: RuntimeError``; empty where most of the last ones did not."""
    last, failures = figures.log.compilations, figures.compile.failures or 0
    if 2 * sum(one.failure is not None for one in last) <= len(last):
        return ""
    backward = all(one.kind == "backward" for one in last if one.failure)
    noun = "backward compilation" if backward else "compilation"
    return f"{counted(failures, noun)} failed{_failure(figures)}"


def failed(figures: Figures) -> str:
    """How many compilations failed, and why the last one did."""
    return f"{counted(figures.compile.failures or 0, 'compilation')} failed{_failure(figures)}"


def slower(view: RankView) -> str:
    """``slower: 400 ms a step since step 301 (24 ms before, 17x); load 8.9 on 2 CPUs``."""
    if view.slower is None:  # a Prometheus server that has not scraped the numbers
        return "slower than before"
    why = slower_causes(view.slower)
    return f"slower: {slower_speed(view.slower)}" + (f"; {why}" if why else "")


def slower_speed(known: Slower) -> str:
    """``400 ms a step since step 301 (24 ms before, 17x)``."""
    since = "" if known.since_step is None else f" since step {known.since_step + 1}"
    before = f"({step_length(known.before)} before, {float(f'{known.ratio:.2g}'):g}x)"
    return f"{step_length(known.seconds)} a step{since} {before}"


def slower_causes(known: Slower) -> str:
    """Known differences; empty if none are known on this host."""
    if known.causes is None:
        return ""
    return ", ".join(known.causes) or "no known cause"


def memory_growing(view: RankView) -> str:
    """``host memory grows by 4.2 MB a step since step 300 (240 MB so far, used up in 2 h)``."""
    known = view.memory_growth
    if known is None:  # a Prometheus server has no numbers
        return "memory grows steadily"
    what = "GPU memory" if known.of == "gpu" else "host memory"
    left = None if known.left_seconds is None else f", used up in {took(known.left_seconds)}"
    so_far = f"({size(known.grown_bytes)} so far{left or ''})"
    text = f"{what} grows by {size(known.bytes_per_step)} a step since step {known.since_step}"
    names, more = ", ".join(f"`{name}`" for name in known.recompiled[:3]), len(known.recompiled) - 3
    names += f" and {more} more" if more > 0 else ""
    return f"{text} {so_far}" + (f"; {names} compiled then" if names else "")


def workers_memory(view: RankView) -> str:
    """``93 % of 64 GB memory (cgroup limit) is used; 32 compile workers hold 41 GB``."""
    known = view.workers_memory
    if known is None:
        return "nearly all memory is used, much of it by compile workers"
    limit = " (cgroup limit)" if known.cgroup else ""
    share = f"{100 * known.used_bytes / known.limit_bytes:.0f} %"
    held = f"{counted(known.workers, 'compile worker')} hold {size(known.workers_bytes)}"
    fewer = "TORCHINDUCTOR_COMPILE_THREADS sets their number"
    return f"{share} of {size(known.limit_bytes)} memory{limit} is used; {held}; {fewer}"


# Each worker is a process of its own, which compiles for itself.
WORKERS_REMEDY = "persistent_workers=True keeps them; or compile in the training process"


def workers_compile(view: RankView) -> str:
    """``4 DataLoader workers compile `aug` for 12 s; persistent_workers=True keeps them...``."""
    known = view.figures.loader_workers
    if known is None:
        return f"DataLoader workers compile; {WORKERS_REMEDY}"
    if view.judgement.compiling:  # the head of the sentence has the rest
        return f"each worker compiles for itself; {WORKERS_REMEDY}"
    if now := workers_at_work(view.figures):
        return f"{now} for {duration(known.for_seconds or 0.0)}; {WORKERS_REMEDY}"
    what = f" {place(known.name)}" if known.name else ""
    have = f"{counted(known.processes, 'DataLoader worker')} have compiled{what}"
    return f"{have}, each anew, {duration(known.seconds)} in all; {WORKERS_REMEDY}"


_OF_VIEW: dict[str, Callable[[RankView], str]] = {
    "long_compile": long_compile,
    "background": background,
    "slower": slower,
    "memory_growing": memory_growing,
    "workers_memory": workers_memory,
    "workers_compile": workers_compile,
}


def silent(figures: Figures) -> str:
    """``no step for 38 s (usually 53 ms)``."""
    age, usual = figures.progress.last_step_age_seconds, figures.steps.length
    usually = f" (usually {step_length(usual)})" if usual else ""
    return f"no step for {duration(age or 0.0)}{usually}"


_WORDS: dict[str, Callable[[Figures], str]] = {
    "thrashing": _thrashing,
    "fallback": fallback,
    "unknown": _unknown,
    "nothing_captured": _nothing_captured,
    "never_compiled": lambda figures: ": ".join(never_compiled(figures)),
    "cudagraph_skipped": cudagraph_skipped,
    "slower_than_before": slower_than_before,
    "uncompiled_calls": uncompiled_calls,
    "silent": silent,
}


_REMEDIES: dict[str, Callable[[Figures], str | None]] = {
    "thrashing": remedy_of_repeating,
    "fallback": remedy_of_fallback,
    "nothing_captured": remedy_of_nothing_captured,
    "never_compiled": remedy_of_never_compiled,
}


def inefficiencies(figures: Figures) -> tuple[list[Inefficiency], int]:
    """Compiled code that runs slower than it could, and how many more there are.

    The most expensive of each kind come first.
    """
    log = figures.log
    spills = sorted(log.spills, key=lambda one: (-(one.seconds or 0.0), -one.registers))
    sizes = sorted(log.recordings, key=lambda one: -max(one.sizes))
    found: tuple[list[Inefficiency], ...] = (
        [_unfused(one) for one in log.fallbacks if one.setting == FLEX],
        [_spilled(one, figures.steps.length) for one in spills if one.registers > _SPILLED],
        [_recorded(one) for one in sizes if max(one.sizes) > _SIZES],
    )
    listed = [one for kind in found for one in kind[:_MOST]]
    return listed, sum(map(len, found)) - len(listed)


def _unfused(one: Fallback) -> Inefficiency:
    return Inefficiency(
        kind="flex_attention",
        called=_label(place(one.name, one.file, one.line)),
        bytes=one.score_bytes,
        words=unfused(one),
        advice=CALL_COMPILED,
    )


def _spilled(one: Spill, step: float | None) -> Inefficiency:
    launch = ""
    if one.seconds is not None:
        share = f" ({percent(one.seconds / step)} of a step)" if step else ""
        launch = f"; one launch takes {exact_length(one.seconds)}{share}"
    return Inefficiency(
        kind="register_spills",
        called=one.kernel,
        count=one.registers,
        seconds=one.seconds,
        words=f"kernel `{one.kernel}` spills {one.registers} registers of each thread{launch}",
        advice="A kernel of your own: smaller blocks, or more num_warps. One of Inductor's: a "
        "lower torch._inductor.config.max_fusion_size splits it.",
    )


def _recorded(one: Recordings) -> Inefficiency:
    where = place(one.name, one.file, one.line)
    grown = f", {size(one.grown_bytes)} reserved meanwhile" if one.grown_bytes else ""
    return Inefficiency(
        kind="cudagraph_sizes",
        called=_label(where),
        count=max(one.sizes),
        seconds=one.seconds,
        bytes=one.grown_bytes,
        words=f"CUDA graphs of {where or 'a function'} for {max(one.sizes)} sizes: "
        f"{counted(one.recorded, 'recording')} in {took(one.seconds)}{grown}",
        advice="Pad inputs to a few sizes, or set "
        "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs.",
    )


def _label(where: str) -> str | None:
    return where.replace("`", "") or None
