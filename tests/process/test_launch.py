"""``warmwatch run`` attaches without an edit and changes nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from psutil import STATUS_STOPPED, Process

import warmwatch
from support import slots, stored_runs
from support.daemon import completed
from support.records import wait_until
from support.trainings import PRELUDE, environment
from warmwatch_monitor.commands.launch import environment as launch_environment

RUN = [sys.executable, "-m", "warmwatch_monitor", "run"]
BOOT = Path(warmwatch.__file__).parent / "_boot"

EAGER = """
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(torch.compile(model, backend="eager"), o, 5)
"""

# a training without PyTorch, which would only take time here
MARKED = """
import warmwatch
warmwatch.attach()
with warmwatch.activity("build"): warmwatch.step()
for _ in range(4): warmwatch.step()
print("mine alone")
"""

# it is killed once its launcher waits for its end (a descriptor of its process, see pidfd_open(2))
KILLED = """
import glob, os, time, warmwatch
def read(file):
    try: return open(file).read()
    except OSError: return ""
warmwatch.attach(); warmwatch.step()
ours, descriptors = f"Pid:\\t{os.getpid()}\\n", f"/proc/{os.getppid()}/fdinfo/*"
for _ in range(6000):
    if any(ours in read(file) for file in glob.glob(descriptors)): break
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""

# its compile workers are processes of Inductor; it may hang in a collective before its first step
COMPILED_IN_RANK_1 = """
torch.distributed.init_process_group("gloo")
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
assert os.listdir(os.environ["WARMWATCH_DIR"]), "a rank has no record"
train(torch.compile(model) if os.environ["RANK"] == "1" else model, o, 5)
"""


