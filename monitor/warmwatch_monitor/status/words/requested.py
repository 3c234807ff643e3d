"""What was requested and did not happen (not compiled, turned off, no CUDA graph), and what
helps.

That nothing compiles is said only where it is known. It is known where no hook of a compiler is
missing, the processes below the rank were read, and none of them is a compiler at work. With less,
PyTorch's events alone show that PyTorch compiles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from msgspec import Struct

from warmwatch.shared.fallbacks import MODE, REMEDIES
from warmwatch.shared.guard_remedies import attribute
from warmwatch.shared.phrases import continued, counted, duration, place, took
from warmwatch_monitor.model.figures import Figures, Log
from warmwatch_monitor.model.machine import WORKER
from warmwatch_monitor.model.records import FEWEST_STEPS, VaryingDim
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.amounts import own_words
from warmwatch_monitor.output.summary import Words, begin

OFF = {
    "environment": "TORCHDYNAMO_DISABLE",
    "stance": 'torch.compiler.set_stance("force_eager")',
    "config": "torch._dynamo.config.disable (or TORCH_COMPILE_DISABLE)",
}
_OF_NEW = {"eager_on_recompile": "run eagerly", "fail_on_recompile": "fail"}


class _Skip(Struct, frozen=True):
    """Why CUDA graphs are left out. ``part``: of PyTorch's words, in small letters."""

    part: str
    words: str
    remedy: str


# torch 2.6 to 2.15; the first that is found
_SKIPS = (
    _Skip(
        "mutated inputs",
        "a compiled function changes its inputs in place",
        "Keep what it changes in a buffer of the module, or in one tensor that is passed to each "
        "call and marked once with torch._dynamo.mark_static_address; or return the new value.",
    ),
    _Skip(
        "cpu device",
        "part of the graph is on the CPU",
        "Move its tensors to the GPU before the call, and pass a number as a number.",
    ),
    _Skip("multiple devices", "a graph spans several devices", "Keep each graph on one device."),
    *(
        _Skip(
            part,
            "its shapes are dynamic",
            "Pad to a few sizes with dynamic=False, or leave "
            "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs out.",
        )
        for part in ("symbolic shapes", "dynamic shape")
    ),
    _Skip(
        "re-recording limit",
        "it was recorded again too often: inputs come at new addresses",
        "Keep the memory of parameters, buffers and marked tensors: copy_() into them.",
    ),
    _Skip("memory overlap", "an input overlaps itself in memory", "Pass a clone() of that input."),
    _Skip(
        "cpp wrapper",
        "the C++ wrapper is on",
        "Leave torch._inductor.config.cpp_wrapper (or TORCHINDUCTOR_CPP_WRAPPER) off.",
    ),
    _Skip(
        "annotation",
        "an annotation in the program turns them off",
        "Remove the annotation if CUDA graphs are wanted there.",
    ),
)
_OF_OPERATOR = "Call that operator outside of the compiled function, or use another in its place."
# Among the methods only after ``Module.compile()``, which compiles the call of the module alone. It
# captures nothing of PyTorch's own code, and so nothing of a module of PyTorch.
_IN_PLACE = "forward"
_OPERATOR = r"incompatible op (?P<name>[\w.:]+)"


def turned_off(figures: Figures) -> str | None:
    """``compilation is turned off by TORCHDYNAMO_DISABLE``; ``None`` if it is on."""
    by, step = figures.compile.disabled, figures.compile.disabled_since_step
    if by is None:
        return None
    since = f" since step {step + 1}" if step else ""
    if by in _OF_NEW:
        return f"new inputs {_OF_NEW[by]}{since}: {_stance(by)}"
    return f"compilation is turned off{since} by {OFF[by]}"


def uncompiled_calls(figures: Figures) -> Words:
    """``14 calls ran eagerly, the first in step 12: torch.compiler.set_stance("force_eager")``."""
    made = figures.compile
    stances = (
        ("force_eager", made.eager_calls, made.eager_calls_since, "ran eagerly"),
        ("fail_on_recompile", made.refused_calls, made.refused_calls_since, "failed"),
        (
            "eager_on_recompile",
            made.on_recompile_calls,
            made.on_recompile_calls_since,
            "ran under a stance in which new inputs run eagerly",
        ),
    )
    generator = (
        f"{counted(calls, 'call')} {what}, the first in step {since}: {_stance(name)}"
        for name, calls, since, what in stances
        if calls and since
    )
    return begin("; ".join(generator) or "torch.compiler.set_stance left calls uncompiled")


def _stance(name: str) -> str:
    return f'torch.compiler.set_stance("{name}")'


def not_called(figures: Figures) -> str | None:
    """That nothing compiled, which may be as requested; ``None`` if nothing was requested."""
    wrapped = figures.compile.wrappers
    if not wrapped:
        return None
    return f"torch.compile was called {_times(wrapped)}: nothing that it returned has compiled here"


