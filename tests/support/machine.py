"""The machine that the commands of a documentation page find: runs, a daemon, and other programs.

``gpt2`` trains with four ranks, ``gpt2-eager`` has finished, and the history has two earlier runs.
Names of other hosts, users and directories that pages use stand for those of the test
(``translated``). A Prometheus runs only for a page that names one.
"""

from __future__ import annotations

import base64
import getpass
import os
import secrets
import shlex
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGINT

import psutil

from support import sessions, stored_runs
from support.daemon import daemon, daemon_process
from support.nvml import Standin, board
from support.prometheus import prometheus_process, query, scraping
from support.records import (
    ended,
    held,
    since_boot,
    wait_until,
    warm,
    write_record,
)
from support.terminal import Terminal, terminal
from support.values import replace
from support.web import HASH, PASSWORD, TOKEN, Authority, ask
from warmwatch.shared.record import PHASES, STACKS, Slot
from warmwatch.shared.record.stack_file import Frame, Stacks, ThreadStack, pack_stacks

RANKS = 4
# a training that compiles nothing, so that it takes no time
SCRIPT = """
import time
import warmwatch
warmwatch.attach()
for _ in range(6):
    time.sleep(0.01)
    warmwatch.step()
"""
# and one that compiles
COMPILED_SCRIPT = """
import torch
import warmwatch.auto
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model)
for _ in range(60):
    compiled(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# stand-ins for programs that are not installed here; a launcher starts one process
PROGRAMS = {
    "torchrun": f'exec "{sys.executable}" "$@"',
    "srun": 'while [[ $1 == -* ]]; do [ "$1" = -n ] && shift; shift; done; exec "$@"',
    "sinfo": "printf 'node2\\nnode1\\nnode1\\n'",
    "start-the-profiler": "true",
    "sqlite3": f'exec "{sys.executable}" -c "import sqlite3, sys; '
    "done = sqlite3.connect(sys.argv[1]); "
    "[print(*row, sep='|') for part in sys.argv[2].split(';') for row in done.execute(part)]; "
    'done.commit()" "$@"',
}
# commands that run until Ctrl-C -> the text that they show first
UNTIL_CTRL_C = {
    "warmwatch status --watch": "gpt2",
    "warmwatch serve": "http://",
    "warmwatch serve --otlp": "http://",
}


class Machine(sessions.Shell):
    """A shell on that machine."""

    def __init__(self, folder: Path, variables: Mapping[str, str], training: Training) -> None:
        super().__init__(folder, **variables)
        self._variables, self._training = variables, training

    def run(self, command: str) -> list[str]:
        """Run it and return its output; on a terminal if a key, a signal or the run ends it."""
        if command in UNTIL_CTRL_C:
            shown = UNTIL_CTRL_C[command]
            return self._on_a_terminal(command, shown, lambda t: t.process.send_signal(SIGINT))
        if command == "warmwatch top":
            return self._on_a_terminal(command, "gpt2", lambda t: t.type("q"))
        if command == "warmwatch wait gpt2 --until ended":
            output = self._on_a_terminal(command, "gpt2", lambda _: self._training.end())
            self._training.start()
            return output
        return super().run(command)

    def _on_a_terminal(
        self, command: str, shown: str, then: Callable[[Terminal], object]
    ) -> list[str]:
        _, *words = shlex.split(command)
        if words[0] == "serve":
            words += ["--address", "127.0.0.1:0"]  # the page's is the daemon's
        with terminal(*words, **self._variables) as program:
            program.read_until(shown)
            then(program)
            self.code = program.read_to_end()
        return program.written.splitlines()


@contextmanager
def machine(
    folder: Path, page: str, nvml: Standin, script: str = SCRIPT
) -> Iterator[tuple[Machine, str]]:
    """A shell in ``folder``, and the text of a page with the names of this machine.

    ``script`` is the text of each training.
    """
    records, state = folder / ".records", folder / ".local" / "state" / "warmwatch"
    state.mkdir(parents=True)
    _write_files(folder, script)
    _write_history(folder, state)
    with ExitStack() as stack:
        training = Training(records, page)
        stack.callback(training.end)
        pids = training.start()
        nvml.say(*(board(number, processes=str(pid)) for number, pid in enumerate(pids)))
        url = stack.enter_context(daemon(records, **nvml.environment))
        address = url.removeprefix("http://")
        places = {"127.0.0.1:10464": address, "localhost:10464": address, "NODE:PORT": address}
        variables = {
            "HOME": str(folder),
            "PATH": os.pathsep.join(map(str, (folder / "bin", BIN, os.environ["PATH"]))),
            "WARMWATCH_ADDRESS": address,
            "WARMWATCH_DIR": str(records),
            "WARMWATCH_STATE": str(state),
            "COLUMNS": "80",
            "NO_COLOR": "1",
        }
        if "https://node-1" in page:
            variables["SSL_CERT_FILE"] = str(folder / "ca.pem")
            protected = stack.enter_context(_protected_daemon(folder, records))
            places["https://node-1:10464"] = protected
        for scheme in ("http", "https"):
            if f"{scheme}://prometheus:9090" in page:
                web = folder / "prometheus-web.yml" if scheme == "https" else None
                server = stack.enter_context(
                    prometheus_process(folder, scraping(address), web_config=web)
                )
                if web is None:
                    wait_until(lambda server=server: query(server, "warmwatch_steps_total"))
                places[f"{scheme}://prometheus:9090"] = server
        places |= {"/tmp/warmwatch-JOBID": str(records), "/run/warmwatch": str(records)}
        places |= {"/srv": str(folder / "srv"), "/home/me": str(folder)}
        places |= {"@alice": f"@{getpass.getuser()}"}
        for name, real in places.items():
            page = page.replace(name, real)
        shell = Machine(folder, variables, training)
        try:
            yield shell, page
        finally:
            shell.close()


BIN = Path(sys.executable).parent


def _write_files(folder: Path, script: str) -> None:
    for name in ("train.py", "train_smoke.py", "base/train_smoke.py"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
    for name, body in PROGRAMS.items():
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
    (folder / "srv" / "targets").mkdir(parents=True)


def _write_history(folder: Path, state: Path) -> None:
    """The two runs that docs/reference/history.md shows."""
    began = time.time() - 86_400
    long = {"steps": 70_000, "step_seconds": {"first": 118.0, "typical": 0.036, "last": 0.036}}
    long |= {"warmup": {"first": {"ended_at": began + 118, "seconds": 118.0, "steps": 2}}}
    long |= {"compile": {"seconds": 113.0, "compilations": 2, "recompiles": 0}}
    short = {"steps": 1, "warmup": None, "step_seconds": {"first": 110.0, "typical": 0.041}}
    short |= {"compile": {"seconds": 110.0, "compilations": 2, "recompiles": 0}}
    runs = [
        stored_runs.run_summary(
            id,
            run="gpt2",
            owner=getpass.getuser(),
            began=began - before,
            ended=began - before + took,
            seen=began - before + took,
            state=how,
            ranks=(stored_runs.rank(answer=stored_runs.answer(**known)),),
        )
        for id, before, took, how, known in (
            ("mpxflzoo", 0.0, 2580.0, "finished", long),
            ("q4kd2lra", 3600.0, 121.0, "failed", short),
        )
    ]
    stored_runs.store(state).save(runs)
    shutil.copy(state / "history.db", folder)  # where the page's user has changed to


class Training:
    """The records of ``gpt2``, which lives until ``end``, and of ``gpt2-eager``, which ended."""

    def __init__(self, records: Path, page: str) -> None:
        self._records, self._hangs, self._stack = records, "cc1plus" in page, ExitStack()
        write_record(records, ended(warm("gpt2-eager"), "finished"), name="eager")

    def start(self) -> list[int]:
        """The pids of its ranks."""
        return [self._start(rank) for rank in range(RANKS)]

    def end(self) -> None:
        self._stack.close()

    def _start(self, rank: int) -> int:
        slot = warm(rank=rank, world_size=RANKS)
        events = [_COMPILATION | {"t": time.monotonic_ns()}, *_lookups(rank)]
        if not (self._hangs and rank == RANKS - 1):
            folder = write_record(self._records, slot, name=secrets.token_hex(4), events=events)
            return self._stack.enter_context(held(folder)).pid
        slot = _long_recompiling(slot)
        place = {name: _COMPILATION[name] for name in ("name", "file", "line")}
        events.append({"event": "begin", "t": slot.compile.active_since_ns, **place})
        folder = write_record(self._records, slot, name="hangs", events=events)
        _write_stacks(folder, slot)
        compiler = _compiler(self._records.parent)
        process = self._stack.enter_context(held(folder, child=compiler))
        wait_until(lambda: psutil.Process(process.pid).children())
        for child in psutil.Process(process.pid).children():
            child.suspend()
            self._stack.callback(child.kill)
        return process.pid


_COMPILATION = {
    "event": "compilation",
    "kind": "forward",
    "id": "0/0",
    "seconds": 62.0,
    "name": "forward",
    "file": "model.py",
    "line": 31,
}


def _compiler(folder: Path) -> tuple[str, str]:
    """A process with the name of a C++ compiler."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    return shutil.copy(sleep, folder / "cc1plus"), "600"


