"""Out of memory is reported if the cgroup shows it, and for no other process."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmwatch_monitor.sources import cgroups, proc
from warmwatch_monitor.sources.host import OomWatch

PID = 4711


class Kernel:
    """A ``/proc`` and a cgroup tree with a test's content."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.place(PID, "0::/job.slice/job7")
        self.count(0)

    def place(self, pid: int, text: str) -> None:
        (self.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text(f"1:name=systemd:/x\n{text}\n")

    @property
    def events(self) -> Path:
        return self.cgroups / "job.slice" / "job7" / "memory.events"

    def count(self, killed: int) -> None:
        self.events.parent.mkdir(parents=True, exist_ok=True)
        self.events.write_text(f"low 0\nhigh 5\nmax 9\noom {killed}\noom_kill {killed}\n")

    def watch(self) -> OomWatch:
        return OomWatch()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(tmp_path)
    monkeypatch.setattr(proc, "PROC", str(made.proc))
    monkeypatch.setattr(cgroups, "MOUNT", str(made.cgroups))
    return made


def test_a_process_that_ended_while_the_count_grew_was_killed_by_the_oom_killer(
    kernel: Kernel,
) -> None:
    kernel.count(3)
    watch = kernel.watch()
    assert watch.follow([PID]) == {}
    kernel.count(4)
    assert watch.follow([]) == {PID: True}
    assert watch.follow([]) == {PID: True}, "it stays known"
    assert watch.follow([PID]) == {}, "another process has its number now"


def test_a_process_that_survived_an_earlier_kill_is_not_attributed_to_it(kernel: Kernel) -> None:
    watch = kernel.watch()
    watch.follow([PID])
    kernel.count(1)
    for _ in range(3):
        watch.follow([PID])
    assert watch.follow([]) == {PID: False}


@pytest.mark.parametrize("trouble", ["no group", "version 1", "gone with it", "foreign"])
def test_without_a_count_the_cause_is_unknown(kernel: Kernel, trouble: str) -> None:
    if trouble == "no group":
        (kernel.proc / str(PID) / "cgroup").unlink()
    if trouble == "version 1":
        kernel.place(PID, "4:memory:/job7")
    watch = kernel.watch()
    watch.follow([PID])
    if trouble == "gone with it":
        kernel.events.unlink()
    if trouble == "foreign":
        kernel.events.write_text("oom_kill many\n")
    assert watch.follow([]) == {}
