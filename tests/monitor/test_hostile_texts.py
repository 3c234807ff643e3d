"""Hostile texts of a record (escape sequences, forged lines, markup) are never output raw."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from support import builders as b
from support import slots
from support.daemon import daemon_process
from support.documents import status
from support.records import ended, environment, held, wait_until, warm, write_record
from support.terminal import terminal
from support.trainings import run as train
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.record.sealed_blocks import store
from warmwatch_monitor.commands.cli import cli

# the title, the clipboard, a colour, C1, a line of its own, the other direction, rich's markup,
# a page's, a label's and a format's ends
HOSTILE = (
    "\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x07\x1b[31m\x9b2J\rforged\nforged: warm\u202e\u2028"
    '[/][bold]</script><img src=x>"}\\ 1\n# EOF'
)
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\ud800-\udfff]")
EVENTS = [
    {"t": 1, "event": "attach", "run": HOSTILE, "rank": 0, "k": 3, "epoch_ns": 1},
    {"t": 2, "event": "begin", "activity": 1, "what": HOSTILE, "steps": 0},
    {"t": 3, "event": "recompile", "reason": HOSTILE, "category": "shape", "name": HOSTILE},
    {
        "t": 4,
        "event": "compilation",
        "kind": "forward",
        "seconds": 1,
        "category": "shape",
        "reason": HOSTILE,
        "name": HOSTILE,
        "file": HOSTILE,
        "failure": HOSTILE,
        "id": HOSTILE,
    },
    {
        "t": 5,
        "event": "graph_break",
        "reason": HOSTILE,
        "count": 1,
        "name": "forward",
        "also": [{"name": HOSTILE, "file": HOSTILE, "caller": HOSTILE}] * 99,
    },
    {"t": 6, "event": "fallback", "name": HOSTILE, "steps": 1, "limit": 8},
    {"t": 6, "event": "cudagraph_skip", "reason": HOSTILE, "name": HOSTILE, "file": HOSTILE},
    {"t": 7, "event": "end", "activity": 1},
    {"t": 8, "event": "error", "where": HOSTILE, "message": HOSTILE},
    {"t": 9, "event": "exit", "how": "failed", "exception": HOSTILE},
]


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Iterator[Path]:
    """Two living runs and one that failed, all with such texts, and a file of such a name."""
    directory = tmp_path / "records"
    directory.mkdir()
    who = {"host": HOSTILE, "torch": HOSTILE, "launcher": HOSTILE, "missing": (HOSTILE,)}
    with ExitStack() as stack:
        for name, run in (("a", HOSTILE), ("b", f"{HOSTILE}2")):
            slot = _troubled(warm(run, **who))
            stack.enter_context(held(write_record(directory, slot, name=name, events=EVENTS)))
        failed = ended(warm("failed", **who), "failed")
        write_record(directory, failed, name="c", events=EVENTS)
        (directory / "\x1b]0;owned\x07[b]").touch()
        torn = write_record(directory, warm("torn"), name="\x1b[31mtorn")
        (torn / record.SLOT).write_bytes(b"nothing")
        yield directory


def _troubled(slot: record.Slot) -> record.Slot:
    return replace(
        slot, compile=replace(slot.compile, agent_errors=1, fallbacks=1, cudagraph_skips=1)
    )


def harmless(text: str) -> str:
    assert not STEERING.search(text), repr(text[:2000])
    # what is forged stands at the beginning of no line
    assert not re.search(r"^(forged|# EOF\n.)", text, re.MULTILINE)
    return text


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["status", "--json"],
        ["status", "-v"],
        ["status", "failed"],
        ["status", HOSTILE],
        ["wait", "--timeout", "0"],
        ["wait", "--until", "compiling", "--timeout", "0"],
        ["wait", "failed", "--until", "compiling", "--timeout", "0"],
        ["wait", HOSTILE, "--timeout", "0"],
        ["doctor"],
    ],
)
def test_no_command_writes_them_to_the_terminal(directory: Path, command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--dir", str(directory)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    harmless(result.stdout)
    assert "owned" in harmless(result.stderr) + result.stdout or "failed" in command


def test_a_redrawn_screen_holds_only_its_own_sequences(directory: Path) -> None:
    """On a terminal of its own: colours and the cursor are all that moves."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "warmwatch_monitor", "status", "--watch"]
    with subprocess.Popen(
        [*command, "--dir", str(directory)],
        stdout=follower,
        stderr=follower,
        env=environment(TERM="xterm"),
    ) as watching:
        os.close(follower)
        seen = bytearray()
        reader = threading.Thread(target=_drain, args=(leader, seen))
        reader.start()
        wait_until(lambda: seen.count(b"\x1b[1A") >= 2)
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
        reader.join(60)
    os.close(leader)
    text = re.sub(_OWN, "", seen.decode()).replace("\r\n", "\n")
    assert "owned" in harmless(text.replace("^C", ""))


