"""``warmwatch serve``: starts, answers, refuses in a sentence, and ends cleanly."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.daemon import completed, daemon, daemon_process, status_of
from support.records import compiling, environment, held, update, wait_until, warm, write_record
from support.values import replace
from warmwatch import __version__
from warmwatch_monitor.model import Refusal, Snapshot, SourceHealth
from warmwatch_monitor.server.api.changes import Recent
from warmwatch_monitor.server.logs import DaemonLog


def serve(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A daemon that must exit immediately."""
    return completed("serve", *arguments, env=environment(**variables))


def test_a_daemon_follows_a_training_from_compiling_to_warm_to_lost(tmp_path: Path) -> None:
    folder = write_record(tmp_path, compiling())
    with held(folder) as training, daemon(tmp_path) as url:
        assert [run["state"] for run in status_of(url)["runs"]] == ["compiling"]
        update(folder, warm())
        wait_until(lambda: status_of(url)["warm"] is True)
        training.kill()
        training.wait()
        gone = time.time()
        wait_until(lambda: status_of(url)["at"] > gone)
        assert status_of(url)["runs"][0]["state"] == "lost"
        assert status_of(url)["warm"] is None


def test_json_prints_process_and_address_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "warmwatch_monitor", "serve", "--json"]
    options = ["--dir", str(tmp_path), "--address", "127.0.0.1:0", "--log-format", "off"]
    state = str(tmp_path / "state")
    with subprocess.Popen(
        [*command, *options], env=environment(WARMWATCH_STATE=state), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        made = json.loads(process.stdout.readline())
        directories = status_of(made["url"])["directories"]
        process.terminate()
    assert directories == made["directories"] == [str(tmp_path)]
    assert (made["pid"], made["history"]) == (process.pid, state)


def test_a_daemon_serves_although_the_disk_of_its_log_is_full(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    words = (sys.executable, "-m", "warmwatch_monitor", "serve", "--address", address)
    with (
        Path("/dev/full").open("w") as full,
        held(write_record(tmp_path, warm())),
        subprocess.Popen(
            [*words, "--dir", str(tmp_path)], stdout=full, stderr=full, env=environment()
        ) as process,
    ):

        def answers() -> bool:
            assert process.poll() is None, "it has ended"
            try:
                return bool(status_of(f"http://{address}")["warm"])
            except OSError:
                return False

        wait_until(answers)
        process.terminate()
        assert process.wait() == 0


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_with_exit_0_and_an_empty_stderr(
    tmp_path: Path, signum: signal.Signals
) -> None:
    with daemon_process("--dir", str(tmp_path)) as (process, url):
        wait_until(lambda: status_of(url)["sources"][0]["up"])
        process.send_signal(signum)
        _, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")


def test_a_signal_before_startup_completes_also_exits_0(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path)) as (process, _):
        process.terminate()
        assert process.wait(timeout=240) == 0


_SWALLOWED = """
import os, signal, sys
class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)  # its handler runs here, and what it raises is lost
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE":
            sys.meta_path.remove(self)
            Finalized()
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    "module", ["warmwatch_monitor.server.api.app", "warmwatch_monitor.server.api.openapi"]
)
def test_a_signal_that_an_import_swallows_also_stops_the_daemon(
    tmp_path: Path, module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_SWALLOWED.replace("MODULE", module))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = serve("--address", "127.0.0.1:0", "--dir", str(tmp_path), PYTHONPATH=path)
    assert done.returncode == 0
    assert "SystemExit" in done.stderr, "it was swallowed"


def test_a_missing_directory_is_reported_and_read_once_it_exists(tmp_path: Path) -> None:
    later = tmp_path / "later"
    with daemon_process("--dir", str(later), "--interval", "0.05") as (process, url):
        with held(write_record(later, warm())):
            wait_until(lambda: status_of(url)["warm"])
        process.terminate()
        _, errors = process.communicate(timeout=240)
    assert errors == f"warmwatch: {later} does not exist yet; it is watched from when it does\n"
    assert process.returncode == 0


def test_an_ended_run_is_removed_after_the_retention(tmp_path: Path) -> None:
    with daemon(tmp_path, "--retention", "0.5") as url:
        with held(write_record(tmp_path, warm())):
            wait_until(lambda: status_of(url)["runs"])
        wait_until(lambda: not status_of(url)["runs"])


def test_a_port_in_use_exits_6_with_advice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = serve("--address", address)
    assert done.returncode == 6
    assert done.stderr == (
        f"warmwatch: cannot listen on {address}: address already in use; stop what listens there "
        "or choose another with --address HOST:PORT (port 0: any free one)\n"
    )
    assert done.stdout == ""


def test_an_address_of_another_machine_is_not_called_in_use() -> None:
    done = serve("--address", "192.0.2.1:0", "--insecure")
    assert done.returncode == 6
    assert "requested address; choose another with --address HOST:PORT" in done.stderr


def test_a_closed_stdin_does_not_end_the_daemon() -> None:
    """Its descriptor may be another file's by then."""
    serve = f"{shlex.join([sys.executable, '-m', 'warmwatch_monitor'])} serve --until-stdin-ends"
    done = subprocess.run(
        ["bash", "-c", f"exec {serve} --address 127.0.0.1:0 <&-"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "warmwatch: --until-stdin-ends: stdin is closed; give it a pipe, or drop the option\n"
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["--interval", "0.01"], {}, "--interval: '0.01' is not a number of seconds from 0.05"),
        (["--interval", "nan"], {}, "--interval: 'nan' is not a number of seconds"),
        (
            ["--long-compile", "1h"],
            {},
            "'1h' is neither off nor a number of seconds from 0 to 2,592",
        ),
        ([], {"WARMWATCH_LONG_COMPILE": "-1"}, "WARMWATCH_LONG_COMPILE: '-1' is neither off nor a"),
        ([], {"WARMWATCH_INTERVAL": "fast"}, "WARMWATCH_INTERVAL: 'fast' is not a number"),
        ([], {"WARMWATCH_RETENTION": "-1"}, "WARMWATCH_RETENTION: '-1' is not a number"),
        ([], {"WARMWATCH_ADDRESS": "10464"}, "WARMWATCH_ADDRESS: '10464' is not HOST:PORT"),
        ([], {"WARMWATCH_INTERVALL": "1"}, "did you mean WARMWATCH_INTERVAL?"),
        ([], {"WARMWATCH_DIR": __file__}, f"WARMWATCH_DIR: {__file__} is a file"),
        (["--dir", __file__], {}, f"--dir: {__file__} is a file"),
        (["--dir", ""], {}, "--dir: the name is empty; give a directory"),
        (["--token-file", "/nowhere"], {}, "/nowhere: no such file"),
    ],
)
def test_an_invalid_setting_exits_2_and_is_named(
    arguments: list[str], variables: dict[str, str], words: str
) -> None:
    done = serve(*arguments, **variables)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_daemon_accepts_the_agent_s_variables(tmp_path: Path) -> None:
    agent = {"WARMWATCH_RUN": "x", "WARMWATCH_WARM_STEPS": "5", "WARMWATCH_DISABLE": "1"}
    with daemon_process("--dir", str(tmp_path), **agent) as (_, url):
        wait_until(lambda: status_of(url)["sources"][0]["up"])


