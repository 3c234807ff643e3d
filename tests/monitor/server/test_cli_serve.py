"""``warmwatch serve``: starts, answers, refuses in a sentence, and ends cleanly."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.daemon import completed, daemon, daemon_process, status_of
from support.records import environment, held, wait_until, warm, write_record
from support.values import replace
from warmwatch import __version__
from warmwatch_monitor.figures.machine import Refusal, SourceHealth
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.server.api.changes import Recent
from warmwatch_monitor.server.logs import DaemonLog


def serve(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A daemon that must exit immediately."""
    return completed("serve", *arguments, env=environment(**variables))


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
        (["--token-file", "/nowhere"], {}, "/nowhere: No such file"),
    ],
)
def test_an_invalid_setting_exits_2_and_is_named(
    arguments: list[str], variables: dict[str, str], words: str
) -> None:
    done = serve(*arguments, **variables)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_extra_serve_prints_the_pip_command() -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'uvicorn' else real(name)\n"
        "from warmwatch_monitor.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "warmwatch: `warmwatch serve` needs the monitor's libraries, which are not installed "
        "(uvicorn); get them with: pip install 'warmwatch[monitor]'\n"
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


def logged(*snapshots: Snapshot) -> list[dict[str, Any]]:
    """The lines of a daemon that publishes these."""
    lines: list[bytes] = []
    log, recent = DaemonLog("json", write=lines.append), Recent()
    for snapshot in snapshots:
        recent.take(snapshot)
        log.take(snapshot, recent.changes)
    log.stop()
    return [json.loads(line) for line in lines]


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
