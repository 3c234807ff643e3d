"""The summary on exit of a command in which no training was seen."""

from __future__ import annotations

import pytest

from support.builders import snapshot
from warmwatch_monitor.commands.run import print_summary


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "is not attached"),
        (1 << 8, "ended with exit code 1, before any step"),
        (9, "ended with SIGKILL, before any step"),
    ],
)
def test_a_command_that_failed_explains_that_nothing_was_seen(
    status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(snapshot(), status)
    shown = " ".join(capsys.readouterr().err.split())
    assert words in shown
    assert ("is not attached" in shown) is (status == 0)