@contextmanager
def forger() -> Iterator[str]:
    """The address of something that answers as a daemon would which escapes nothing."""
    slot = replace(b.WARM, identity=replace(b.WARM.identity, run=HOSTILE, host=HOSTILE))
    reason = replace(b.RECOMPILATION, reason=HOSTILE, name=HOSTILE, file=HOSTILE)
    view = b.view(slot, compilations=(reason,), gpus=(b.gpu(name=HOSTILE),))
    body = json.dumps(status(b.snapshot(view, gpus=(b.gpu(name=HOSTILE),)))).encode()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_screen_of_top_executes_no_sequence_of_a_text() -> None:
    """Whatever it draws: no title, no clipboard, no bell, no C1, no other direction."""
    with (
        forger() as address,
        terminal("top", "--interval", "0.2", "--address", address, size=(200, 50)) as shown,
    ):
        for key, words in (("2", "recompiled"), ("3", "of a function"), ("4", "memory")):
            shown.type(key)
            shown.read_until(words)
        shown.type("q")
        assert shown.read_to_end() == 0
    assert "owned" in shown.written
    written = re.sub(r"\x1b]22;[a-z]*(\x07|\x1b\\\\)", "", shown.written)  # Textual's mouse pointer
    for sign in ("\x1b]", "\x07", "\x9b", "\u202e", "\u2028"):
        assert sign not in written
    assert "Traceback" not in written


# colors, cursor up, line end, cursor hidden and shown, line start, line cleared
_OWN = r"\x1b\[((\d+(;\d+)*)?[mAK]|\?25[hl])|\r(?=\x1b\[2K)"


def _drain(leader: int, seen: bytearray) -> None:
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            return
        if not part:
            return
        seen += part


def test_no_answer_of_the_daemon_and_no_line_of_its_log_holds_them(directory: Path) -> None:
    requested = urllib.parse.quote(HOSTILE)
    paths = (
        *("/status", "/metrics", "/docs", "/", "/-/ready", "/openapi.json"),
        *(
            f"/status?run={requested}",
            f"/status?wait={requested}",
            f"/{requested}",
            f"/status?timeout={requested}",
        ),
    )
    with daemon_process("--dir", str(directory), "--interval", "0.05") as (process, url):
        wait_until(lambda: "owned" in _get(f"{url}/status"))
        for path in paths:
            harmless(_get(url + path))
        answer = json.loads(_get(f"{url}/status"))
        metrics = _get(f"{url}/metrics")
        harmless(answer["summary"])  # as `jq -r` prints it
        harmless(json.dumps(answer["runs"], ensure_ascii=False))
        process.terminate()
        _, log = process.communicate(timeout=60)
    harmless(log)
    assert len([line for line in metrics.splitlines() if line.startswith("warmwatch_warm{")]) == 3


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return str(reply.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def test_a_lone_surrogate_is_one_refusal_and_does_not_affect_the_others(tmp_path: Path) -> None:
    folder = write_record(tmp_path, warm("broken"), name="b")
    image = bytearray((folder / record.SLOT).read_bytes())
    for _ in range(2):  # it has two places
        store(image, record.IDENTITY_BLOCK, b'{"run":"\\ud800"}')
    (folder / record.SLOT).write_bytes(image)
    with held(write_record(tmp_path, warm("good"))):
        result = CliRunner().invoke(cli, ["status", "--dir", str(tmp_path)])
    assert (result.exit_code, result.stdout[:5]) == (0, "good:")
    assert "not Unicode text" in harmless(result.stderr)


def test_a_run_whose_name_starts_with_a_dot_is_shown(records: Path) -> None:
    body = "train(model := make(), torch.optim.SGD(model.parameters()), 1)\n"
    train(records, body, env={"WARMWATCH_RUN": ".hidden/run"})
    assert slots.read(slots.only(records)).identity.run == ".hidden/run"
    result = CliRunner().invoke(cli, ["status", "--dir", str(records)])
    assert result.stdout.startswith(".hidden/run: finished"), result.output