def never_compiled(figures: Figures) -> tuple[str, str]:
    """What did not happen, and the most likely reasons, since PyTorch gives none."""
    wrapped = figures.compile.wrappers
    times = "" if wrapped is None else f" {_times(wrapped)}"
    steps = counted(figures.steps.count, "step")
    title = f"torch.compile was called{times} and nothing has compiled in {steps}"
    if _in_mode(figures):
        return title, "its first call was in a TorchDispatchMode"
    methods = figures.log.methods
    named = f"(`{'`, `'.join(methods)}`), or "
    method = f"a method of the compiled object is called {named}" if methods else ""
    container = ""
    called = (
        "the object that was passed to torch.compile is called, and not the one that it returned"
    )
    if _IN_PLACE in methods:
        container = "it is a module of PyTorch itself (Sequential, Linear), or "
        called = "another object is called, such as a copy that was made before compile()"
    return title, f"most likely {method}{container}{called}"


def _in_mode(figures: Figures) -> bool:
    return any(fallback.setting == MODE for fallback in figures.log.fallbacks)


def remedy_of_never_compiled(figures: Figures) -> str:
    """Only the object's own call is compiled: its methods are those of the original."""
    if _in_mode(figures):
        return REMEDIES[MODE]
    methods = figures.log.methods
    return remedy_of_calls(methods[:1], in_place=_IN_PLACE in methods)


def remedy_of_calls(methods: Sequence[str] = (), *, in_place: bool = False) -> str:
    called = (
        "After model.compile(), call model(...) and not model.forward(...), or compile the copy "
        "that is called; a module of PyTorch itself, such as Sequential or Linear, needs "
        "torch.compile(model) in its place."
        if in_place
        else "Call the object that torch.compile returns, as in model = torch.compile(model): only "
        "its forward is compiled."
    )
    method = "".join(
        f" For a method, compile that: model.{name} = torch.compile(model.{name})."
        for name in methods
    )
    return (
        f"{called}{method} Otherwise it is for evaluation only, a DataLoader's worker calls it, a "
        "stance is around its calls, or it is a generator: compile the function that calls that."
    )


def cudagraph_skipped(figures: Figures) -> Words:
    """``CUDA graphs were requested and left out twice: ...``, the last reason that is known."""
    skips = figures.compile.cudagraph_skips
    times = "" if skips is None else f" {_times(skips)}"
    _, reason, where = _last_skip(figures.log)
    why = plain_skip(reason) or (own_words(reason) if reason else "")
    title = f"CUDA graphs were requested and left out{times}"
    return begin(title, f"{why}, at {where}" if where else why, ": ")


def remedy_of_skip(figures: Figures) -> str | None:
    """For the last reason."""
    _, reason, _ = _last_skip(figures.log)
    if re.search(_OPERATOR, reason):
        return _OF_OPERATOR
    skip = _skip_of(reason)
    return skip.remedy if skip else None


def _last_skip(log: Log) -> tuple[int, str, str]:
    """When it was, PyTorch's reason, and the place if the reason has one."""
    of_compilations = (
        (made.at_ns, made.cudagraph_skip, "") for made in log.compilations if made.cudagraph_skip
    )
    of_runs = ((skip.at_ns, skip.reason, place(*skip.function) or "") for skip in log.skips)
    return max((*of_compilations, *of_runs), default=(0, "", ""))


def _times(number: int) -> str:
    return "once" if number == 1 else counted(number, "time")


def plain_skip(reason: str | None) -> str | None:
    """PyTorch's reason in plain words; ``None`` if there are none for it."""
    if not reason:
        return None
    if operator := re.search(_OPERATOR, reason):
        return f"{operator['name']} cannot be recorded"
    skip = _skip_of(reason)
    return skip.words if skip else None


def _skip_of(reason: str) -> _Skip | None:
    return next((skip for skip in _SKIPS if skip.part in reason.lower()), None)


# Automatic dynamic shapes need two values, after which recompiles often stop; a size needs one more
# where another tensor has the same one, which became dynamic a recompile later.
_KEEPS_CHANGING, _SIZE_KEEPS_CHANGING = 3, 4
_MOST = 3
_AS_A_TENSOR = (
    "pass it as a tensor if the code only computes with it, or keep it out of the compiled function"
)
_PAD = "pad to your largest size"
_LEAST_DYNAMIC = 2  # PyTorch specializes on 0 and 1, even in a dimension that is marked dynamic


def remedy(dim: VaryingDim) -> Words | None:
    """``dim 1 of `tokens` was compiled for 9 sizes, from 48 to 64; each cost 11 s: pad to your
    largest size; marking it dynamic does not help``; ``None`` if it does not keep changing.

    A size that needed no compilation is unknown: the largest known size may not be the largest.
    Compilations without a recorded time count as the average of the others.
    """
    known = len(dim.values)
    automatic = dim.dim is not None and dim.dynamic is not False
    fewest = _SIZE_KEEPS_CHANGING if automatic else _KEEPS_CHANGING
    if known + dim.one_more < fewest or dim.highest is None or dim.within_step:
        return None  # several tensors of one step: each size compiles once
    number = f"{known + dim.one_more}" if dim.complete else f"more than {known}"
    cost = f"; each cost {took(dim.seconds / dim.timed)}" if dim.seconds and dim.timed else ""
    ends = f"from {dim.lowest} to {dim.highest}"
    if dim.dim is not None:
        made = f"dim {dim.dim} of `{attribute(dim.tensor)}` was compiled for {number} sizes, {ends}"
    else:
        ends += " and one more" * dim.one_more  # which no guard has named yet
        made = f"`{attribute(dim.tensor)}` was compiled for {number} values, {ends}"
    helps = dim.helps or (_of_size(dim) if dim.dim is not None else _AS_A_TENSOR)
    return begin(made, continued(helps).removesuffix("."), f"{cost}: ")


