"""``warmwatch status``: the sentence, the table and the exit code, with a daemon or without one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from support import builders
from support.daemon import daemon, daemon_process, free_address
from support.records import (
    compiling,
    ended,
    environment,
    held,
    live_slot,
    update,
    wait_until,
    warm,
    write_record,
)
from support.terminal import COMMAND, terminal
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.record import Slot
from warmwatch_monitor.base.errors import NO_RECENT_RUN
from warmwatch_monitor.client import answers
from warmwatch_monitor.client import daemon as asking
from warmwatch_monitor.commands import status as watching
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.status import _not_yet as not_yet


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon listens at the default address, and no other address is set."""
    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    monkeypatch.delenv("WARMWATCH_DIR", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["status", *arguments])


# made when the test runs: a rank that steps counts as stalled after a minute without one, and
# one that has ended leaves after a quarter of an hour
LIVING: dict[str, tuple[Callable[[], Slot], int]] = {
    "starting": (live_slot, 3),
    "compiling": (compiling, 3),
    "warm": (warm, 0),
}


@pytest.mark.parametrize("state", LIVING)
def test_the_exit_code_shows_the_state_of_a_live_run(tmp_path: Path, state: str) -> None:
    make, code = LIVING[state]
    with held(write_record(tmp_path, make())):
        result = run("--dir", str(tmp_path))
    assert result.exit_code == code
    assert state in result.stdout


@pytest.mark.parametrize(
    ("make", "state", "code"),
    [
        (lambda: ended(warm(), "finished"), "finished", 0),
        (lambda: ended(warm(), "failed"), "failed", 4),
        (warm, "lost", 4),
    ],
)
def test_the_exit_code_shows_how_a_run_ended(
    tmp_path: Path, make: Callable[[], Slot], state: str, code: int
) -> None:
    write_record(tmp_path, make())
    result = run("--dir", str(tmp_path))
    assert (result.exit_code, state in result.stdout) == (code, True)


def test_with_several_runs_the_code_is_that_of_the_least_advanced_one(tmp_path: Path) -> None:
    one = write_record(tmp_path, warm("a"), name="a")
    two = write_record(tmp_path, compiling("b"), name="b")
    with held(one), held(two):
        assert run("--dir", str(tmp_path)).exit_code == 3
        assert run("a", "--dir", str(tmp_path)).exit_code == 0


def test_a_code_of_4_by_some_of_several_runs_names_them(tmp_path: Path) -> None:
    write_record(tmp_path, ended(warm("good"), "finished"), name="good")
    write_record(tmp_path, ended(warm("bad"), "failed"), name="bad")
    whole, good, bad = (run(*name, "--dir", str(tmp_path)) for name in ([], ["good"], ["bad"]))
    assert (whole.exit_code, good.exit_code, bad.exit_code) == (4, 0, 4)
    assert whole.stderr == (
        "exit code 4: bad failed; for the code of one run: warmwatch status bad\n"
    )
    assert (good.stderr, bad.stderr) == ("", "")
    with held(write_record(tmp_path, warm("living"), name="living")):
        alive = run("--dir", str(tmp_path))
    assert (alive.exit_code, alive.stderr) == (0, "")


MS = 10**6


def stepping(*lengths: int, ago: float = 0.0) -> Slot:
    """A warm slot whose clean steps took so many nanoseconds, the last of them some seconds ago."""
    slot = warm()
    last = slot.steps.last_step_ns - round(ago * 1e9)
    return replace(
        slot,
        steps=replace(slot.steps, steps=len(lengths), last_step_ns=last),
        clean_bins=builders.bins(*lengths),
        recent=builders.ring(*lengths),
    )


def looked_at(tmp_path: Path, slot: Slot) -> tuple[int, str, dict[str, Any]]:
    with held(write_record(tmp_path, slot)):
        shown = run("--dir", str(tmp_path))
        answer = json.loads(run("--json", "--dir", str(tmp_path)).stdout)
    return shown.exit_code, " ".join(shown.stdout.split()), answer["runs"][0]["ranks"][0]