def started(
    *command: str,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return completed("run", *options, "--", *command, env=env)


def script(place: Path, body: str) -> str:
    path = place / "train.py"
    path.write_text(body)
    return str(path)


@pytest.mark.first
def test_a_training_in_a_shell_script_is_attached_to_and_its_exit_code_passes(
    records: Path,
) -> None:
    # a tool that imports Dynamo and trains nothing would have come no further than the first line
    tool = f"import os, torch._dynamo; print(os.listdir({str(records)!r}))\n"
    train = script(records.parent, tool + PRELUDE + EAGER + "raise SystemExit(7)")
    line = f"{sys.executable} -c pass && {sys.executable} {train}"
    done = started("sh", "-c", line, options=("--run", "mine"), env=environment(records))
    assert (done.returncode, done.stdout, done.stderr) == (7, "[]\n", "")
    slot = slots.read(slots.only(records))
    assert (slot.identity.run, slot.steps.steps) == ("mine", 5)


@pytest.mark.first
def test_only_ranks_are_ranks_not_launchers_or_compile_workers(records: Path) -> None:
    body = "import os\n" + PRELUDE + COMPILED_IN_RANK_1
    env = environment(records, TORCHINDUCTOR_COMPILE_THREADS="2")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = started(*torchrun, "--standalone", script(records.parent, body), env=env)
    assert done.returncode == 0, done.stderr
    found = [slots.read(one) for one in slots.folders(records)]
    assert sorted(slot.identity.rank for slot in found) == [0, 1]
    assert [slot.steps.steps for slot in found] == [5, 5]


def test_the_report_is_printed_on_stderr_and_never_in_the_piped_output(records: Path) -> None:
    train = script(records.parent, MARKED)
    state = records.parent / "state"
    env = environment(records, WARMWATCH_STATE=str(state))
    file = records.parent / "outcome.json"
    options = ("--report", "--watch", "--json", str(file))
    done = started(sys.executable, train, options=options, env=env)
    assert done.stdout == "mine alone\n"
    assert re.search(r"train: finished\b.*\b5 steps", done.stderr)
    output = done.stderr.split("Where the time went")[1]
    assert "clean steps" in output
    assert "Compiling: " in output
    assert "\x1b" not in done.stderr
    (retained,) = stored_runs.store(state).listed()
    assert (retained.run, retained.state, retained.steps) == ("train", "finished", 5)
    outcome = json.loads(file.read_text())
    assert (outcome["exit_code"], outcome["signal"], outcome["page"]) == (0, None, None)
    assert outcome["command"] == [sys.executable, train]
    assert [(run["run"], run["state"]) for run in outcome["runs"]] == [("train", "finished")]


def test_the_report_names_the_signal_that_killed_a_training(records: Path) -> None:
    train = script(records.parent, KILLED)
    done = started(sys.executable, train, options=("--report",), env=environment(records))
    assert done.returncode == -signal.SIGKILL
    assert "killed by SIGKILL" in done.stderr


@pytest.mark.parametrize("options", ["mode='reduce'", "mode='default', options={'debug': True}"])
def test_a_call_of_torch_compile_that_is_refused_is_recorded_before_anything_ran(
    records: Path, options: str
) -> None:
    body = f"import torch\ntorch.compile(torch.nn.Linear(2, 2), {options})"
    train = script(records.parent, body)
    done = started(sys.executable, train, options=("--report",), env=environment(records))
    assert done.returncode == 1
    assert "failed before its first step: RuntimeError" in done.stderr
    assert "list_mode_options" in done.stderr


@pytest.mark.long
def test_the_demo_prints_only_its_report_as_json() -> None:
    command = [sys.executable, "-m", "warmwatch_monitor", "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = json.loads(done.stdout)
    assert (made["run"], made["state"]) == ("demo", "finished")
    assert made["recompiles"] == 1
    assert "demo: compiling" in done.stderr


# Of the interpreter alone.

PRINTS = """
import json, sys
customize = sys.modules.get("sitecustomize")
print(json.dumps([sys.path, sorted(sys.modules), getattr(customize, "__file__", None)]))
"""


@pytest.mark.parametrize(
    "own", [None, "print('once')", "raise ImportError('mine')", "import nothing_of_that_name"]
)
def test_the_users_sitecustomize_still_runs(tmp_path: Path, own: str | None) -> None:
    if own is not None:
        (tmp_path / "sitecustomize.py").write_text(own)
    command = [sys.executable, "-c", PRINTS]
    alone, below = (
        subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=True,
        )
        for paths in ([str(tmp_path)], [str(BOOT), str(tmp_path)])
    )
    assert (below.stdout, below.stderr) == (alone.stdout, alone.stderr)


@pytest.mark.parametrize("before", [None, "", "/a:/b", "/a:"])
def test_the_rest_of_the_environment_is_unchanged(before: str | None) -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env |= {} if before is None else {"PYTHONPATH": before}
    # not SIGPIPE and SIGXFSZ, which Python ignores, nor 32 and 33, which glibc's posix_spawn may
    # leave ignored for its own threads
    mask = (
        "while read key hex; do case $key in SigIgn:) echo $((0x$hex & ~0x180000000));; esac; done"
    )
    snippet = f"env -0; {mask} </proc/self/status"
    alone = subprocess.check_output(["sh", "-c", snippet], env=env, text=True, restore_signals=True)
    below = started("sh", "-c", snippet, env=env).stdout
    ours = f"PYTHONPATH={BOOT}" + (f":{before}" if before else "")
    differ = set(below.split("\0")) - set(alone.split("\0"))
    assert {one for one in differ if not one.startswith("_=")} <= {ours}
    assert ours in below.split("\0")


def test_a_python_without_warmwatch_can_import_the_agent_only(
    tmp_path: Path,
) -> None:
    """Its torch is a stand-in module: the test is about the import hooks that load it."""
    (tmp_path / "torch.py").write_text("")
    foreign = [getattr(sys, "_base_executable", sys.executable), "-s", "-c"]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": str(tmp_path)}
    snippet = """
import json, sys
before = "warmwatch" in sys.modules
import torch, importlib.util
from warmwatch.lifecycle import api as _current
print(json.dumps([before, _current.attached is not None, sys.modules["warmwatch"].__file__,
    importlib.util.find_spec("warmwatch_monitor") is not None or sys.path]))
"""
    before, attached, where, others = json.loads(started(*foreign, snippet, env=env).stdout)
    assert (before, attached) == (False, True)
    assert Path(where).parent == BOOT.parent
    assert not {str(BOOT), str(BOOT.parent), str(BOOT.parents[1])} & set(others)
    off = started(*foreign, snippet, env={**env, "WARMWATCH_DISABLE": "1"})
    assert "No module named 'warmwatch'" in off.stderr


@pytest.mark.parametrize("options", [(), ("--report",)])
def test_it_ends_by_the_signal_that_killed_the_command(options: tuple[str, ...]) -> None:
    done = started("sh", "-c", "kill -TERM $$", options=options)
    assert done.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1),
        *(signal.SIGALRM, signal.SIGABRT, signal.SIGXCPU),
    ],
)
def test_signals_to_the_launcher_reach_the_command(
    number: signal.Signals,
) -> None:
    line = f"trap 'exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*RUN, "--report", "--", "sh", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as beside:
        assert beside.stdout
        assert beside.stdout.readline() == "ready\n"
        beside.send_signal(number)
        assert beside.wait() == 9


