"""Trainings without the agent are found among real processes, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from support import builders as b
from support.documents import status
from support.records import wait_until
from warmwatch.shared.record import SLOT
from warmwatch_monitor.base.errors import NO_RECENT_RUN
from warmwatch_monitor.model.machine import ObservedTraining, Signs
from warmwatch_monitor.sources import unattached as source
from warmwatch_monitor.sources.script import attaches_nothing, run_name
from warmwatch_monitor.sources.unattached import ObservedSource, is_starting, shown, without_record
from warmwatch_monitor.status.words.sentence import unattached_evidence

# A training that holds a pool as torch's: a process of that name, and its forked children.
TRAINING = """
import subprocess, sys
program = sys.argv[1] + "/compile_worker/__main__.py"
pool = subprocess.Popen([sys.executable, program, "--kind=fork"], stdin=subprocess.PIPE)
print("trains", flush=True)
sys.stdin.read()
"""
POOL = """
import os, sys, time
for busy in (True, False):
    if not os.fork():
        while busy: pass
        time.sleep(1000)
sys.stdin.read()
os.killpg(0, 9)
"""

# A process that has loaded a library of this name, holds the other arguments open, and has a child.
LOADS = """
import mmap, os, sys
library, *opened = map(open, sys.argv[1:])
mapped = mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ)
os.fork()
print("loaded", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A program and all that it starts, until the block ends."""
    with subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[int]:
    """A process with a pool of two compile workers, of which one is busy."""
    folder = tmp_path / "torch" / "_inductor" / "compile_worker"
    folder.mkdir(parents=True)
    (folder / "__main__.py").write_text(POOL)
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    with running(str(script), str(folder.parent), "--token=secret") as process:
        wait_until(lambda: len(psutil.Process(process.pid).children(recursive=True)) == 3)
        yield process.pid


def of(found: tuple[ObservedTraining, ...], pid: int) -> ObservedTraining | None:
    return next((one for one in found if one.pid == pid), None)


def test_a_process_with_busy_compile_workers_is_likely_compiling(training: int) -> None:
    """Judged by the workers' CPU time, and only if several polls agree."""
    looked = ObservedSource(shares_pids=False)
    first = of(looked.read([], ()), training)
    assert first is not None
    assert first.likely_compiling is None, "one look is none"

    last: list[ObservedTraining | None] = [first]

    def shown() -> bool:
        last[0] = found = of(looked.read([], ()), training)
        # between two polls the worker may have had no core
        return found is not None and bool(found.likely_compiling and found.signs.workers_busy)

    wait_until(shown)
    (seen,) = last
    assert seen is not None
    assert seen.likely_compiling is True
    assert (seen.signs.workers_busy, seen.signs.workers_idle) == (1, 1)
    assert seen.command.endswith("train.py"), "no argument behind the script is shown"
    assert "1 of 2 compile workers busy" in unattached_evidence(seen)


def test_a_process_with_an_agent_is_not_unattached(training: int) -> None:
    assert of(ObservedSource(shares_pids=False).read([training], ()), training) is None


def test_a_python_process_that_nvml_lists_is_found_if_pids_are_the_host_s(tmp_path: Path) -> None:
    script = tmp_path / "infer.py"
    script.write_text("import sys; print('here', flush=True); sys.stdin.read()")
    with running(str(script)) as process:
        gpu = b.gpu(utilization_ratio=0.98, power_watts=686.0, processes=(process.pid, 1))
        seen = of(ObservedSource(shares_pids=True).read([], (gpu,)), process.pid)
        assert seen is not None
        assert seen.gpus == (gpu.uuid,)
        assert unattached_evidence(seen)[0] == "its GPU at 98 %, 686 W"
        elsewhere = ObservedSource(shares_pids=False).read([], (gpu,))
        assert of(elsewhere, process.pid) is None, "another namespace's pid is another process"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("/usr/bin/python3", "-u", "/home/me/train.py", "--key=s3cr3t"), "python3 train.py"),
        (("python", "-m", "torchtitan.train", "--key", "s3cr3t"), "python -m torchtitan.train"),
        (("python", "-c", "key = 's3cr3t'"), "python"),
        (("python", "-uc", "key = 'a/s3cr3t'"), "python"),
        (("python", "-", "s3cr3t"), "python"),
        (("python", "-X", "dev", "-Werror", "train.py"), "python train.py"),
        ((), ""),
    ],
)
def test_an_argument_that_may_be_secret_is_not_shown(command: tuple[str, ...], text: str) -> None:
    assert shown(command) == text


SEEN = ObservedTraining(
    pid=4711,
    command="python train.py",
    gpus=("GPU-1",),
    signs=Signs(cpu_ratio=0.2, workers_busy=3, workers_idle=13, gpu_ratio=0.0, watts=118.0),
    polls=3,
    likely_compiling=True,
)
WORDS = ["its GPU at 0 %, 118 W", "3 of 16 compile workers busy", "the process uses 20 % of a core"]


