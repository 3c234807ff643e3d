"""Records outside of the shared directory, where an agent that could not use it created them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.filesystems import mounted
from support.records import held, warm, write_record
from support.users import ALICE
from warmwatch.shared import places
from warmwatch_monitor.sources.records import directory
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource


@pytest.fixture(name="shared")
def _shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared directory, and a user's own one with a record."""
    monkeypatch.setattr(places, "SHARED", str(tmp_path / "shared"))
    monkeypatch.setattr(places, "_MEMORY", str(tmp_path))
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def of_alice(shared: Path) -> Path:
    folder = write_record(shared.parent / f"warmwatch-{ALICE}", warm("hidden"))
    for one in (folder.parent, folder, *folder.iterdir()):
        os.chown(one, ALICE, ALICE)
    return folder


def read(*directories: Path, everybody: bool = True) -> RecordsReading:
    return RecordsSource([*map(str, directories)], retention=900, everybody=everybody).read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
class TestAnotherUsersPlace:
    """Of a user who has a process."""

    @pytest.fixture(autouse=True)
    def processes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(directory, "_users_with_processes", lambda: [0, ALICE])

    def test_root_and_the_service_read_it(self, shared: Path) -> None:
        with held(of_alice(shared)):
            (found,) = read(shared).records
        assert (found.slot.identity.run, found.alive) == (f"hidden@{ALICE}", True)

    def test_it_is_not_read_beside_another_directory(self, shared: Path, tmp_path: Path) -> None:
        of_alice(shared)
        (tmp_path / "chosen").mkdir()
        assert read(tmp_path / "chosen").records == ()

    def test_one_that_may_not_be_read_is_refused(
        self, shared: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        of_alice(shared)
        monkeypatch.setattr(os, "access", lambda *_: False)
        found = read(shared)
        assert found.records == ()
        (refusal,) = found.refusals
        assert refusal.path == str(shared.parent / f"warmwatch-{ALICE}")
        reader = f"which user {os.geteuid()} may not read"  # not the user who asks the daemon
        assert refusal.reason.startswith(f"user {ALICE} may have records in it, {reader}")
        assert found.problem is None, "no user can make the whole source fail"

    def test_its_owner_can_remove_it_without_a_failure(self, shared: Path) -> None:
        folder = of_alice(shared)
        source = RecordsSource([str(shared)], retention=900, everybody=True)
        with held(folder):
            assert len(source.read().records) == 1
            folder.parent.rename(shared.parent / "away")
            found = source.read()
        assert (found.records, found.problem) == ((), None)

    def test_a_place_that_is_not_its_users_is_left_alone(self, shared: Path) -> None:
        folder = of_alice(shared)
        os.chown(folder.parent, 0, 0)
        found = read(shared)
        assert (found.records, found.refusals) == ((), ())


def test_free_room_is_that_of_each_directory(shared: Path) -> None:
    (room,) = read(shared, everybody=False).rooms
    there = os.statvfs(shared)
    assert room.directory == str(shared)
    assert room.free_bytes is not None
    assert abs(room.free_bytes - there.f_bavail * there.f_frsize) < 1 << 30
    assert room.free_inodes is None or room.free_inodes > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_read_only_file_system_has_no_room_but_a_read_only_mount_of_it_has(
    tmp_path: Path,
) -> None:
    """A monitor in a container mounts the directory so, and trainings write to it."""
    bound = tmp_path / os.fsdecode(b"bound \xff")  # any bytes: mountinfo is no UTF-8
    bound.mkdir()
    with mounted("tmpfs") as disk:
        subprocess.run(["mount", "--bind", disk.place, bound], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", bound], check=True)
            (room,) = read(bound, everybody=False).rooms
            assert room.free_bytes
            assert room.free_inodes
            subprocess.run(["mount", "-o", "remount,ro", disk.place], check=True)
            (room,) = read(bound, everybody=False).rooms
            assert (room.free_bytes, room.free_inodes) == (0, 0)
        finally:
            subprocess.run(["umount", "--lazy", bound], check=False)
