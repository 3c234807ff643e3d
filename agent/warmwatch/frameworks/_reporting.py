"""How framework callbacks report to the agent, without ever failing the training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec

from warmwatch._guard import report
from warmwatch.lifecycle import api
from warmwatch.lifecycle.api import Pause

_P = ParamSpec("_P")


def guarded(function: Callable[_P, object]) -> Callable[_P, None]:
    """``function`` with its exceptions counted, not raised: a framework's API may change."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("frameworks", error)

    return call


def is_attached() -> bool:
    """Whether the agent is attached to this process."""
    return api.attached is not None


def suggest(**options: Any) -> None:
    """Set options of the run that the user has not set."""
    if api.attached is not None:
        api.attached.suggest(options)


def mark_steps_by_hand(optimizers: Iterable[Any]) -> None:
    """Count only steps that the framework marks, and no calls of these ``optimizers``."""
    if api.attached is not None:
        api.attached.agent.step_source.by_hand(optimizers)


class Phases:
    """Evaluations and saves between two steps.

    A framework may report a begin twice, or an end without a begin.
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
