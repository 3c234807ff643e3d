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
    known = _is_known(view)
    subject = "nothing has compiled" if known else "PyTorch has compiled nothing"
    return f"{subject} for {duration(seconds)}"


def _seen(view: RankView) -> str | None:
    """What speaks against it; ``None`` if nothing does."""
    missing = set(view.figures.agent.missing)
    if missing >= _EVENTS or _EVENT_NAMES in missing:
        return "whether it compiles is not known"
    for one in view.process.compilers if view.process else ():
        if one.name != WORKER and one.busy is not False:
            return f"`{one.name}` runs below it"
    if words := workers_at_work(view.figures):
        return words
    workers = view.figures.workers
    if workers is not None and workers.busy:
        return f"{counted(workers.busy, 'compile worker')} busy"
    return None


def workers_at_work(figures: Figures) -> str:
    """``4 DataLoader workers compile `aug```; empty if none does."""
    known = figures.loader_workers
    if known is None or not known.compiling:
        return ""
    compile = "compiles" if known.compiling == 1 else "compile"
    what = f" {place(known.name)}" if known.name else ""
    return f"{counted(known.compiling, 'DataLoader worker')} {compile}{what}"


def _is_known(view: RankView) -> bool:
    tree_read = view.process is not None and view.process.tree_read
    return tree_read and not _OTHER_COMPILERS & set(view.figures.agent.missing)