@pytest.mark.parametrize(("command", "code"), [("nothing-of-that-name", 127), ("/", 126)])
@pytest.mark.parametrize("options", [(), ("--report",)])
def test_a_command_that_cannot_run_is_reported(
    options: tuple[str, ...], command: str, code: int
) -> None:
    done = started(command, options=options)
    assert done.returncode == code
    assert done.stderr.startswith(f"warmwatch: {command}: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&- 2>&-", "2>/dev/full"])
def test_the_exit_code_is_passed_on_without_an_output(closed: str) -> None:
    for options, command, code in (
        ("--report", "sh -c 'exit 7'", 7),
        ("--report --watch", "sh -c 'exit 7'", 7),
        ("", "nothing-of-that-name", 127),
    ):
        line = f"{' '.join(RUN)} {options} -- {command} {closed}"
        assert subprocess.run(["sh", "-c", line], check=False).returncode == code, line


def test_a_closed_terminal_changes_neither_the_command_nor_its_exit_code(
    tmp_path: Path,
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    line = f"until test -e {tmp_path}/gone; do sleep 0.05; done; sleep 1.2; exit 9"
    with subprocess.Popen(
        [*RUN, "--watch", "--report", "--", "sh", "-c", line],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "WARMWATCH_DIR": str(tmp_path), "TERM": "xterm"},
        start_new_session=True,
    ) as beside:
        os.close(theirs)
        read_until(ours, "no step and no compilation for")
        os.close(ours)
        (tmp_path / "gone").touch()
        assert beside.wait() == 9


def test_the_hangup_of_a_closed_terminal_reaches_the_command() -> None:
    """The kernel sends it to the session leader only, which we are under `ssh -t` or tmux."""

    def lead() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    ours, theirs = pty.openpty()
    line = "trap 'exit 5' HUP; echo ready; for n in $(seq 600); do sleep 0.05; done"
    with subprocess.Popen(
        [*RUN, "--report", "--", "sh", "-c", line],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lead,
    ) as beside:
        os.close(theirs)
        read_until(ours, "ready")
        os.close(ours)
        assert beside.wait() == 5


def test_an_agent_that_cannot_be_imported_fails_no_import_even_without_an_output(
    tmp_path: Path,
) -> None:
    """A foreign package named warmwatch is found first, and stderr is closed or full."""
    (tmp_path / "warmwatch.py").touch()
    (tmp_path / "triton.py").touch()
    (tmp_path / "train.py").write_text("import triton\nraise SystemExit(7)\n")
    for closed in ("2>&-", "2>/dev/full"):
        line = f"{' '.join(RUN)} -- {sys.executable} {tmp_path}/train.py {closed}"
        assert subprocess.run(["sh", "-c", line], check=False).returncode == 7


