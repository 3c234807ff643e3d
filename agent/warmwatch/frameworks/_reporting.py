"""Shared by the framework callbacks: how they report, without ever failing the training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec

from warmwatch._guard import report
from warmwatch.lifecycle import api
from warmwatch.lifecycle.api import Pause, attach

_P = ParamSpec("_P")


def guarded(tell: Callable[_P, object]) -> Callable[_P, None]:
    """``tell``, whose errors are counted and never raised: a framework may not be as it was."""

    @functools.wraps(tell)
    def telling(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            tell(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("frameworks", error)

    return telling


def is_attached() -> bool:
    """Whether somebody has attached the agent to this process."""
    return api.attached is not None


def trains() -> None:
    """This process trains: the user has said so, by a framework's callback."""
    attach()


def suggest(**options: Any) -> None:
    """What the framework knows of the run: it gives way to what the user said."""
    if api.attached is not None:
        api.attached.suggest(options)


def marks_steps(optimizers: Iterable[Any]) -> None:
    """The framework marks each step itself: no call of these ``optimizers`` is one."""
    if api.attached is not None:
        api.attached.agent.marking.by_hand(optimizers)


class Phases:
    """What is between two steps, as a framework tells of its begin and its end.

    A begin may be told twice, and an end of what has not begun.
    """

    def __init__(self) -> None:
        self._open: dict[str, Pause] = {}

    def begin(self, what: str) -> None:
        if what not in self._open:
            self._open[what] = pause = Pause(what)
            pause.__enter__()

    def end(self, what: str) -> None:
        if (pause := self._open.pop(what, None)) is not None:
            pause.__exit__(None, None, None)

    def end_all(self) -> None:
        for what in tuple(self._open):
            self.end(what)
