"""The sink of the agent's own errors: it never raises, and no other exception is lost."""

from __future__ import annotations

import ctypes
import json
import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from warmwatch import _guard


@pytest.fixture
def refusing() -> Iterator[logging.Handler]:
    """A user's log handler that raises, such as one that reads the rank before it exists."""

    class Refusing(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - logging's
            raise ValueError("no rank yet")

    handler, logger = Refusing(), logging.getLogger("warmwatch")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.usefixtures("refusing")
def test_a_failing_log_handler_affects_neither_the_training_nor_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, error: reported.append(f"{where}: {error}"))
    _guard.report("here", KeyError("ours"))
    assert reported == ["here: 'ours'"]


@pytest.mark.usefixtures("refusing")
@pytest.mark.filterwarnings("error")
def test_an_error_on_warnings_affects_neither_the_training_nor_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_guard, "_warned", set())
    _guard.warn_once("something the user can set right")
    assert _guard._warned == {"something the user can set right"}


def test_an_exception_of_a_signal_handler_during_error_counting_reaches_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def time_is_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the training's own")

    monkeypatch.setattr(_guard, "_sink", lambda *_arguments: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, time_is_up)
    try:
        with pytest.raises(TimeoutError, match="the training's own"):
            _guard.report("here", KeyError("ours"))
    finally:
        signal.signal(signal.SIGUSR1, before)


class TimeIsUpError(Exception):
    """A library's own, such as a task queue's."""


class WithMessageError(Exception):
    def __init__(self) -> None:
        super().__init__("the task took longer than 180 s")


def own_code() -> None:
    while True:
        pass


def calls_of_c_code() -> None:
    while True:
        json.dumps({"a": [1, {"b": 2}]})


@pytest.mark.parametrize("work", [own_code, calls_of_c_code])
@pytest.mark.parametrize("kind", [TimeIsUpError, WithMessageError, TimeoutError, RuntimeError])
def test_an_exception_that_another_thread_raises_in_the_agent_reaches_the_training(
    kind: type[Exception], work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timeouts do that with ``PyThreadState_SetAsyncExc``."""
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, error: reported.append(f"{where}: {error}"))
    this = ctypes.c_ulong(threading.get_ident())

    def time_out() -> None:
        time.sleep(0.05)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(this, ctypes.py_object(kind))

    other = threading.Thread(target=time_out)
    other.start()
    with pytest.raises(kind):
        _guard.quietly("here", work)
    other.join()
    assert reported == []


def _raises(kind: type[Exception]) -> None:
    raise kind


def _asserts(value: bool) -> None:
    assert value


@pytest.mark.parametrize(
    "failing",
    [
        lambda: _raises(ValueError),
        lambda: _raises(TimeIsUpError),  # by a ``__repr__`` of the user
        lambda: _asserts(False),
        lambda: next(iter(())),
        lambda: {}["absent"],
        lambda: int("x"),
        lambda: bytearray(2**62),
        lambda: Path("/absent").read_text(),
    ],
)
def test_an_error_of_the_agent_never_reaches_the_training(
    failing: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, _: reported.append(where))
    _guard.quietly("here", failing)
    assert reported == ["here"]


def test_the_memory_of_warnings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_guard, "_warned", set())
    shown: list[str] = []
    monkeypatch.setattr(warnings, "warn", lambda text, **_: shown.append(text))
    for number in range(10_000):
        _guard.warn_once(f"file {number} is unreadable")
    assert len(_guard._warned) == len(shown) == _guard._MOST_WARNED