@pytest.mark.usefixtures("nobody")
def test_without_a_daemon_the_first_poll_detects_a_stall(tmp_path: Path) -> None:
    code, shown, rank = looked_at(tmp_path, stepping(*[24 * MS] * 90, ago=20))
    words = {one["condition"]: one["words"] for one in rank["conditions"]}
    assert shown.startswith(f"gpt2: {words['silent']}")
    assert rank["last_step_age_seconds"] >= 20
    assert code == 0


def test_without_records_it_exits_5(tmp_path: Path) -> None:
    assert run("--dir", str(tmp_path)).exit_code == 5


def test_misses_of_an_unknown_run_are_not_reported_as_none(tmp_path: Path) -> None:
    """No miss of a run that there is not would read as a cache that works."""
    nothing = run("--misses", "--dir", str(tmp_path))
    assert (nothing.exit_code, nothing.stdout) == (5, "")
    assert NO_RECENT_RUN in nothing.stderr
    write_record(tmp_path, warm("gpt2"))
    known = run("--misses", "gpt2", "--dir", str(tmp_path))
    nothing_missed = "no compile cache missed or was bypassed, as far as recorded\n"
    assert (known.exit_code, known.stdout) == (0, nothing_missed)
    unknown = run("--misses", "gpt3", "--dir", str(tmp_path))
    assert (unknown.exit_code, unknown.stdout) == (5, "")
    assert "no run named 'gpt3' (did you mean gpt2?); runs here: gpt2" in unknown.stderr


def test_misses_of_a_hostile_journal_cannot_forge_a_line(tmp_path: Path) -> None:
    line = {"t": 5, "event": "cache", "cache": "inductor_fx", "verdict": "bypass"}
    forged = {"id": "0/0\nforged: warm", "reason": "no\nforged: warm"}
    folder = write_record(tmp_path, warm("gpt2"))
    journal = json.dumps({**line, **forged}, separators=(",", ":"))
    (folder / record.JOURNAL).write_text(f"{journal}\n")
    shown = run("--misses", "--dir", str(tmp_path)).stdout
    assert "forged: warm" in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("other", ["--json", "--watch", "--ranks", "--functions"])
def test_misses_with_another_view_are_refused(tmp_path: Path, other: str) -> None:
    refused = run("--misses", other, "--dir", str(tmp_path))
    assert (refused.exit_code, "--misses prints its own lines" in refused.stderr) == (2, True)


def test_an_unknown_run_exits_5_and_lists_the_known_ones(tmp_path: Path) -> None:
    write_record(tmp_path, warm("gpt2"))
    result = run("gpt3", "--dir", str(tmp_path))
    assert result.exit_code == 5
    assert result.stderr == "warmwatch: no run named 'gpt3' (did you mean gpt2?); runs here: gpt2\n"


def test_an_unknown_run_may_be_one_of_the_records_that_were_refused(tmp_path: Path) -> None:
    """Of another version, or another user's; the one with its name is shown."""
    for name in ("bert-r0-1-a", "gpt2-r0-2-b"):
        path = write_record(tmp_path, warm(), name=name) / record.SLOT
        slot = bytearray(path.read_bytes())
        slot[8:12] = (9).to_bytes(4, "little")
        path.chmod(0o600)
        path.write_bytes(slot)
    for command in ("status", "stacks"):
        result = CliRunner().invoke(cli, [command, "gpt2", "--dir", str(tmp_path)])
        assert result.exit_code == 5
        assert result.stderr.startswith(
            f"warmwatch: no run named 'gpt2'; {NO_RECENT_RUN}; "
            f"2 records could not be read: {tmp_path}/gpt2-r0-2-b: record of version 9"
        ), result.stderr


def test_a_failed_run_whose_script_was_started_again_is_reported_as_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMWATCH_OBSERVE", "on")
    starts = [True]
    monkeypatch.setattr("warmwatch_monitor.sources.unattached.is_starting", lambda *_: starts[0])
    write_record(tmp_path, ended(warm(), "failed"))
    words = "; a process of this script has started and has no record yet"
    result = run("gpt2", "--dir", str(tmp_path))
    assert (words in result.stdout.splitlines()[0], result.exit_code) == (True, 3)
    starts[0] = False
    result = run("gpt2", "--dir", str(tmp_path))
    assert (words in result.stdout, result.exit_code) == (False, 4)