def last_remedy(
    log: Log, shown: Container[str | None] = (), *, of: Container[str | None] | None = None
) -> Words | None:
    """The remedy for the newest dimension or number that keeps changing, unless it is ``shown``.

    ``of``: only what one of these compilations, by their ids, was the last for.
    """
    dims = [dim for dim in reversed(log.varying) if not dim.helps or dim.helps not in shown]
    return next(filter(None, (remedy(d) for d in dims if of is None or d.last_id in of)), None)


def _of_size(dim: VaryingDim) -> str:
    if dim.dynamic is False:
        return f"leave dynamic=False (or automatic_dynamic_shapes = False) out, or {_PAD}"
    if dim.lowest is not None and dim.lowest < _LEAST_DYNAMIC:
        return f"{_PAD}; marked dynamic, 0 and 1 stay apart"
    # PyTorch made it dynamic at its second size, and the code made a constant of it again
    return f"{_PAD}; marking it dynamic does not help"


def since_seconds(dim: VaryingDim) -> float | None:
    """Mean clean step since it first changed; ``None`` if too few are known."""
    return dim.since_ns / dim.since_steps / 1e9 if dim.since_steps >= FEWEST_STEPS else None


def of_recompile(figures: Figures) -> Words | None:
    """The remedy for the dimension that caused the warm-up in progress."""
    why = figures.log.reopened_by
    if why is None or why.id is None:
        return None
    return next((remedy(dim) for dim in figures.log.varying if dim.last_id == why.id), None)


def evidence(figures: Figures) -> Iterator[str]:
    """The most expensive ones, each with the clean step before and since if both are known.

    The times show what padding or a dynamic shape costs, without recommending one.
    """
    varying = sorted(figures.log.varying, key=lambda item: -(item.seconds or 0.0))
    pairs = [(item, clause) for item in varying if (clause := remedy(item))]
    for dim, clause in pairs[:_MOST]:
        before, since = dim.before_seconds, since_seconds(dim)
        speeds = ""
        if before is not None and since is not None:
            speeds = f" (a clean step took {took(before)} before it changed, {took(since)} since)"
        yield f"{clause.text}{speeds}"
    if len(pairs) > _MOST:
        yield f"{len(pairs) - _MOST} more sizes or numbers keep changing"


_EVENTS = frozenset({"events", "callbacks"})  # each of them shows that something compiles
_EVENT_NAMES = "event_names"
_OTHER_COMPILERS = frozenset({"triton", "cpp_extension", "child_processes"})


def nothing_compiles(view: RankView, at_this_moment: str = "") -> str:
    """``nothing compiles``, or as much of it as is known."""
    if (seen := _seen(view)) is not None:
        return seen
    subject = "nothing compiles" if _is_known(view) else "PyTorch compiles nothing"
    return f"{subject}{at_this_moment}"


def nothing_has_compiled(view: RankView, seconds: float) -> str:
    """``nothing has compiled for 42 s``, or as much of it as is known."""
    if (seen := _seen(view)) is not None:
        return seen
    is_known = _is_known(view)
    subject = "nothing has compiled" if is_known else "PyTorch has compiled nothing"
    return f"{subject} for {duration(seconds)}"


def _seen(view: RankView) -> str | None:
    """What speaks against it; ``None`` if nothing does."""
    missing = set(view.figures.agent.missing)
    if missing >= _EVENTS or _EVENT_NAMES in missing:
        return "whether it compiles is not known"
    for compiler in view.process.compilers if view.process else ():
        if compiler.name != WORKER and compiler.busy is not False:
            return f"`{compiler.name}` runs below it"
    if text := child_at_work(view) or workers_at_work(view.figures):
        return text
    workers = view.figures.workers
    if workers is not None and workers.busy:
        return f"{counted(workers.busy, 'compile worker')} busy"
    return None


def child_at_work(view: RankView) -> str:
    """``its child process `train.fork-1` compiles``; empty if none does."""
    child = view.compiling_child
    return f"its child process `{child}` compiles" if child else ""


def workers_at_work(figures: Figures) -> str:
    """``4 DataLoader workers compile `aug```; empty if none does."""
    workers = figures.loader_workers
    if workers is None or not workers.compiling:
        return ""
    compile = "compiles" if workers.compiling == 1 else "compile"
    what = f" {place(workers.name)}" if workers.name else ""
    return f"{counted(workers.compiling, 'DataLoader worker')} {compile}{what}"


def _is_known(view: RankView) -> bool:
    tree_read = view.process is not None and view.process.tree_read
    return tree_read and not _OTHER_COMPILERS & set(view.figures.agent.missing)
