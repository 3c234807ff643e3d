"""The sink of the agent's own errors: it never raises, and no other exception is lost."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
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
