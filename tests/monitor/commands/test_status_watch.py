"""Colours, and what is drawn again on a terminal: ``status`` and ``status --watch``."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from support.records import compiling, environment, held, update, warm, write_record
from support.terminal import COMMAND, terminal


def test_watch_redraws_in_place_and_ends_quietly_with_ctrl_c(tmp_path: Path) -> None:
    folder = write_record(tmp_path, compiling())
    with held(folder), terminal("status", "--watch", "0.1", "--dir", str(tmp_path)) as shown:
        shown.read_until("compiling\x1b[0m")
        update(folder, warm())
        shown.read_until("\x1b[1;32mwarm\x1b[0m")
        shown.process.send_signal(signal.SIGINT)
        assert shown.read_to_end() == 0
    assert "\x1b[1A" in shown.written, "it goes up, and does not scroll"
    assert "Traceback" not in shown.written
    assert "Abort" not in shown.written


def test_watch_waits_for_a_run_that_does_not_exist_yet(tmp_path: Path) -> None:
    folder = write_record(tmp_path, warm("vit"), name="vit")
    words = ("status", "gpt2", "--watch", "0.1", "--dir", str(tmp_path))
    with held(folder), terminal(*words) as shown:
        shown.read_until("no run named 'gpt2'; runs here: vit; waiting for it")
        shown.process.send_signal(signal.SIGINT)
        assert shown.read_to_end() == 5
    with held(folder), terminal(*words) as shown:
        shown.read_until("waiting for it")
        with held(write_record(tmp_path, compiling("gpt2"), name="gpt2")):
            shown.read_until("compiling\x1b[0m")
            shown.process.send_signal(signal.SIGINT)
            assert shown.read_to_end() == 3


def test_a_wait_that_ctrl_c_ends_has_the_shell_s_exit_code(tmp_path: Path) -> None:
    folder = write_record(tmp_path, compiling())
    with held(folder), terminal("wait", "--dir", str(tmp_path)) as shown:
        shown.read_until("compiling")
        shown.process.send_signal(signal.SIGINT)
        assert shown.read_to_end() == 130
    assert "Abort" not in shown.written


def test_watch_draws_at_most_as_many_lines_as_the_terminal_has(tmp_path: Path) -> None:
    """Else it would scroll, and every picture with it."""
    for number in range(12):
        write_record(tmp_path, warm(f"run-{number}"), name=str(number))
    words = ("status", "--watch", "0.1", "--dir", str(tmp_path))
    with terminal(*words, size=(80, 8)) as shown:
        shown.read_until("\x1b[1A")
        shown.process.send_signal(signal.SIGINT)
        shown.read_to_end()
    first = shown.written.split("\x1b[1A")[0].replace("\r", "")
    assert first.count("\n") < 8
    assert "... and 8 lines more" in first


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_a_pipe_gets_colors_if_they_are_forced_and_not_disabled(
    tmp_path: Path, variables: dict[str, str], coloured: bool
) -> None:
    with held(write_record(tmp_path, warm())):
        output = subprocess.check_output(
            [*COMMAND, "status", "--dir", str(tmp_path)], env=environment(**variables), text=True
        )
    assert ("\x1b[" in output) is coloured
