"""The command line as a whole: help, slips of the pen, exit codes, pipes, and how it is started."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.records import compiling, environment, held, warm, write_record
from warmwatch import __version__
from warmwatch_monitor.cli import COMMANDS, GROUPS, cli
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.settings import SWITCHES, load

PYTHON = [sys.executable, "-m", "warmwatch_monitor"]


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment(), check=False
    )


@pytest.mark.parametrize("words", [["-h"], ["--help"]])
def test_help_names_every_command_and_every_exit_code(words: list[str]) -> None:
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0
    for word in (*COMMANDS, *(f" {code} " for code in (0, 1, 2, 3, 4, 5, 6, 124))):
        assert word in shown.stdout


def test_help_lists_each_command_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    for title, names in GROUPS.items():
        section = shown.split(f"\n{title}:\n")[1].split("\n\n")[0]
        lines = [line.split(maxsplit=1) for line in section.splitlines()]
        assert lines == [[name, COMMANDS[name][1]] for name in names], "one line for each command"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_short_help_option_too(command: str) -> None:
    assert CliRunner().invoke(cli, [command, "-h"]).stdout.startswith(f"Usage: cli {command}")


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_shown(option: str) -> None:
    assert CliRunner().invoke(cli, [option]).stdout == f"warmwatch, version {__version__}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["statis"], "No such command 'statis'; did you mean status?"),
        (["xyzzy"], "No such command 'xyzzy'; commands: status, top"),
        (["status", "--adress", "x"], "--address"),
    ],
)
def test_a_slip_of_the_pen_exits_2_and_says_what_was_meant(words: list[str], hint: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert hint in result.stderr


def test_without_a_command_it_shows_what_runs_and_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    with held(write_record(tmp_path, compiling())):
        result = CliRunner().invoke(cli, [])
    assert result.exit_code == 0
    assert result.stdout.startswith("gpt2: compiling")
    assert all(f"\n  {command} " in result.stdout for command in COMMANDS)
    assert "\n\nWatch:" in result.stdout
    assert "\n\n\n" not in result.stdout


def test_without_a_command_and_a_daemon_that_does_not_answer_it_shows_the_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARMWATCH_ADDRESS", "127.0.0.1:1")
    result = CliRunner().invoke(cli, [])
    assert result.exit_code == 0
    assert result.stderr.startswith("warmwatch: no daemon answers at 127.0.0.1:1")
    assert result.stdout.startswith("Watch:\n")


@pytest.mark.parametrize("words", ["status", "status --json"])
def test_a_reader_who_goes_away_ends_it_quietly_with_the_code_of_the_answer(
    tmp_path: Path, words: str
) -> None:
    """The pipe is closed before the first byte."""
    command = f"{shlex.join(PYTHON)} {words} --dir {tmp_path}"
    with held(write_record(tmp_path, compiling())):
        done = shell(f"(sleep 0.1; {command}) | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize(
    "words", ["status --dir {}", "status --json --dir {}", "", "--version", "--help", "status -h"]
)
def test_what_cannot_be_printed_is_one_line_and_no_traceback(tmp_path: Path, words: str) -> None:
    """Its output is sent to a disk that is full."""
    with held(write_record(tmp_path, compiling())):
        done = shell(f"{shlex.join(PYTHON)} {words.format(tmp_path)} > /dev/full")
    why = "warmwatch: its output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, why)


def test_runs_are_chosen_by_a_pattern(tmp_path: Path) -> None:
    names = ("gpt-small", "gpt-large", "bert")
    slots = (warm("gpt-small"), compiling("gpt-large"), compiling("bert"))
    holds = [
        held(write_record(tmp_path, slot, name=name))
        for name, slot in zip(names, slots, strict=True)
    ]
    with holds[0], holds[1], holds[2]:

        def status(run: str) -> tuple[int, str]:
            result = CliRunner().invoke(cli, ["status", run, "--dir", str(tmp_path)])
            return result.exit_code, (result.stdout + result.stderr).splitlines()[0]

        assert status("gpt*") == (3, "2 runs: gpt-large compiling; gpt-small warm")
        assert status("*-small")[0] == 0
        assert status("llama*")[0] == 5
        waited = CliRunner().invoke(cli, ["wait", "*-small", "--dir", str(tmp_path)])
        assert (waited.exit_code, waited.stdout[:15]) == (0, "gpt-small: warm")


def test_a_run_s_exact_name_is_no_pattern(tmp_path: Path) -> None:
    """Else a run that is named ``a[1]`` could not be asked for."""
    one = write_record(tmp_path, warm("a[1]"), name="x")
    two = write_record(tmp_path, compiling("a1"), name="y")
    with held(one), held(two):
        result = CliRunner().invoke(cli, ["status", "a[1]", "--dir", str(tmp_path)])
    assert (result.exit_code, result.stdout[:10]) == (0, "a[1]: warm")


@pytest.mark.parametrize("command", [["status"], ["wait", "--timeout", "0"]])
def test_a_directory_that_does_not_exist_is_said(tmp_path: Path, command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--dir", str(tmp_path / "no")])
    assert result.exit_code == {"status": 5, "wait": 124}[command[0]]
    assert f"warmwatch: --dir: {tmp_path}/no does not exist" in result.stderr


def test_a_run_s_name_steers_no_terminal(tmp_path: Path) -> None:
    with held(write_record(tmp_path, compiling("a\x1b[31m\nb\udce9"))):
        result = CliRunner().invoke(cli, ["status", "--dir", str(tmp_path)])
    assert result.stdout.startswith("a\\x1b[31m\\nb?: compiling")


@pytest.mark.parametrize("spelling", [*SWITCHES, "ON", " Yes "])
def test_a_setting_that_is_on_or_off_is_spelled_in_any_usual_way(spelling: str) -> None:
    on = SWITCHES[spelling.strip().lower()]
    told = {"WARMWATCH_OBSERVE": spelling, "WARMWATCH_OTLP": spelling}
    settings = load(told, 1000, {})
    assert (settings.observe, settings.otlp) == (on, on)


def test_another_spelling_is_refused() -> None:
    with pytest.raises(UsageError, match="'maybe' is neither on nor off"):
        load({"WARMWATCH_OTLP": "maybe"}, 1000, {})


def test_python_m_warmwatch_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch", "-V"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"warmwatch, version {__version__}\n"


def test_python_m_warmwatch_without_the_monitor_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['warmwatch_monitor.__main__'] = None\n"
        "from warmwatch.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("get it with: pip install 'warmwatch[monitor]'\n")
