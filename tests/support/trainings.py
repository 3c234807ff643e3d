"""Real trainings in real processes, which stop at gates until the test lets them continue.

A script calls ``gate("name")`` (from :mod:`support.gate`), which prints the name and waits for a
line on standard input. So a test never waits for a time, only for a training to reach a gate.

A training is forked from a Python that has imported PyTorch and its compiler
(:mod:`support.preloaded`). Pass ``plain=True`` where Dynamo must not have been imported. Pass
``fresh=True`` where the agent must load before PyTorch, or where the test depends on what the
kernel reports of the started program, or on how a process starts others. With ``FRESH_PYTHONS`` in
the environment of the tests, all are fresh.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import Any

from support.forked import Forked
from support.isolation import VARIABLES
from support.preloaded import COMPILER, OWN, OWN_OF_COMPILER, TORCH, Preloaded

ROOT = Path(__file__).resolve().parents[2]
# A copy at import: what a library or a test sets later must not reach a training.
_INITIAL = dict(os.environ)
GATE = "@gate "
RESULT = "@result "

# Small models, one thread: two at a time run on two cores.
PRELUDE = """
import torch
from support.gate import gate, result
torch.manual_seed(0)
torch.set_num_threads(1)

def make(width=8):
    return torch.nn.Sequential(
        torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )

def train(model, optimizer, steps, batch=4, width=8):
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(batch, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
"""

# Seconds for which the calling thread was runnable and had no core, as the kernel counts them. Two
# clock readings, one directly after the other, may differ by as much as this grows between them.
WAITED = """
def waited():
    with open("/proc/thread-self/schedstat") as account:
        return int(account.read().split()[1]) / 1e9
"""


class Training:
    """A running training."""

    def __init__(self, process: subprocess.Popen[str] | Forked, errors: Path) -> None:
        self.process, self._errors = process, errors
        self.output: list[str] = []

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        return self._errors.read_text()

    def reach(self, gate: str) -> None:
        """Wait until the training has reached ``gate``."""
        line = self._until(GATE)
        assert line == gate, f"at gate {line!r}, not {gate!r}"

    def go(self) -> None:
        """Let it continue from its gate."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> Any:
        """The value that the script passed to ``result(...)``, from its JSON."""
        return json.loads(self._until(RESULT))

    def wait(self) -> int:
        """Let it run to its end; returns its exit code."""
        assert self.process.stdin
        assert self.process.stdout
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.output.extend(self.process.stdout)
        return self.process.wait()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def _until(self, prefix: str) -> str:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(prefix):
                return line.removeprefix(prefix).rstrip("\n")
            self.output.append(line)
        raise AssertionError(f"it ended before {prefix!r}:\n{''.join(self.output)}{self.stderr}")


def environment(records: Path, **more: str) -> dict[str, str]:
    """An environment for a training that writes its record to ``records``."""
    clean = {k: v for k, v in _INITIAL.items() if not k.startswith("WARMWATCH_")}
    paths = (ROOT / "tests", *filter(None, [_INITIAL.get("PYTHONPATH")]))
    return {
        **clean,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        **VARIABLES,
        "WARMWATCH_DIR": str(records),
        "OMP_NUM_THREADS": "1",
        # else each empty cache begins with trial compilations for instructions that the CPU has:
        # two thirds of what the C++ compiler does for one small model
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "CXX": _compiler(),
        # caches of one test never serve another: what is compiled must not depend on the order
        "TORCHINDUCTOR_CACHE_DIR": str(records.parent / "inductor"),
        "TRITON_CACHE_DIR": str(records.parent / "triton"),
        **more,
    }


@cache
def _compiler() -> str:
    """``gxx.py`` with this Python: a lookup by name takes longer than the rest."""
    command = shlex.join([sys.executable, "-IS", str(Path(__file__).with_name("gxx.py"))])
    path = ROOT / ".cache" / "compiler" / "g++"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"g++.{os.getpid()}.{get_ident()}")
    temporary.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    temporary.chmod(0o755)
    temporary.replace(path)  # atomic, for concurrent users, also in other threads
    return str(path)


@cache
def _preloaded(modules: tuple[str, ...], own: tuple[str, ...]) -> Preloaded:
    """The connection of this process to a Python that has imported ``modules``."""
    common = environment(Path())
    base = {name: value for name, value in common.items() if not name.startswith(own)}
    return Preloaded(base, modules, own)


def _fork(env: Mapping[str, str], *, plain: bool) -> Preloaded | None:
    """The preloaded Python that can fork a training with this environment; ``None``: none can."""
    if "FRESH_PYTHONS" in os.environ:
        return None
    kinds = ((TORCH, OWN),) if plain else ((COMPILER, OWN_OF_COMPILER), (TORCH, OWN))
    return next((one for kind in kinds if (one := _preloaded(*kind)).fits(env)), None)


def started(
    script: Path,
    cwd: Path,
    env: Mapping[str, str],
    errors: Path,
    *,
    launcher: Sequence[str] = (),
    fresh: bool = False,
    plain: bool = False,
    finalizes: bool = False,
) -> subprocess.Popen[str] | Forked:
    """Start ``script`` in a new process, which writes its errors to the file ``errors``."""
    with errors.open("w") as stderr:
        if not fresh and (preloaded := _fork(env, plain=plain)):
            return preloaded.start(script, cwd, env, stderr.fileno(), finalizes=finalizes)
        return subprocess.Popen(
            [sys.executable, *launcher, str(script)],
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )


@contextmanager
def training(
    records: Path,
    body: str,
    *,
    name: str = "train",
    attach: bool = True,
    env: Mapping[str, str] | None = None,
    launcher: tuple[str, ...] = (),
    fresh: bool = False,
    plain: bool = False,
) -> Iterator[Training]:
    """Run ``body`` after the prelude, by default with the agent attached."""
    script = records.parent / f"{name}.py"
    script.write_text(("import warmwatch.auto\n" if attach else "") + PRELUDE + body)
    errors = records.parent / f"{name}.stderr"
    variables = environment(records, **(env or {}))
    fresh = fresh or bool(launcher)
    how = {"fresh": fresh, "plain": plain}
    process = started(script, records.parent, variables, errors, launcher=launcher, **how)
    try:
        yield Training(process, errors)
    finally:
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()
        process.wait()


def run(records: Path, body: str, **options: Any) -> Training:
    """Run ``body`` to its end; it must exit with 0."""
    with training(records, body, **options) as started:
        code = started.wait()
        assert code == 0, f"exit code {code}:\n{''.join(started.output)}{started.stderr}"
    return started


def result_of(records: Path, body: str, **options: Any) -> Any:
    """The value that ``body`` passes to ``result(...)``; it must exit with 0."""
    with training(records, body, **options) as started:
        value = started.result()
        assert started.wait() == 0, started.stderr
    return value