@pytest.mark.parametrize("known", [None, "host"])
def test_a_limit_that_needs_gpu_readings_is_pointed_to_once(known: str | None) -> None:
    rank = {"gpus": ["GPU-1"], "limited_by": known, "state": "warm"}
    answer = {"runs": [{"state": "warm", "ranks": [rank, rank]}]}
    hints = [*not_yet(answer, read_here=True)]
    assert [("warmwatch serve" in one) for one in hints] == ([] if known else [True])
    assert not [*not_yet(answer, read_here=False)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--address", "nonsense"], "--address: 'nonsense' is not HOST:PORT"),
        (["--address", "host:99999"], "is not HOST:PORT"),
        (["--frobnicate"], "No such option"),
        (["--dir", __file__], "is a file; use a directory"),
    ],
)
def test_wrong_usage_exits_2_with_advice(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_json_is_the_contract_s_answer(tmp_path: Path) -> None:
    with held(write_record(tmp_path, warm())):
        result = run("--json", "--dir", str(tmp_path))
    answer = json.loads(result.stdout)
    assert (answer["schema_version"], answer["warm"]) == (1, True)
    assert answer["directories"] == [str(tmp_path)]


@pytest.mark.usefixtures("nobody")
def test_without_a_daemon_it_reads_the_records_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    with held(write_record(tmp_path, warm())):
        assert run().exit_code == 0


def test_a_default_daemon_that_watches_another_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.delenv("WARMWATCH_ADDRESS", raising=False)
    monkeypatch.setenv("WARMWATCH_DIR", str(here))
    one, two = write_record(here, warm("a")), write_record(there, compiling("b"))
    path = str(tmp_path / "socket")
    monkeypatch.setenv("WARMWATCH_SOCKET", path)
    with held(one), held(two), daemon(there, WARMWATCH_SOCKET=path) as url:
        address = url.removeprefix("http://")
        assert run().exit_code == 0
        assert run("--dir", str(there)).exit_code == 3
        assert run("--address", address, "--dir", str(here)).exit_code == 0
        assert run("--address", address).stdout.startswith("b: compiling"), "it was named"


@pytest.mark.parametrize("named", ["option", "variable"])
@pytest.mark.parametrize("command", [["status"], ["wait", "--timeout", "60"]])
def test_an_explicit_address_that_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], named: str
) -> None:
    """Whatever this machine's records hold. With ``--dir`` the records are read."""
    address = free_address()
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("WARMWATCH_ADDRESS", address if named == "variable" else free_address())
    requested = ["--address", address] if named == "option" else []
    with held(write_record(tmp_path, warm())):
        refused = CliRunner().invoke(cli, [*command, *requested])
        assert (refused.exit_code, refused.stdout) == (6, "")
        assert refused.stderr == (
            f"warmwatch: no daemon answers at {address} (connection refused); start one with: "
            "warmwatch serve, or give --dir to read the records\n"
        )
        assert (
            CliRunner().invoke(cli, [*command, *requested, "--dir", str(tmp_path)]).exit_code == 0
        )


def test_watch_shows_each_change_and_exits_with_the_last_state(tmp_path: Path) -> None:
    folder = write_record(tmp_path, compiling())
    command = [sys.executable, "-m", "warmwatch_monitor", "status", "--watch"]
    with (
        held(folder),
        subprocess.Popen(
            [*command, "--dir", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as watching,
    ):
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("gpt2: compiling")
        update(folder, warm())
        while "gpt2: warm" not in (line := watching.stdout.readline()):
            assert line, "it ended before it saw the run warm"
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=60)
    assert (watching.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--watch", "0.1"], 3),
        (["--watch", "gpt2"], 3),
        (["gpt2", "--watch"], 3),
        (["gpt2", "--watch", "1"], 3),
    ],
)
def test_the_interval_of_watch_is_optional_at_every_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=stop, time=time.time))
    with held(write_record(tmp_path, compiling())):
        result = run(*words, "--dir", str(tmp_path))
    assert (result.exit_code, result.stderr) == (code, "")
    assert result.stdout.startswith("gpt2: compiling")


