"""How this process ends, as far as Python code can determine it.

An uncaught exception is in ``sys.last_value``, so no exception hook is replaced and the training's
traceback stays as it is. For the status of ``sys.exit``, see ``recorder/exit_status.py``.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import parent_process, util
from typing import Any

from warmwatch._guard import report
from warmwatch.shared.fallbacks import refusal_of
from warmwatch.shared.user_code import innermost


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a process.

    Attributes:
        how: one of ``record.ENDS``.
        exception: type name of the exception that ended it. code: exit code, 0 to 255.
        place: name, file and line of the user's innermost frame in its traceback. refusal: what
        compiled code refused, a key of ``REFUSALS``.
    """

    how: str
    exception: str | None = None
    code: int | None = None
    place: Mapping[str, Any] | None = None
    refusal: str | None = None


def current_end() -> End:
    """How this process ends; call it from an exit handler."""
    leaving = sys.exc_info()[1]  # set while multiprocessing unwinds a child's main function
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    return end_of(leaving, None if interactive else getattr(sys, "last_value", None))


def on_exit(finish: Callable[[], None]) -> None:
    """Call ``finish`` once Python has waited for other threads, as the first of all exit handlers.

    The last one that is registered is called first. Inductor registers one when it first compiles,
    which waits up to 5 s for its compile workers.
    """
    atexit.register(finish)
    _before_threads_end(_register_again, finish)


def _register_again(finish: Callable[[], None]) -> None:
    atexit.unregister(finish)
    atexit.register(finish)


def _before_threads_end(call: Callable[..., None], finish: Callable[..., None]) -> None:
    # private, of Python 3.9 and newer: without it, the end is recorded later
    if register := getattr(threading, "_register_atexit", None):
        with suppress(RuntimeError):  # a thread opens the record after the main one has ended
            register(call, finish)


def on_main_thread_exception(finish: Callable[[End], None]) -> None:
    """Call ``finish`` if an exception ends the main thread, before Python waits for other threads.

    ``atexit`` runs after that wait. A thread that never ends, such as one that writes a checkpoint
    to a disk that hangs, would hide the exception while other ranks wait for this one. After a
    Ctrl-C, threads of Inductor go on compiling kernels that nobody needs any more.
    """
    _before_threads_end(_finish_raised, finish)


def _finish_raised(finish: Callable[[End], None]) -> None:
    try:
        if (end := current_end()).how != "finished":
            finish(end)
    except Exception as error:  # noqa: BLE001 - a guest: the training's exit goes on
        report("exit", error)


def on_child_exit(finish: Callable[[End], None]) -> None:
    """Call ``finish`` at the end of a child of ``multiprocessing``, which may skip ``atexit``.

    It runs while the exception that ends the child is still set. Register it after the child's
    main module was imported: ``multiprocessing`` clears inherited finalizers before that.
    """
    if parent_process() is not None:
        util.Finalize(None, _finish_child, (finish,), exitpriority=-100)


def _finish_child(finish: Callable[[End], None]) -> None:
    try:
        end = end_of(sys.exc_info()[1], None)
        finish(replace(end, code=0) if end.how == "finished" else end)
    except Exception as error:  # noqa: BLE001 - a guest: multiprocessing would print it
        report("exit", error)


def end_of(leaving: BaseException | None, uncaught: BaseException | None) -> End:
    """The end, from the exception that unwinds the process or the one that was printed last."""
    if isinstance(leaving, SystemExit):
        return _by_code(leaving)
    raised = leaving or uncaught
    if raised is None:
        return End(how="finished")
    if isinstance(raised, KeyboardInterrupt):
        return End(how="interrupted", exception=type(raised).__name__)
    return _failed(raised, code=1)


def _by_code(leaving: SystemExit) -> End:
    """The code as ``multiprocessing`` computes it; ``SystemExit`` may hold any object."""
    argument = leaving.code
    code = 0 if argument is None else argument & 0xFF if isinstance(argument, int) else 1
    # torch.multiprocessing turns an exception of a rank into an exit with code 1
    cause = leaving.__cause__ or leaving.__context__
    if code == 0:
        return End(how="finished", code=0)
    return End(how="failed", code=code) if cause is None else _failed(cause, code)


def _failed(raised: BaseException, code: int) -> End:
    place = innermost(raised.__traceback__)
    name, refusal = type(raised).__name__, refusal_of(raised)
    return End(how="failed", exception=name, code=code, place=place, refusal=refusal)
