"""How this process ends, as far as Python can see it.

An uncaught exception leaves itself in ``sys``, so no exception hook is replaced and the training's
own traceback is what it always was. The status of an ordinary ``sys.exit`` is not known here: see
``_exit_status``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing import parent_process, util
from typing import Any

from warmwatch._guard import report
from warmwatch.shared.user_frames import innermost


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An end. ``how``: one of ``record.ENDS``; ``None`` where not known.

    Attributes:
        exception: type name of the exception that ended it. code: exit code, 0 to 255.
        place: name, file and line of the user's frame nearest to where it was raised.
    """

    how: str
    exception: str | None = None
    code: int | None = None
    place: Mapping[str, Any] | None = None


def ending() -> End:
    """How this process ends; to be asked where it does."""
    leaving = sys.exc_info()[1]  # set where multiprocessing unwinds a child's main function
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return end_of(leaving, None if interactive else getattr(sys, "last_value", None))


def at_childs_end(tell: Callable[[End], None]) -> None:
    """In a child of ``multiprocessing``, which may end without ``atexit``, tell its end.

    While the exception that ends it is still there to be seen. To be asked for late: a child's
    life begins, and what it inherited is forgotten, after its main module was imported.
    """
    if parent_process() is not None:
        util.Finalize(None, _tell_childs_end, (tell,), exitpriority=-100)


def _tell_childs_end(tell: Callable[[End], None]) -> None:
    try:
        end = end_of(sys.exc_info()[1], None)
        tell(replace(end, code=0) if end.how == "finished" else end)
    except Exception as error:  # noqa: BLE001 - a guest: multiprocessing would print it
        report("exit", error)


def end_of(leaving: BaseException | None, uncaught: BaseException | None) -> End:
    """The end by the exception that unwinds the process, or the one that was printed last."""
    if isinstance(leaving, SystemExit):
        return _by_code(leaving)
    raised = leaving or uncaught
    if raised is None:
        return End(how="finished")
    if isinstance(raised, KeyboardInterrupt):
        return End(how="interrupted", exception=type(raised).__name__)
    return _failed(raised, code=1)


def _by_code(leaving: SystemExit) -> End:
    """``multiprocessing`` reads the code so, and ``SystemExit`` may hold any object."""
    given = leaving.code
    code = 0 if given is None else given & 0xFF if isinstance(given, int) else 1
    # torch.multiprocessing turns what a rank raised into an exit with code 1
    cause = leaving.__cause__ or leaving.__context__
    if code == 0:
        return End(how="finished", code=0)
    return End(how="failed", code=code) if cause is None else _failed(cause, code)


def _failed(raised: BaseException, code: int) -> End:
    place = innermost(raised.__traceback__)
    return End(how="failed", exception=type(raised).__name__, code=code, place=place)