def test_an_option_overrides_its_variable(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path), WARMWATCH_DIR="/nowhere") as (_, url):
        assert status_of(url)["directories"] == [str(tmp_path)]


def test_without_the_extra_serve_prints_the_pip_command() -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'psutil' else real(name)\n"
        "from warmwatch_monitor.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "warmwatch: `warmwatch serve` needs the monitor's libraries, which are not installed "
        "(psutil); get them with: pip install 'warmwatch[monitor]'\n"
    )


def test_the_settings_can_be_checked_without_serving(tmp_path: Path) -> None:
    fine = serve("--check-config", "--dir", str(tmp_path), "--address", "127.0.0.1:10464")
    assert (fine.returncode, fine.stderr) == (0, "")
    expected = "the settings are valid: would serve http://127.0.0.1:10464 and read"
    assert fine.stdout == f"{expected} {tmp_path}\n"
    checked = serve("--check-config", "--json", "--dir", str(tmp_path), "--address", "127.0.0.1:1")
    assert json.loads(checked.stdout) == {
        "schema_version": 1,
        "version": __version__,
        "pid": None,
        "url": "http://127.0.0.1:1",
        "directories": [str(tmp_path)],
        "history": None,
    }
    for wrong in (
        ("--interval", "x"),
        ("--tls-cert", str(tmp_path / "none")),
        ("--address", "0.0.0.0:10464"),
        ("--log-format", "xml"),
    ):
        assert serve("--check-config", "--dir", str(tmp_path), *wrong).returncode == 2