def test_an_unattached_process_is_listed_apart_and_never_reported_as_certain() -> None:
    reported = status(b.snapshot(observed=(SEEN,)))
    assert reported["runs"] == []
    assert (reported["compiling"], reported["warm"]) == (None, None)
    assert reported["observed"] == [
        {
            "pid": 4711,
            "command": "python train.py",
            "gpus": ["GPU-1"],
            "workers": {"busy": 3, "idle": 13},
            "cpu_ratio": 0.2,
            "likely_compiling": True,
            "evidence": WORDS,
        }
    ]
    assert reported["summary"] == (
        f"{NO_RECENT_RUN}, but python train.py (pid 4711) looks like a training; "
        "it has no agent and is likely to compile"
    )
    assert reported["details"] == [*WORDS, 'add "import warmwatch.auto" to its script to know']
    two = status(b.snapshot(observed=(SEEN, replace(SEEN, pid=4712))))["summary"]
    assert "python train.py (pid 4711) and 1 more look like trainings" in two


def test_a_process_that_loaded_torch_and_has_no_record_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its worker, and no process with the slot of a record open."""
    # another name: this process may have loaded PyTorch itself, for another test
    monkeypatch.setattr(source, "_TORCH", "libtorch_of_this_test")
    library, slot, script = (
        tmp_path / one for one in ("libtorch_of_this_test.so", SLOT, "train.py")
    )
    library.write_bytes(b"x")
    slot.write_bytes(b"x")
    script.write_text(LOADS)
    before = time.time() - 1
    assert not is_starting("train", before)
    with running(str(script), str(library), str(slot)):
        assert not is_starting("train", before), "neither it nor its worker: it has a record"
    with (
        running(str(script), str(library)) as one,
        running(str(script), str(library), str(slot)) as recorded,
    ):
        pids = {one.pid, recorded.pid}
        pids |= {each.pid for pid in pids for each in psutil.Process(pid).children()}
        assert len(pids) == 4
        assert is_starting("train", before)
        assert not is_starting("train", time.time() + 1), "it began before the end of the run"
        assert not is_starting("other", before)
        found = [(pid, command) for pid, command in without_record() if pid in pids]
    assert [pid for pid, _ in found] == [one.pid]
    assert found[0][1].endswith(" train.py")
    with (
        running(str(script), str(library)) as older,
        running("-c", LOADS, str(library)) as prompt,
        running(str(script), str(library)) as newest,
    ):
        pids = {older.pid, prompt.pid, newest.pid}
        found = [(pid, command) for pid, command in without_record() if pid in pids]
    assert [pid for pid, _ in found] == [newest.pid, older.pid, prompt.pid]
    assert found[-1][1].endswith(f" in {Path.cwd().name}"), "and nothing of its code"


@pytest.mark.parametrize(
    ("command", "environ", "name"),
    [
        ("python -u -X dev train.py --data x", "", "train"),
        ("python /home/me/gpt2.py", "WARMWATCH_RUN=nano", "nano"),
        ("python train.py", "SLURM_JOB_ID=7\0SLURM_JOB_NAME=gpt2", "gpt2-7"),
        ("python -m nanogpt.train", "", "train"),
        ("python -m nanogpt", "", "nanogpt"),
        ("python -c pass", "", "HERE"),
        ("python", "", "HERE"),
    ],
)
def test_a_process_is_named_as_the_agent_will_name_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, environ: str, name: str
) -> None:
    (tmp_path / "HERE").mkdir()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cwd").symlink_to(tmp_path / "HERE")
    (tmp_path / "1" / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (tmp_path / "1" / "environ").write_text(environ)
    monkeypatch.setattr(source.proc, "PROC", str(tmp_path))
    assert run_name(1) == name


@pytest.mark.parametrize(
    ("imports", "nothing"),
    [
        ("import torch, warmwatch\n# import warmwatch.auto\nwarmwatch.step()", True),
        ("from warmwatch import step", True),
        ("import torch", False),
        ("import warmwatch\nimport warmwatch.auto", False),
        ("from warmwatch import auto", False),
        ("import warmwatch as w\nw.attach(run='a')", False),
        ("from warmwatch import attach, step", False),
        ("import warmwatch\nfrom warmwatch.frameworks.lightning import Callback", False),
        ("import warmwatch\n__import__('warmwatch.auto')", False),
        ("import warmwatch\nprint 1", False),
    ],
)
def test_a_script_that_imports_warmwatch_alone_attaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imports: str, nothing: bool
) -> None:
    """By its code, not its comments; the script is found in the process's own directory."""
    (tmp_path / "train.py").write_text(imports)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cwd").symlink_to(tmp_path)
    (tmp_path / "1" / "cmdline").write_text("python\0-u\0-X\0dev\0train.py\0--data=x.py\0")
    (tmp_path / "1" / "environ").write_text("HOME=/home/me\0")
    monkeypatch.setattr(source.proc, "PROC", str(tmp_path))
    assert attaches_nothing(1) is nothing
    (tmp_path / "1" / "environ").write_text("PYTHONPATH=/x/warmwatch/_boot\0")
    assert not attaches_nothing(1), "`warmwatch run` attaches"
