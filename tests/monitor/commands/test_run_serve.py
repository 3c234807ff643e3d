"""``warmwatch run --serve``: a daemon for as long as the command runs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.builders import snapshot
from support.daemon import daemon_process, free_address
from support.records import ended, environment, wait_until, warm, write_record
from support.web import Authority, ask
from warmwatch.shared.states import State
from warmwatch_monitor.commands.launched import Launched, nothing_seen
from warmwatch_monitor.commands.run import LastLine, print_summary
from warmwatch_monitor.model.snapshot import Snapshot

pytestmark = pytest.mark.slow
WAITS = "import sys; print('runs', flush=True); sys.stdin.read()"


@contextmanager
def served(
    place: Path, *options: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, which runs until its stdin ends, and the link."""
    command = [sys.executable, "-m", "warmwatch_monitor", "run", "--serve", *options, "--"]
    environ = environment(WARMWATCH_DIR=str(place), WARMWATCH_STATE="off", **variables)
    with subprocess.Popen(
        [*command, sys.executable, "-c", WAITS],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        assert process.stdout
        line = process.stderr.readline()
        assert process.stdout.readline() == "runs\n"
        yield process, line.split("live page: ")[1].split()[0].rstrip("/")


def test_the_link_of_a_daemon_with_tls_uses_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("daemon")
    address = free_address()
    files = {"WARMWATCH_TLS_CERT": str(cert), "WARMWATCH_TLS_KEY": str(key)}
    with served(tmp_path, WARMWATCH_ADDRESS=address, **files) as ran:
        process, url = ran
        assert url == f"https://{address}"
        assert ask(url, "/", tls=authority.trusted()).status == 200
        process.communicate("", timeout=600)
    assert process.returncode == 0


def is_free(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.socket() as one:
        return one.connect_ex((host, int(port))) != 0


def test_the_page_is_served_while_the_command_runs(tmp_path: Path) -> None:
    address, file = free_address(), tmp_path / "outcome.json"
    with served(tmp_path, "--json", str(file), WARMWATCH_ADDRESS=address) as (process, url):
        assert url == f"http://{address}"
        assert ask(url, "/").status == 200
        known = json.loads(file.read_text())
        assert (known["page"], known["seconds"]) == (f"{url}/", None)
        wait_until(lambda: b'"summary":"waiting for the first step' in ask(url, "/status").body)
        started = psutil.Process(process.pid).children()
        (daemon,) = [one for one in started if "serve" in one.cmdline()]
        write_record(tmp_path, warm())
        wait_until(lambda: b'"summary":"gpt2: ' in ask(url, "/status").body)
        assert Path(f"/proc/{daemon.pid}/fd/2").read_text() == "", "its log would fill the disk"
        process.communicate("", timeout=600)
    assert process.returncode == 0
    assert json.loads(file.read_text())["exit_code"] == 0
    assert is_free(url)


def test_the_reason_why_the_daemon_does_not_start_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warmwatch_monitor", "run", "--serve", "--", "true"],
        env=environment(WARMWATCH_DIR=str(tmp_path), WARMWATCH_TLS_CERT="/no/such/file"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6
    assert done.stderr.startswith("warmwatch: the daemon did not start: ")
    assert "/no/such/file" in done.stderr


def test_ctrl_c_stops_command_and_page(tmp_path: Path) -> None:
    with served(tmp_path, WARMWATCH_ADDRESS=free_address()) as (process, url):
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=600)
    assert process.returncode == -signal.SIGINT
    assert is_free(url)


def test_the_daemon_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    with served(tmp_path, WARMWATCH_ADDRESS=free_address()) as (process, url):
        process.kill()
        wait_until(lambda: is_free(url))


def test_an_existing_daemon_of_these_records_is_used_and_continues(tmp_path: Path) -> None:
    with daemon_process("--dir", str(tmp_path)) as (_, running):
        address = running.removeprefix("http://")
        with served(tmp_path, WARMWATCH_ADDRESS=address) as (process, url):
            assert url == running
            process.communicate("", timeout=600)
        assert ask(running, "/").status == 200


def test_a_port_in_use_is_replaced_by_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with served(tmp_path, WARMWATCH_ADDRESS=address) as (process, url):
            assert url != f"http://{address}"
            assert ask(url, "/").status == 200
            process.communicate("", timeout=600)


# The terminal's last line, in which ``run --watch`` has its answer


SENTENCE = "gpt2: warm, but Dynamo captured nothing (3 graph breaks): this is eager speed; 36 ms"


def _read_until(terminal: int, words: str) -> str:
    """What was written there; a terminal hands it on in pieces."""
    written = b""
    while words.encode() not in written:
        written += os.read(terminal, 65536)
    return written.decode()


@pytest.mark.parametrize("columns", [20, 60])
def test_a_sentence_longer_than_the_terminal_remains_on_its_line(columns: int) -> None:
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        line = LastLine(theirs)
        line.show("short")
        _read_until(ours, "short\x1b[0m\x1b8")
        line.show(SENTENCE)
        written = _read_until(ours, "\x1b8")
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\n" not in written
    assert SENTENCE[: columns - 2] in written
    assert SENTENCE[:columns] not in written


# The summary on exit of a command in which no training was seen


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


# The runs of one launch, separated from all others in the same directory


def test_ranks_of_an_earlier_start_of_the_same_name_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    for rank in (0, 1):
        earlier = warm(rank=rank, world_size=2, launch="parent:1", started_by="before")
        write_record(tmp_path, earlier, name=f"earlier{rank}")
    write_record(tmp_path, warm(launch="parent:2", started_by="this"), name="a")
    (run,) = Launched("this").snapshot().runs
    assert [rank.record.folder for rank in run.ranks] == [str(tmp_path / "a")]
    assert Launched("another").snapshot().runs == ()


def test_records_that_cannot_be_read_at_the_end_of_a_command_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "records"
    monkeypatch.setenv("WARMWATCH_DIR", str(directory))
    seen: list[Snapshot] = []

    class ReadableLater(Launched):
        def snapshot(self) -> Snapshot:
            if len(seen) == 3:
                directory.unlink()
                directory.mkdir()
                write_record(directory, ended(warm(started_by="this"), "finished"), name="a")
            seen.append(super().snapshot())
            return seen[-1]

    launched = ReadableLater("this")
    directory.write_text("no directory")
    (run,) = launched.ended().runs
    assert run.state == State.FINISHED
    assert not seen[0].runs
    assert "is not known yet: the records cannot be read" in nothing_seen(seen[0])
