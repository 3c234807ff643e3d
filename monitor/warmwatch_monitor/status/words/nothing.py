"""That nothing compiles: said only where it is known. Pure.

It is known where no hook of a compiler is missing, the processes below the rank were read, and none
of them is a compiler at work. With less, PyTorch's events alone show that PyTorch compiles nothing.
"""

from __future__ import annotations

from warmwatch.shared.phrases import counted, duration, place
from warmwatch_monitor.model import Figures, RankView
from warmwatch_monitor.model.machine import WORKER

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