def test_a_module_named_warmwatch_is_named_and_does_not_run(tmp_path: Path) -> None:
    """It may be the training itself, which would run a second time."""
    (tmp_path / "triton.py").touch()
    script = tmp_path / "warmwatch.py"
    script.write_text("print('once')\nimport triton\n")
    words = f"{script} has the name of warmwatch's package; rename it\n"
    done = started(sys.executable, str(script))
    assert (done.stdout, done.stderr) == ("once\n", f"warmwatch: not attached: {words}")
    for package in (False, True):
        if package:
            (tmp_path / "warmwatch").mkdir()
            script = script.rename(tmp_path / "warmwatch" / "__init__.py")
            words = f"{script} has the name of warmwatch's package; rename it\n"
        done = started(sys.executable, "-c", "", env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"warmwatch: {words}")


def test_the_live_line_is_below_the_output_and_is_removed_at_the_end(tmp_path: Path) -> None:
    """In a terminal of 24 lines, which the command writes to itself."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    # the command ends when the line has been seen
    line = f"test -t 1 && echo terminal; until test -e {tmp_path}/seen; do sleep 0.05; done"
    with subprocess.Popen(
        [*RUN, "--watch", "--", "sh", "-c", line],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "WARMWATCH_DIR": str(tmp_path), "TERM": "xterm"},
        start_new_session=True,
    ) as beside:
        os.close(theirs)
        shown = read_until(ours, "no step and no compilation for")
        (tmp_path / "seen").touch()
        shown += read_until(ours, None)
        assert beside.wait() == 0
    os.close(ours)
    assert "terminal\r\n" in shown
    assert "\x1b[1;23r" in shown  # all lines but the last scroll
    assert "\x1b[24;1H\x1b[2K\x1b[7mno step and no compilation for" in shown
    assert shown.endswith("\x1b7\x1b[r\x1b[24;1H\x1b[2K\x1b8")


def test_a_folder_named_warmwatch_next_to_the_script_does_not_hide_the_agent(
    tmp_path: Path,
) -> None:
    """In a Python that has no warmwatch, a checkout would be found as a namespace package."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "warmwatch").mkdir()
    foreign = [getattr(sys, "_base_executable", sys.executable), "-s", "-c"]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": str(tmp_path)}
    snippet = "import torch; from warmwatch.lifecycle import api; print(api.attached is not None)"
    done = started(*foreign, snippet, env=env)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_stopping_and_continuing_the_launcher_does_the_same_to_the_command() -> None:
    line = "echo ready; read line; exit 5"
    with subprocess.Popen(
        [*RUN, "--report", "--", "sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=os.setpgrp,  # with a parent outside of it, so that it can be stopped
    ) as beside:
        assert beside.stdout
        assert beside.stdout.readline() == "ready\n"
        beside.send_signal(signal.SIGTSTP)
        (command,) = Process(beside.pid).children()
        wait_until(lambda: Process(beside.pid).status() == command.status() == STATUS_STOPPED)
        beside.send_signal(signal.SIGCONT)
        wait_until(lambda: command.status() != STATUS_STOPPED)
        beside.communicate("go\n")
        assert beside.returncode == 5


def read_until(descriptor: int, text: str | None) -> str:
    """What comes, up to where ``text`` has come or the terminal is closed."""
    shown = ""
    while text is None or text not in shown:
        try:
            part = os.read(descriptor, 4096)
        except OSError:  # Linux reports this for a terminal that no process has open any more
            part = b""
        if not part:
            assert text is None, shown
            break
        shown += part.decode()
    return shown


def test_a_nested_launch_belongs_to_the_outer_one_unless_it_is_watched() -> None:
    outer = launch_environment({}, started_by="outer")
    assert launch_environment(outer)["WARMWATCH_STARTED_BY"] == "outer"
    inner = launch_environment(outer, started_by="inner")
    assert inner["WARMWATCH_STARTED_BY"] == "inner"
