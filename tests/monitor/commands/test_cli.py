"""The command line as a whole: help, slips of the pen, exit codes, pipes, and how it is started."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import warmwatch
import warmwatch_monitor
from support.records import compiling, environment, held, warm, write_record
from warmwatch import __version__
from warmwatch_monitor.client.completion import MODES
from warmwatch_monitor.commands.cli import COMMANDS, GROUPS, cli
from warmwatch_monitor.commands.modes.table import NAMES

PYTHON = [sys.executable, "-m", "warmwatch_monitor"]


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment(), check=False
    )


def test_help_lists_each_command_in_one_group() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    for title, group in GROUPS.items():
        section = shown.split(f"\n{title}:\n")[1].split("\n\n")[0]
        lines = [line.split(maxsplit=1) for line in section.splitlines()]
        assert lines == [[name, text] for name, (_, text) in group.items()]


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_shown(option: str) -> None:
    assert CliRunner().invoke(cli, [option]).stdout == f"warmwatch, version {__version__}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["statis"], "No such command 'statis'; did you mean status?"),
        (["xyzzy"], f"No such command 'xyzzy'; commands: {', '.join(COMMANDS)}"),
        (["status", "--adress", "x"], "--address"),
        (["wait", "--timeout", "5x"], "'5x' is not a valid number."),
        (["modes", "--steps", "many", "--", "x"], "'many' is not a valid whole number."),
    ],
)
def test_a_typo_exits_2_with_a_suggestion(words: list[str], hint: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert hint in result.stderr


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["run", "--run", "n" * 201], 200),
        (["check", "--baseline", "file", "--run", "n" * 201], 200),
        (["modes", "--mode", "eager", "--run", "n" * 195], 194),  # each mode's run is NAME/MODE
    ],
)
def test_a_name_that_the_record_would_cut_is_refused(words: list[str], most: int) -> None:
    result = CliRunner().invoke(cli, [*words, "--", "true"])
    long = f"the run's name has {len(words[-1])} characters; --run takes at most {most}"
    assert (result.exit_code, result.stderr) == (2, f"warmwatch: {long}\n")


def test_without_a_command_it_shows_the_runs_and_the_commands(
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


def test_without_a_command_and_without_the_daemon_of_the_address_it_suggests_to_start_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WARMWATCH_ADDRESS", "127.0.0.1:1")
    result = CliRunner().invoke(cli, [])
    assert (result.exit_code, result.stderr) == (0, "")
    first, *rest = result.stdout.splitlines()
    assert first == "no daemon answers at 127.0.0.1:1, which WARMWATCH_ADDRESS names"
    suggested = [line for line in rest if line.startswith("  warmwatch ")]
    assert [line.split()[1] for line in suggested] == ["serve", "run", "doctor"]


def test_without_a_command_and_a_training_it_suggests_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    output = CliRunner().invoke(cli, []).stdout
    suggested = [line for line in output.splitlines() if line.startswith("  warmwatch ")]
    assert [line.split()[1] for line in suggested] == ["runs", "run", "demo", "doctor"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *((one, 3) for one in ("status", "status --json", "status --watch")),
        *((one, 0) for one in ("", "--help", "status -h", "--version")),
        *((one, 0) for one in ("top --json", "runs", "runs --json")),
        *((f"report{one}", 0) for one in ("", " -v", " --json", " --markdown", " --html -")),
        *(("export gpt2 --perfetto -", 0), ("compare gpt2 bert", 0), ("stacks --json", 1)),
        *(("wait", 141), ("wait --json", 141), ("wait --until compiling", 0)),
    ],
)
def test_a_closed_pipe_ends_it_quietly_with_the_exit_code_of_the_answer(
    tmp_path: Path, words: str, code: int
) -> None:
    """The pipe is closed before the first byte."""
    records = tmp_path / "records"
    environ = f"env WARMWATCH_DIR={records} WARMWATCH_STATE={tmp_path}/state"
    command = f"{environ} {shlex.join(PYTHON)} {words}"
    two = [held(write_record(records, compiling(name), name=name)) for name in ("gpt2", "bert")]
    with two[0], two[1]:
        done = shell(f"({command} 2>{tmp_path}/err) | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == (f"{code}\n", "")
    told = (tmp_path / "err").read_text()
    assert words.startswith(("wait", "stacks")) or told == ""
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "words", ["status --dir {}", "status --json --dir {}", "", "--version", "--help", "status -h"]
)
def test_an_output_error_is_one_line_without_a_traceback(tmp_path: Path, words: str) -> None:
    """Its output is sent to a disk that is full."""
    with held(write_record(tmp_path, compiling())):
        done = shell(f"{shlex.join(PYTHON)} {words.format(tmp_path)} > /dev/full")
    why = "warmwatch: its output cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, why)


def test_runs_are_selected_by_a_pattern(tmp_path: Path) -> None:
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

        assert status("gpt*") == (3, "2 runs: 1 compiling, 1 warm")
        assert status("*-small")[0] == 0
        assert status("llama*")[0] == 5
        waited = CliRunner().invoke(cli, ["wait", "*-small", "--dir", str(tmp_path)])
        assert (waited.exit_code, waited.stdout[:15]) == (0, "gpt-small: warm")


def test_a_run_s_exact_name_is_not_a_pattern(tmp_path: Path) -> None:
    """As a pattern, ``a[1]`` would not match the run of that name."""
    one = write_record(tmp_path, warm("a[1]"), name="x")
    two = write_record(tmp_path, compiling("a1"), name="y")
    with held(one), held(two):
        result = CliRunner().invoke(cli, ["status", "a[1]", "--dir", str(tmp_path)])
    assert (result.exit_code, result.stdout[:10]) == (0, "a[1]: warm")


@pytest.mark.parametrize("command", [["status"], ["wait", "--timeout", "0"]])
def test_a_directory_that_does_not_exist_is_reported(tmp_path: Path, command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--dir", str(tmp_path / "no")])
    assert result.exit_code == {"status": 5, "wait": 124}[command[0]]
    assert f"warmwatch: --dir: {tmp_path}/no does not exist" in result.stderr


def test_a_run_s_name_sends_no_escape_sequence_to_a_terminal(tmp_path: Path) -> None:
    with held(write_record(tmp_path, compiling("a\x1b[31m\nb\udce9"))):
        result = CliRunner().invoke(cli, ["status", "--dir", str(tmp_path)])
    assert result.stdout.startswith("a\\x1b[31m\\nb?: compiling")


def test_python_m_warmwatch_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch", "-V"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"warmwatch, version {__version__}\n"


def test_python_m_warmwatch_without_the_monitor_explains_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['warmwatch_monitor.__main__'] = None\n"
        "from warmwatch.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "get it with: pip install 'warmwatch[monitor]'" in done.stderr


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    """``warmwatch WORDS`` in a Python that has no library but those of the checkout."""
    folders = [str(Path(one.__file__).parents[1]) for one in (warmwatch, warmwatch_monitor)]
    code = (
        f"import sys; sys.path += {folders!r}; sys.argv = ['warmwatch', *{list(words)!r}]\n"
        "from warmwatch_monitor.__main__ import main; main()"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_the_extra_help_and_version_work_and_other_commands_name_it() -> None:
    version, help, status = bare("--version"), bare("--help"), bare("status")
    assert (version.returncode, version.stdout) == (0, f"warmwatch, version {__version__}\n")
    assert help.returncode == 0
    assert all(f"\n  {command} " in help.stdout for command in COMMANDS)
    assert "Run a training with the agent attached.\n" in help.stdout  # not marked as missing
    assert status.returncode == 2
    assert (
        "`warmwatch status` needs the monitor's libraries, which are not installed ("
        in status.stderr
    )
    assert "pip install 'warmwatch[monitor]'" in status.stderr
    assert bare("statis").stderr.startswith("warmwatch: No such command 'statis'; commands: status")


def test_without_the_extra_run_becomes_the_command() -> None:
    shown = "import os; print(os.environ['WARMWATCH_RUN'], os.environ['PYTHONPATH'])"
    done = bare("run", "--run", "gpt2", "--", sys.executable, "-c", shown)
    assert done.returncode == 0, done.stderr
    name, path = done.stdout.split()
    assert (name, Path(path.partition(":")[0]).name) == ("gpt2", "_boot")
    assert bare("run", "--watch", "--", "true").returncode == 2
    assert bare("run").returncode == 2


def completed(words: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setenv("COMP_WORDS", f"warmwatch {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    environ = {"_WARMWATCH_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(cli, [], prog_name="warmwatch", env=environ)
    return {line.partition(",")[2] for line in done.stdout.splitlines() if line}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory with records that a command finds."""
    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("WARMWATCH_STATE", "off")
    return tmp_path


def test_a_shell_completes_commands_runs_states_and_modes(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(write_record(here, compiling())):
        assert completed("sta", monkeypatch) == {"status", "stacks"}
        assert completed("status g", monkeypatch) == {"gpt2"}
        assert completed("report x", monkeypatch) == set()
    assert completed("wait --until warm,co", monkeypatch) == {"warm,compiling"}
    assert completed("runs --state rec", monkeypatch) == {"recompiling"}
    assert completed("modes --mode red", monkeypatch) == {"reduce-overhead"}
    assert set(MODES) <= set(NAMES)


def test_completion_offers_what_the_option_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("wait --until warm,se", monkeypatch) == {"warm,settled"}
    assert completed("runs --state s", monkeypatch) == {"starting", "stalled"}
    assert completed("runs --state e", monkeypatch) == {"eager"}
