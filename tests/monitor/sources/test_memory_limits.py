"""Limits of memory, from the kernel's files of cgroups and of real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from warmwatch_monitor.sources import cgroups, proc
from warmwatch_monitor.sources.cgroups import (
    Group,
    Use,
    full_first,
    least_room,
    memory_group,
    of_workers,
    thaw,
)
from warmwatch_monitor.sources.host import OomWatch

MACHINE = psutil.virtual_memory().total
LIMIT = 10**6  # far below what any machine has in use


def group(root: Path, *, first: bool, **limits: tuple[str, int, int]) -> Group:
    """Nested groups, each with its limit, its use, and how much of that is pages of files."""
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if first
        else ("memory.max", "memory.current", "inactive_file")
    )
    folder = root
    for name, (limit, used, files) in limits.items():
        folder = folder / name
        folder.mkdir(parents=True)
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {files}\nactive_file 7\n")
    return Group(str(folder), str(root), first=first)


@pytest.mark.parametrize(("first", "unlimited"), [(False, "max"), (True, "9223372036854771712")])
def test_the_group_with_the_least_free_memory_decides(
    tmp_path: Path, first: bool, unlimited: str
) -> None:
    """A parent's limit holds for its children; pages of files that can be dropped are free."""
    outer, inner = (str(LIMIT), LIMIT - 1000, 3000), (unlimited, 10, 0)
    known = least_room(group(tmp_path, first=first, outer=outer, inner=inner))
    assert known == Use(LIMIT - 4000, LIMIT, cgroup=True)


@pytest.mark.parametrize(("first", "unlimited"), [(False, "max"), (True, "9223372036854771712")])
def test_the_memory_left_is_that_of_the_group_that_is_full_first(
    tmp_path: Path, first: bool, unlimited: str
) -> None:
    free = (unlimited, 10, 0)
    inner = group(tmp_path / "a", first=first, pod=("90000", 30000, 10000), box=("50000", 30000, 0))
    assert full_first(inner) == Use(30_000, 50_000, cgroup=True)
    outer = group(tmp_path / "b", first=first, pod=("50000", 30000, 10000), box=free)
    assert full_first(outer) == Use(20_000, 50_000, cgroup=True)
    assert full_first(group(tmp_path / "c", first=first, box=free)) is None
    assert full_first(None) is None


def test_without_a_limit_the_machine_s_memory_counts(tmp_path: Path) -> None:
    for one in (None, group(tmp_path, first=False, job=("max", MACHINE, 0))):
        known = least_room(one)
        assert known is not None
        assert (known.limit, known.cgroup) == (MACHINE, False)
        assert 0 < known.used < MACHINE


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("0::/job/step\n", "job/step"),
        ("3:cpu,memory:/job\n2:pids:/x\n", "memory/job"),
        ("2:pids:/x\n", None),
        ("0::/../job\n", None),  # of another container
    ],
)
def test_the_group_of_a_process_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, path: str | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(lines)
    groups = str(tmp_path / "groups")
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    monkeypatch.setattr(cgroups, "MOUNT", groups)
    found = memory_group(7)
    assert (found.folder if found else None) == (f"{groups}/{path}" if path else None)
    assert memory_group(8) is None


HOLDER = "import sys; held = bytearray(b'x' * 50_000_000); print('held', flush=True); input()"


def test_workers_are_counted_only_if_memory_is_tight(tmp_path: Path) -> None:
    """Real processes of 50 MB each, with a limit from fake control-group files."""
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for one in holders:
            assert one.stdout
            assert one.stdout.readline() == b"held\n"
        pids = [one.pid for one in holders]
        tight = group(tmp_path / "a", first=False, job=(str(LIMIT), round(0.95 * LIMIT), 0))
        known = of_workers(2, [*pids, 2**22 + 1], tight)
        assert known is not None
        assert (known.workers, known.limit_bytes, known.cgroup) == (2, LIMIT, True)
        assert 2 * 50e6 < known.workers_bytes < 2 * 75e6
        assert of_workers(0, [], tight) is None
    finally:
        for one in holders:
            one.communicate(b"\n")


# Out of memory is reported if the cgroup shows it, and for no other process


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


# Processes whose cgroup is frozen, by the files of version 1 and 2


V2 = ("cgroup.events", "populated 1\nfrozen {}\n", "cgroup.freeze")
V1 = ("freezer.state", "{}\n", "freezer.self_freezing")


@pytest.mark.parametrize(
    ("mount", "line", "files", "words", "thawing"),
    [
        ("", "0::", V2, ("0", "1"), "0 > {}/cgroup.freeze"),
        ("/unified", "0::", V2, ("0", "1"), "0 > {}/cgroup.freeze"),
        ("/freezer", "6:freezer:", V1, ("THAWED", "FROZEN"), "THAWED > {}/freezer.state"),
    ],
    ids=["v2", "both", "v1"],
)
def test_the_group_that_is_frozen_is_named_not_one_below_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mount: str,
    line: str,
    files: tuple[str, str, str],
    words: tuple[str, str],
    thawing: str,
) -> None:
    shown, text, own = files
    monkeypatch.setattr(proc, "PROC", str(tmp_path))
    monkeypatch.setattr(cgroups, "MOUNT", f"{tmp_path}/cgroup")
    pod = Path(f"{tmp_path}/cgroup{mount}/pod")
    (pod / "container").mkdir(parents=True)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"9:cpu:/other\n{line}/pod/container\n")

    def freezes(container: int, around: int) -> str | None:
        for group, frozen, itself in (
            (pod / "container", container or around, container),
            (pod, around, around),
        ):
            (group / shown).write_text(text.format(words[frozen]))
            (group / own).write_text(f"{itself}\n")
        return thaw(7)

    assert freezes(0, 0) is None
    assert freezes(0, 1) == thawing.format(pod)
    assert freezes(1, 0) == thawing.format(pod / "container")
    assert thaw(8) is None