@pytest.mark.parametrize("style", ["logfmt", "json"])
def test_each_change_is_logged_as_one_structured_line(tmp_path: Path, style: str) -> None:
    with (
        held(write_record(tmp_path, warm())) as training,
        daemon_process("--dir", str(tmp_path), "--interval", "0.05", "--log-format", style) as (
            process,
            url,
        ),
    ):
        wait_until(lambda: status_of(url)["warm"])
        (tmp_path / "stray").write_text("")
        wait_until(lambda: status_of(url)["refusals"])
        training.kill()
        training.wait()
        wait_until(lambda: status_of(url)["runs"][0]["state"] == "lost")
        process.terminate()
        _, errors = process.communicate(timeout=240)
    if style == "json":
        lines = [json.loads(line) for line in errors.splitlines()]
        (refused,) = (line for line in lines if line["event"] == "refused")
        assert (refused["level"], refused["path"]) == ("warning", str(tmp_path / "stray"))
        (lost,) = (line for line in lines if line["event"] == "run" and line["state"] == "lost")
        assert (lost["run"], lost["before"], lost["level"]) == ("gpt2", "warm", "warning")
        assert (lines[-1]["event"], lines[-1]["pid"]) == ("stop", process.pid)
    else:
        assert f" level=warning event=refused path={tmp_path}/stray reason=" in errors
        assert " level=warning event=run run=gpt2 state=lost before=warm" in errors
        assert f" level=info event=stop pid={process.pid} seconds=" in errors.splitlines()[-1]


def test_an_unread_log_pipe_does_not_block_the_daemon(tmp_path: Path) -> None:
    """Its pipe is full of earlier lines; further lines are dropped, and it exits immediately."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 512)
    os.set_blocking(writes, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    words = (sys.executable, "-m", "warmwatch_monitor", "serve", "--address", address)
    (tmp_path / "stray").write_text("")
    with subprocess.Popen(
        [*words, "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=writes,
        env=environment(),
    ) as process:

        def answers() -> bool:
            try:
                return bool(status_of(f"http://{address}")["refusals"])
            except OSError:
                return False

        wait_until(answers)
        before = status_of(f"http://{address}")["at"]
        wait_until(lambda: status_of(f"http://{address}")["at"] > before)
        process.terminate()
        assert process.wait(60) == 0
    os.close(reads)
    os.close(writes)


@pytest.mark.slow
def test_the_service_manager_receives_ready_watchdog_and_reload_messages(tmp_path: Path) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        held(write_record(tmp_path, warm())),
    ):
        manager.bind(str(tmp_path / ".notify"))
        manager.settimeout(60)
        reported: list[str] = []

        def hears(words: str) -> bool:
            while not any(words in one for one in reported):
                reported.append(manager.recv(4096).decode())
            return True

        variables = {"NOTIFY_SOCKET": str(tmp_path / ".notify"), "WATCHDOG_USEC": "400000"}
        with daemon_process("--dir", str(tmp_path), "--interval", "0.05", **variables) as (
            process,
            url,
        ):
            assert hears("READY=1")
            assert hears("STATUS=gpt2: warm")
            assert hears("WATCHDOG=1")
            reported.clear()
            assert hears("WATCHDOG=1"), "again and again"
            process.send_signal(signal.SIGHUP)
            reported.clear()
            assert hears("RELOADING=1\nMONOTONIC_USEC=")
            assert hears("READY=1")
            assert status_of(url)["warm"], "a hang-up ends nothing"
            reported.clear()
            process.send_signal(signal.SIGSTOP)
            manager.settimeout(1)
            with contextlib.suppress(TimeoutError):
                for _ in range(100):  # what was sent before
                    manager.recv(4096)
            with pytest.raises(TimeoutError):  # no sign of life while it is stopped
                manager.recv(4096)
            process.send_signal(signal.SIGCONT)
            manager.settimeout(60)
            process.terminate()
            assert hears("STOPPING=1")


LOGS_WITHIN_A_LINE = """
import signal
from warmwatch_monitor.server.logs import DaemonLog
log = DaemonLog("json", write=lambda line: None)
handled = []
def reload(*_):
    handled.append(1)
    log.note(f"reload{len(handled)}")