def _lookups(rank: int) -> Iterator[dict[str, object]]:
    """What Inductor's cache answered: a hit, another key, the same key in vain, and a bypass."""
    parts = ["gm abcdef", "device_index 0", "inductor_config[max_autotune] x"]
    if rank == 1:
        parts[1:] = ["device_index 1", "inductor_config[max_autotune] y"]
    packed = base64.b64encode(zlib.compress("\n".join(parts).encode())).decode()
    verdict = ("hit", "miss", "miss", "bypass")[rank]
    known = {"cache": "inductor_fx", "verdict": verdict, "id": "0/0"}
    known |= {"reason": "Unsupported post grad custom pass"} if verdict == "bypass" else {}
    key = {"key": "b" if rank == 1 else "a", "parts": 4730, "whole": True, "packed": packed}
    yield {"t": time.monotonic_ns(), "event": "cache", **known, **key}


def _long_recompiling(slot: Slot) -> Slot:
    """It has been compiling for longer than the five minutes that its first compilation allows."""
    since = since_boot(400)
    counts = replace(
        slot.compile,
        begun=2,
        active_since_ns=since,
        active_phase=1 + PHASES.index("kernel_compile"),
        accounted_ns=since,
        longest_activity_ns=62 * 10**9,
    )
    return replace(slot, compile=counts)


