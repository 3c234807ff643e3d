"""The threads that are inside ``allow_compilation()``; a process without an agent has them too."""

from __future__ import annotations

from _thread import _local, get_ident


class _Allowed(_local):
    depth = 0


allowed = _Allowed()
# A stance applies to the whole process, so while there is such a thread, nothing is refused on any.
allowing: set[int] = set()


def begin_allowing() -> bool:
    """Allow compilations on this thread; nests. Return whether they were not allowed before."""
    allowed.depth += 1
    allowing.add(get_ident())
    return allowed.depth == 1


def end_allowing() -> bool:
    """End the last ``begin_allowing()``. Return whether no thread is inside one now."""
    allowed.depth -= 1
    if allowed.depth:
        return False
    allowing.discard(get_ident())
    return not allowing