signal.signal(signal.SIGALRM, reload)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
number = 0
while len(handled) < 2000:
    number += 1
    log.note(f"access{number % 1000}")
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_during_a_log_line_may_log_a_line() -> None:
    """The SIGHUP handler logs, on the thread that also logs refused clients."""
    done = subprocess.run([sys.executable, "-c", LOGS_WITHIN_A_LINE], timeout=120, check=False)
    assert done.returncode == 0


def test_a_run_whose_state_is_unchanged_is_not_logged_again() -> None:
    """It recompiled, and the steps after that do not suffice to be warm yet."""
    idle = replace(b.RECOMPILING.compile, active_since_ns=0, last_end_ns=b.ago(0.1))
    after = b.view(replace(b.RECOMPILING, compile=idle))
    lines: list[bytes] = []
    log, recent = DaemonLog("json", write=lines.append), Recent()
    for view in (b.view(b.WARM), b.view(b.RECOMPILING), after):
        recent.take(b.snapshot(view))
        log.take(b.snapshot(view), recent.changes)
    log.stop()
    runs = [one for line in lines if (one := json.loads(line))["event"] == "run"]
    assert [(one["before"], one["state"]) for one in runs] == [("warm", "recompiling")]


def logged(*snapshots: Snapshot) -> list[dict[str, Any]]:
    """The lines of a daemon that publishes these."""
    lines: list[bytes] = []
    log, recent = DaemonLog("json", write=lines.append), Recent()
    for snapshot in snapshots:
        recent.take(snapshot)
        log.take(snapshot, recent.changes)
    log.stop()
    return [json.loads(line) for line in lines]


def test_what_ended_before_the_daemon_started_is_one_line() -> None:
    """Whether its first poll reads it, or a later one: the daemon before it has logged the end."""
    over = b.view(b.ended("failed"), alive=False)
    empty = b.snapshot(sources=(b.HEALTH,))
    for snapshots in ((b.snapshot(over),), (replace(empty, unread=1), b.snapshot(over))):
        (line,) = logged(*snapshots)
        assert (line["event"], line["runs"], line["living"]) == ("found", 1, 0)


def test_what_ends_while_the_daemon_runs_is_logged() -> None:
    living, over = b.view(b.WARM), b.view(b.ended("failed"), alive=False)
    events = [line["event"] for line in logged(b.snapshot(living), b.snapshot(over))]
    assert events == ["found", "ended", "run"]


def test_a_source_is_logged_when_it_fails_and_when_it_works_again() -> None:
    """Not when it is read for the first time."""
    up, down = replace(b.HEALTH, source="host"), replace(b.HEALTH, source="host", up=False)
    sources: tuple[tuple[SourceHealth, ...], ...] = ((), (up,), (down,), (up,))
    lines = logged(*(b.snapshot(sources=(b.HEALTH, *of)) for of in sources))
    assert [line["up"] for line in lines if line["event"] == "source"] == [False, True]


def test_refusals_for_one_reason_are_one_line_and_a_flood_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    refusals = tuple(Refusal(path=f"/run/{n}", reason="torn") for n in range(634))
    (line,) = logged(b.snapshot(refusals=refusals))[:1]
    assert (line["event"], line["path"], line["more"]) == ("refused", "/run/0", 633)
    lines: list[bytes] = []
    log = DaemonLog("json", write=lines.append)
    for number in range(30):
        log.note("ended", rank=number)
    now += 60
    log.take(b.snapshot(), [])
    log.stop()
    found = [json.loads(line) for line in lines]
    assert [line["event"] for line in found].count("ended") == 10
    (left_out,) = (line for line in found if line["event"] == "left_out")
    assert (left_out["of"], left_out["lines"]) == ("ended", 20)


def test_a_blocked_log_buffers_a_thousand_lines() -> None:
    blocked = threading.Event()
    read: list[bytes] = []

    def write(line: bytes) -> None:
        read.append(line)
        blocked.wait(60)

    log = DaemonLog("json", write=write)
    for number in range(3000):
        log.note(f"event{number}")
    blocked.set()
    log.stop()
    wait_until(lambda: len(read) >= 1000)
    assert len(read) <= 1001