def _write_stacks(folder: Path, slot: Slot) -> None:
    since = slot.compile.active_since_ns
    frames = [("Popen.communicate", "subprocess.py", 1207), ("compile", "cpp_builder.py", 90)]
    found = tuple(Frame(*one) for one in (*frames, ("<module>", "train.py", 88)))
    thread = ThreadStack(frames=found, main=True, compiles=True)
    with (folder / STACKS).open("ab") as file:
        for seconds in (60, 200):
            at = {"at_ns": since + seconds * 10**9, "since_ns": since, "phase": "kernel_compile"}
            file.write(pack_stacks(Stacks(threads=(thread,), **at)))


@contextmanager
def _protected_daemon(folder: Path, records: Path) -> Iterator[str]:
    """The URL of a daemon with TLS and a token. Clients have ``ca.pem``, ``token`` and ``me``."""
    authority = Authority(folder)
    cert, key = authority.sign("server")
    (folder / "token").write_text(TOKEN)
    (folder / "me").write_text(f"me:{PASSWORD}")
    for path in (folder / "token", folder / "me"):
        path.chmod(0o600)
    tls = f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}\n"
    (folder / "prometheus-web.yml").write_text(f"{tls}basic_auth_users: {{me: {HASH}}}\n")
    options = (
        "--token-file",
        str(folder / "token"),
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
    )
    with daemon_process("--dir", str(records), *options) as (_, url):
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        trusted = authority.trusted()
        wait_until(lambda: ask(url, "/-/ready", tls=trusted, **bearer).status == 200)
        yield url
