"""Real compilations that do not end are reported with their stack."""

from __future__ import annotations

import os
import re
import signal
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from support import slots
from support.daemon import daemon, status_of
from support.filesystems import NotHereError, frozen, mounted
from support.records import wait_until
from support.trainings import Training, training
from warmwatch.shared.record import STACKS
from warmwatch.shared.record.stack_file import Stacks, unpack_stacks
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.status import exit_code
from warmwatch_monitor.output.summary import details_of

pytestmark = pytest.mark.long

QUICK = {"WARMWATCH_STACKS": "0.2"}
INDUCTOR = """
model = make(); o = torch.optim.AdamW(model.parameters())
c = torch.compile(model)
gate("begins")
train(c, o, 5)
"""


@pytest.fixture(autouse=True)
def _no_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmwatch_monitor.commands.py_spy.find", lambda: None)


def rank(url: str) -> Any:
    (one,) = status_of(url)["runs"][0]["ranks"]
    return one


def clause(url: str) -> str:
    """The text of ``long_compile``; empty without that condition."""
    holds = [one for one in rank(url)["conditions"] if one["condition"] == "long_compile"]
    return str(holds[0]["words"]) if holds else ""


def written(records: Path) -> list[Stacks]:
    file = slots.only(records) / STACKS
    # what follows the last end of a line is still being written
    return list(map(unpack_stacks, file.read_bytes().split(b"\n")[:-1])) if file.exists() else []


def stacks(*words: str) -> Result:
    return CliRunner().invoke(cli, ["stacks", *words])


def until_it_hangs(url: str, words: str) -> None:
    wait_until(lambda: clause(url).endswith(words))
    output = status_of(url)
    assert any(detail.endswith(words) for detail in details_of(output["runs"][0]))
    assert exit_code(output) == 4


def test_a_backend_that_never_returns_is_reported_as_hung_with_its_stack(
    records: Path,
) -> None:
    body = """
import os, threading
def tasks(): return len(os.listdir("/proc/self/task"))
def waits_for_ever(graph, inputs):
    gate("in the compiler")
    return graph.forward
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend=waits_for_ever)
train(model, o, 1); before = tasks()
train(c, o, 6)
gate("over")
while tasks() > before: pass
"""
    # who forks is at the bottom of a stack
    alone = training(records, body, env=QUICK, fresh=True)
    with alone as started, daemon(records, "--long-compile", "1") as u:
        started.reach("in the compiler")
        until_it_hangs(u, "now: it hangs")
        wait_until(lambda: len(written(records)) > 4)
        looks = written(records)
        (thread,) = (thread for thread in looks[-1].threads if thread.compiles)
        names = [(frame.name.rpartition(".")[2], frame.file) for frame in thread.frames]
        assert (thread.main, names[0]) == (True, ("gate", "gate.py"))
        assert ("waits_for_ever", "train.py") in names
        assert names[-1] == ("<module>", "train.py")
        ages = [(one.at_ns - one.since_ns) / 1e9 for one in looks]
        assert ages[0] >= 0.2
        assert all(later >= 2 * sooner for sooner, later in pairwise(ages))
        mode = (slots.only(records) / STACKS).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
        shown = stacks("--dir", str(records))
        assert shown.exit_code == 0
        assert "pip install py-spy" in shown.stderr
        assert f"train rank 0 (pid {started.pid})\n  compiling" in shown.stdout
        assert "waits_for_ever (train.py:" in shown.stdout
        assert "; the same as after " in shown.stdout
        started.go()
        started.reach("over")
        wait_until(lambda: rank(u)["state"] == "warm")
        assert (clause(u), exit_code(status_of(u))) == ("", 0)
        assert stacks("--dir", str(records)).exit_code == 1
        assert stacks("--dir", str(records), "--rank", "0").exit_code == 1
        started.go()
        assert started.wait() == 0, "the thread is there no longer than the compilation"


BUILDING = ("codecache.py", "cpp_builder.py")


def places(shown: str) -> set[str]:
    """The files that stacks go through."""
    return set(re.findall(r"\(([\w.]+):\d+\)", shown))


def compiler_of(started: Training) -> psutil.Process | None:
    for child in psutil.Process(started.pid).children(recursive=True):
        try:
            if child.name() == "cc1plus":
                child.suspend()
                return child
        except psutil.Error:
            continue
    return None


def test_a_stopped_compiler_is_named_until_it_continues(records: Path) -> None:
    with (
        training(records, INDUCTOR, env=QUICK) as started,
        daemon(records, "--long-compile", "0.5") as url,
    ):
        started.reach("begins")
        started.go()
        found: list[psutil.Process] = []
        wait_until(lambda: found or found.extend(filter(None, [compiler_of(started)])) or found)
        (compiler,) = found
        until_it_hangs(
            url, f"cc1plus (pid {compiler.pid}) is stopped: it hangs until it is let go on"
        )
        evidence = rank(url)["evidence"]
        assert any(f"cc1plus (pid {compiler.pid}) is stopped, " in one for one in evidence)
        # the first time it may have been written while the graph was still being made
        wait_until(lambda: set(BUILDING) & places(stacks("--dir", str(records)).stdout))
        shown = stacks("--dir", str(records))
        assert f"  cc1plus (pid {compiler.pid}): stopped, " in shown.stdout
        os.kill(compiler.pid, signal.SIGCONT)
        assert started.wait() == 0


def test_a_cache_on_an_unresponsive_disk_is_reported_as_hung(records: Path) -> None:
    try:
        with mounted("ext4") as disk:
            cache = {"TORCHINDUCTOR_CACHE_DIR": str(disk.place / "cache")}
            with (
                training(records, INDUCTOR, env={**QUICK, **cache}) as started,
                daemon(records, "--long-compile", "0.5") as url,
            ):
                started.reach("begins")
                with frozen(disk, disk.place):
                    started.go()
                    until_it_hangs(url, "now: it hangs")
                    wait_until(lambda: written(records))
                    assert "(main, compiles)" in stacks("--dir", str(records)).stdout
                assert started.wait() == 0
    except NotHereError as error:
        pytest.skip(str(error))