@pytest.mark.parametrize("words", [["--watch", "0"], ["--watch", "5x"], ["gpt2", "--watch", "x"]])
def test_an_invalid_interval_of_watch_is_refused(words: list[str]) -> None:
    refused = run(*words)
    assert refused.exit_code == 2
    assert "is not a number of seconds from 0.1 to 3600" in refused.stderr
    assert ("to watch a run of that name: status 5x --watch" in refused.stderr) is ("5x" in words)


def test_a_daemon_that_stops_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last answer stands, with what is wrong; the exit code is that answer's."""
    looks = iter(range(3))

    def sleep(_seconds: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt
        gone.terminate()
        gone.wait()

    with (
        held(write_record(tmp_path, warm())),
        daemon_process("--dir", str(tmp_path), "--interval", "0.05") as (gone, url),
    ):
        address = url.removeprefix("http://")
        wait_until(lambda: run("--address", address).exit_code == 0)
        monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=sleep, time=time.time))
        result = run("--watch", "--address", address)
    assert (result.exit_code, result.stdout.splitlines()[0][:10]) == (0, "gpt2: warm")
    assert result.stderr.startswith(f"no daemon answers at {address}")
    assert result.stderr.endswith("retrying\n")
    assert result.stderr.count("\n") == 1


OK = b"HTTP/1.0 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not answer as warmwatch does"),
        (b"", "does not answer as warmwatch does"),
        (b"\xff\x00\n" * 9, "does not answer as warmwatch does"),
        (OK + b"<html>hello</html>", "does not answer as warmwatch does"),
        (OK + b"[" * 200_000, "does not answer as warmwatch does"),
        (OK + b'{"runs": 1, "schema_version": 1}', "does not answer as warmwatch does"),
        (OK + b'{"runs": [], "schema_version": 2}', "of another release than this command"),
        (OK + b'{"runs": ["gpt2"], "schema_version": 1}', "not a daemon of this release (Expected"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "does not answer as warmwatch"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz", "does not answer as"),
        (b"HTTP/1.0 503 Busy\r\n\r\n", "answers with HTTP 503"),
    ],
)
def test_another_server_at_the_address_is_an_error_with_a_message(reply: bytes, words: str) -> None:
    with listener(lambda peer: peer.sendall(reply)) as address:
        result = run("--address", address)
    assert (result.exit_code, result.stdout) == (6, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("drops", [b"", b"HTTP/1.1 200 OK\r\nX", OK])
def test_an_endless_answer_times_out(monkeypatch: pytest.MonkeyPatch, drops: bytes) -> None:
    """It is silent, or it drips: each byte in time, and no end."""
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.5)
    ended = threading.Event()

    def drip(peer: socket.socket) -> None:
        peer.sendall(drops)
        while not ended.wait(0.05):
            if drops:
                peer.sendall(b"x")

    with listener(drip) as address:
        result = run("--address", address)
        ended.set()
    assert result.exit_code == 6
    assert "has not answered within 0.5 s" in result.stderr


def test_a_daemon_that_hangs_is_replaced_by_the_records_after_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nobody: None
) -> None:
    """One that was stopped still accepts connections: the kernel does."""
    monkeypatch.setattr(answers, "HUNG_SECONDS", 0.2)
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path / "records"))
    monkeypatch.setenv("WARMWATCH_SOCKET", str(tmp_path / "socket"))
    with socket.socket(socket.AF_UNIX) as hung, held(write_record(tmp_path / "records", warm())):
        hung.bind(str(tmp_path / "socket"))
        hung.listen()
        result = run()
    assert result.exit_code == 0, result.output
    expected = "the daemon has not answered within 0.2 s; the records are read here"
    assert result.stderr == f"warmwatch: {expected}\n"
    assert "warm" in result.stdout


def test_an_oversized_answer_is_not_read_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LONGEST_ANSWER", 1000)
    padded = OK + b'{"runs": [], "schema_version": 1}' + b" " * 2000
    with listener(lambda peer: peer.sendall(padded)) as address:
        result = run("--address", address)
    assert "does not answer as warmwatch does" in result.stderr


@contextmanager
def listener(say: Callable[[socket.socket], object]) -> Iterator[str]:
    """Something that takes one connection, reads the request, and does what it does."""

    def serve(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer, suppress(OSError):
            peer.recv(65536)
            say(peer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


# Colours, and what is drawn again on a terminal: ``status`` and ``status --watch``


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
