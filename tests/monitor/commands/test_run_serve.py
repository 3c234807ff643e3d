"""``warmwatch run --serve``: a daemon for as long as the command runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from support.daemon import daemon_process, free_address
from support.records import environment, wait_until, warm, write_record
from support.web import Authority, ask

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
