"""Attaching, detaching, and how a process's end and its forks reach the agent.

How it ended is read off the interpreter at exit: an uncaught exception leaves itself in ``sys``, so
no exception hook is replaced and the training's own traceback is what it always was.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing import util
from typing import Any

from warmwatch import _guard
from warmwatch._arguments import checked
from warmwatch._attached import Attached
from warmwatch._config import settings_from

current: Attached | None = None
_registered = False


def attach(version: str, said: Mapping[str, Any]) -> None:
    """Attach to this process, or tell the agent that is attached what was ``said``."""
    global current
    try:
        given, refused = checked(said)
        for complaint in refused:
            _guard.warn_once(complaint)
        if current is not None:
            current.update(given)
            return
        settings = settings_from(os.environ)
        if settings.disabled:
            return
        for complaint in settings.complaints:
            _guard.warn_once(complaint)
        current = Attached(settings, version, given)
        _register()
        current.start()
    except Exception as error:  # noqa: BLE001 - a training never fails for its monitor
        _guard.report("attach", error)
        _guard.warn_once(f"could not attach: {error!r}")


def detach() -> None:
    """Undo :func:`attach`."""
    global current
    agent, current = current, None
    if agent is None:
        return
    try:
        agent.detach()
    except Exception as error:  # noqa: BLE001 - likewise
        _guard.report("detach", error)
    _guard.connect(None)


def _register() -> None:
    global _registered
    if _registered:
        return
    _registered = True
    atexit.register(_exit)
    os.register_at_fork(after_in_child=_forked)
    _register_for_child()


def _register_for_child() -> None:
    """``multiprocessing`` ends its forked children without running ``atexit``."""
    if multiprocessing.parent_process() is not None:
        util.Finalize(None, _exit, exitpriority=-100)


def _forked() -> None:
    try:
        if current is not None:
            current.forked()
            util.register_after_fork(current, lambda _: _register_for_child())
    except Exception as error:  # noqa: BLE001 - likewise
        _guard.report("fork", error)


def _exit() -> None:
    if current is None:
        return
    try:
        raised = _uncaught()
        current.finish("failed" if raised else "finished", raised)
    except Exception as error:  # noqa: BLE001 - likewise
        _guard.report("exit", error)


def _uncaught() -> str | None:
    """The name of the exception that ends this process, if one does."""
    leaving = sys.exc_info()[1]  # set where multiprocessing unwinds a child's main function
    if isinstance(leaving, SystemExit):
        return None if leaving.code in (None, 0) else f"SystemExit: {leaving.code}"
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    raised = leaving or (None if interactive else getattr(sys, "last_value", None))
    return type(raised).__name__ if raised is not None else None
