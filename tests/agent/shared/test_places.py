"""The directory of a record: one rule for both the agent and ``doctor``."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.records import environment
from warmwatch.process.settings import Settings
from warmwatch.recorder.worker_entry import folder_of_parent
from warmwatch.recorder.writer import OwnRecord
from warmwatch.shared import places

NOBODY = 65534
AGENT = """
import os, sys
import warmwatch.lifecycle.agent, warmwatch.shared.places
import warmwatch.shared.record, warmwatch.recorder.writer
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.path[:] = []
from warmwatch.recorder.writer import Writer
warmwatch.shared.places._MEMORY = "/nonexistent"  # a machine without, as some containers are
writer = Writer()
header = warmwatch.shared.record.Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1)
places = warmwatch.shared.places.directories(os.environ, 65534)
try:
    writer.open(places, header, warmwatch.shared.record.Identity(run="t"), named=True)
    print(writer.folder.parent)
except OSError as error:
    print("none")
"""
DOCTOR = """
import os, sys
from warmwatch_monitor.commands.doctor.checks import surroundings
from warmwatch_monitor.base.settings import load
import warmwatch_monitor.commands.doctor.checks as checks
from warmwatch_monitor.base.errors import NoDaemonError
def nobody(address, access=None):
    raise NoDaemonError("nobody answers")
checks.query_daemon = nobody
import warmwatch.shared.places
warmwatch.shared.places._MEMORY = "/nonexistent"
os.setgroups([]); os.setgid(65534); os.setuid(65534)
settings = load(os.environ, 65534, {})
for finding in surroundings(settings):
    print(finding.what)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others may enter."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def as_nobody(program: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**{"WARMWATCH_DIR": "", **variables}),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def private(place: Path) -> dict[str, str]:
    runtime = place / "runtime"
    runtime.mkdir(mode=0o700)
    return {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(open_to_all(place / "tmp"))}


def open_to_all(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o1777)
    return path


def missing_parents(place: Path) -> dict[str, str]:
    return {"WARMWATCH_DIR": str(open_to_all(place / "tmp") / "no" / "such")}


def missing_temporary(place: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(place / "none"), "TMPDIR": str(place / "no" / "such")}


def not_writable(place: Path) -> dict[str, str]:
    return {"WARMWATCH_DIR": str(place / "no")}


def below_a_file(place: Path) -> dict[str, str]:
    (place / "file").touch()
    return {"WARMWATCH_DIR": str(place / "file" / "below")}


def of_another(place: Path) -> dict[str, str]:
    tmp = open_to_all(place / "tmp")
    (tmp / f"warmwatch-{NOBODY}").mkdir()
    os.chown(tmp / f"warmwatch-{NOBODY}", 12345, 12345)
    return {"XDG_RUNTIME_DIR": str(place / "none"), "TMPDIR": str(tmp)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("arrange", "made"),
    [
        (private, "tmp/warmwatch-65534"),
        (missing_parents, "tmp/no/such"),
        (missing_temporary, None),
        (not_writable, None),
        (below_a_file, None),
        (of_another, None),
    ],
)
def test_doctor_and_the_agent_agree_on_every_directory(
    place: Path, arrange: object, made: str | None
) -> None:
    """The user's runtime directory may be another user's, as after ``su``: no traceback either."""
    variables = arrange(place)  # type: ignore[operator]
    if made is None and Path("/run/warmwatch").exists() and "TMPDIR" in variables:
        pytest.skip("this machine has the shared directory")
    output = as_nobody(DOCTOR, **variables)
    done = as_nobody(AGENT, **variables).strip()
    if made is None:
        assert done == "none"
        assert "trainings of this user cannot write records anywhere" in output
    else:
        assert done == str(place / made)
        assert f"trainings of this user write their records to {place / made}" in output


def test_only_the_administrator_creates_the_shared_directory() -> None:
    class Empty:
        def stat(self, path: str) -> os.stat_result:
            raise FileNotFoundError(path)

        lstat = stat

        def access(self, _path: str, _mode: int, /) -> bool:
            raise AssertionError

        def geteuid(self) -> int:
            return 0

        def statvfs(self, _path: str, /) -> os.statvfs_result:
            raise AssertionError

    assert places.obstacle(places.SHARED, Empty(), chosen=False) == "it does not exist"
    nowhere = places.obstacle(places.SHARED, Empty(), chosen=True)
    assert nowhere == "it does not exist, nor does /"


@pytest.mark.parametrize(
    ("blocks", "left", "scarce"),
    [
        (16384, 64 << 20, False),  # what a container has by default
        (16384, 15 << 20, True),
        (0, 0, False),  # a tmpfs without a limit
    ],
)
def test_scarce_memory_is_left_to_data_workers(
    monkeypatch: pytest.MonkeyPatch, blocks: int, left: int, scarce: bool
) -> None:
    room = SimpleNamespace(f_blocks=blocks, f_bavail=left >> 12, f_frsize=1 << 12)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    problem = places.obstacle("/dev/shm/warmwatch-0", os, chosen=False)
    assert ("are left in /dev/shm" in (problem or "")) == scarce


def test_a_relative_directory_stays_where_the_training_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts change the working directory, Hydra's for example; spawned children start there."""
    monkeypatch.setenv("WARMWATCH_DIR", "records")
    monkeypatch.setattr(multiprocessing.process, "ORIGINAL_DIR", str(tmp_path))
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path / "outputs")
    own = OwnRecord(Settings(), version="0", options={"run": "t"}, attached=(1, 1))
    own.open((), ())
    own.close()
    (made,) = (tmp_path / "records").iterdir()
    monkeypatch.setattr(
        multiprocessing, "parent_process", lambda: SimpleNamespace(pid=os.getpid(), name="")
    )
    assert folder_of_parent() == made
