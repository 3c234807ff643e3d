"""What the user brackets: compile activity of another compiler, evaluations, saves.

Inside a function that Dynamo compiles it does nothing, which Dynamo folds away: no graph break, and
nothing of ours in the graph. What it asks for that, ``is_traced``, is PyTorch's own question as
soon as Dynamo is there; before that nothing is compiled by it. It is never true of code that runs:
``is_compiling`` would be, on every thread, while another compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from time import monotonic_ns
from types import TracebackType

from warmwatch import _current


def _never() -> bool:
    return False


is_traced: Callable[[], bool] = _never


def dynamo_came() -> None:
    """From here on Dynamo may trace us."""
    global is_traced
    from torch import compiler

    is_traced = compiler.is_dynamo_compiling


class Bracket(ContextDecorator):
    """The context manager that ``warmwatch.activity()`` gives; it may be entered again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: list[int] = []

    def __enter__(self) -> None:
        if is_traced() or _current.attached is None:
            return
        self._begun.append(_begin(self._name))

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if is_traced() or not self._begun:
            return
        _end(self._name, self._begun.pop(), kind)

    def _recreate_cm(self) -> Bracket:
        """For each call of a decorated function one of its own: several threads may be in it."""
        return Bracket(self._name)


class Pause(ContextDecorator):
    """What ``warmwatch.evaluating()`` and ``saving()`` give; it may be entered again.

    ``what``: one of ``_pauses.WORDS``.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        if not is_traced():
            self._tell("pause_began")

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if not is_traced():
            self._tell("pause_ended")

    def _recreate_cm(self) -> Pause:
        """For each call of a decorated function one of its own, which Dynamo can enter."""
        return Pause(self._what)

    def _tell(self, word: str) -> None:
        try:
            if _current.attached is not None:
                getattr(_current.attached.agent.ledger, word)(self._what)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            _report(error, self._what)


def _begin(name: str) -> int:
    """Tell of it; when."""
    from warmwatch._phases import CUSTOM  # here: see _current

    began = monotonic_ns()
    try:
        if _current.attached is not None:
            _current.attached.agent.listener.begin(CUSTOM, _what(name))
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        _report(error)
    return began


def _end(name: str, began: int, raised: type[BaseException] | None) -> None:
    from warmwatch._phases import CUSTOM

    try:
        if _current.attached is not None:
            listener = _current.attached.agent.listener
            failure = raised.__name__ if raised and issubclass(raised, Exception) else None
            values = {"name": _what(name)["name"], "seconds": (monotonic_ns() - began) / 1e9}
            try:
                listener.compilation(CUSTOM, {**values, "failure": failure} if failure else values)
            finally:
                listener.end(CUSTOM)
    except Exception as error:  # noqa: BLE001 - likewise
        _report(error)


def _what(name: object) -> dict[str, str]:
    from warmwatch._arguments import plain_name

    text = name if isinstance(name, str) else type(name).__name__
    return {"name": plain_name(text), "kind": "custom"}


def _report(error: Exception, where: str = "activity") -> None:
    from warmwatch._guard import report

    report(where, error)
