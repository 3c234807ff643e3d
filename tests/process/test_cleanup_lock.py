"""The cleanup lock against the real systemd-tmpfiles: it removes no record of a running process."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from support import slots
from support.deployment import DOCKER
from support.stepping import stepping
from warmwatch.shared import record

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-tmpfiles") is None or os.geteuid() != 0,
    reason="needs systemd-tmpfiles, as root",
)


def clean(config: Path) -> None:
    """What the system's timer runs once a day."""
    subprocess.run(["systemd-tmpfiles", "--clean", config], check=True)


def age(*paths: Path) -> None:
    """As if nothing had touched them for a month."""
    then = time.time() - 30 * 86_400
    for path in paths:
        os.utime(path, (then, then))


# Without "m:" and the like the time of the last change of the inode counts too, which nobody sets.
def by_mtime_and_atime(directory: Path, config: Path) -> Path:
    config.write_text(f"d {directory} - - - amAM:10d\n")
    return config


@pytest.mark.parametrize("on_a_disk", [False, True])
def test_systemd_tmpfiles_removes_no_record_of_a_running_process(
    memory: Path, tmp_path: Path, on_a_disk: bool
) -> None:
    """And it does remove what is no living one's: the cleaner works."""
    records = tmp_path / "records" if on_a_disk else memory
    dead = records / "dead"
    dead.mkdir(parents=True)
    (dead / record.SLOT).write_bytes(b"x")
    with stepping(records, tmp_path / "errors") as training:
        files = sorted(training.folder.iterdir())
        assert {file.name for file in files} == {record.SLOT, record.JOURNAL, record.EXIT}
        age(dead / record.SLOT, dead, *files, training.folder)
        clean(by_mtime_and_atime(records, tmp_path / "age.conf"))
        assert not dead.exists()
        assert sorted(training.folder.iterdir()) == files
        training.step(10)
        if not on_a_disk:  # there the steps come with the next copy
            assert slots.read(training.folder).steps.steps == training.steps


def test_systemd_tmpfiles_removes_ended_records(memory: Path, tmp_path: Path) -> None:
    with stepping(memory, tmp_path / "errors") as training:
        training.leave()
        assert training.process.wait() == 0
    age(*training.folder.iterdir(), training.folder)
    clean(by_mtime_and_atime(memory, tmp_path / "age.conf"))
    assert not training.folder.exists()


def test_the_shipped_configuration_sets_no_age(memory: Path, tmp_path: Path) -> None:
    lines = (DOCKER / "systemd" / "warmwatch.tmpfiles.conf").read_text()
    config = tmp_path / "warmwatch.conf"
    config.write_text(
        lines.replace("/run/warmwatch", str(memory)).replace("user:warmwatch:", "user:10464:")
    )
    with stepping(memory, tmp_path / "errors") as training:
        files = sorted(training.folder.iterdir())
        age(*files, training.folder)
        clean(config)
        assert sorted(training.folder.iterdir()) == files
