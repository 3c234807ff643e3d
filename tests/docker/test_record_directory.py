"""Trainings of several users and a monitor of another one over one record directory.

What the deployments rest on: who may own the directory, which modes do, what an umask hides. Each
program becomes its user after it has imported what it needs, since the interpreter may lie in a
folder that only root can enter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployment import DOCKER
from support.records import environment

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

MONITOR = 10464
TRAINING = """
import importlib, os, pkgutil, sys, warmwatch
for module in pkgutil.walk_packages(warmwatch.__path__, "warmwatch."):
    if module.name.startswith("warmwatch.frameworks"):
        continue  # what they import is not here
    if module.name != "warmwatch.auto":
        importlib.import_module(module.name)
uid, umask = int(sys.argv[1]), int(sys.argv[2], 8)
warmwatch.shared.places._MEMORY = "/nonexistent"  # a machine without, as some containers are
os.umask(umask); os.setgroups([]); os.setgid(uid); os.setuid(uid)
warmwatch.attach()
warmwatch.step()
"""
READER = """
import json, os, sys
from warmwatch_monitor.sources.records import followed_record  # loaded with the first record
from warmwatch_monitor.sources.records.source import RecordsSource
uid = int(sys.argv[1])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
reading = RecordsSource([sys.argv[2]], retention=900).read()
seen = [record.owner.plain(record.slot.identity.run) for record in reading.records]
print(json.dumps([sorted(seen), [refusal.reason for refusal in reading.refusals]]))
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """As every deployment makes it: of root, open to all, its group the monitor's and passed on."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        made = Path(place, "warmwatch")
        made.mkdir()
        os.chown(made, 0, MONITOR)
        made.chmod(0o3777)
        yield made


def run(program: str, *arguments: object, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment(PYTHONPATH=os.pathsep.join(sys.path), **variables),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def train(
    directory: Path, uid: int, umask: str = "022", *, named: bool = True, **variables: str
) -> str:
    """What a training of that user has to say; its run is called like its uid.

    Where the directory is not ``named``, it is one of those that are looked for by default.
    """
    place = {"WARMWATCH_DIR": str(directory) if named else ""}
    default = {"XDG_RUNTIME_DIR": str(directory.parent), "TMPDIR": "/nonexistent"}
    return run(TRAINING, uid, umask, WARMWATCH_RUN=str(uid), **default, **place, **variables)


def read(directory: Path, uid: int = MONITOR) -> tuple[list[str], list[str]]:
    """The runs that a monitor of that user sees, and its refusals."""
    seen, refused = json.loads(run(READER, uid, directory))
    return seen, refused


def test_a_monitor_reads_the_records_of_every_user(directory: Path) -> None:
    """Whatever their umasks, and no other user does."""
    for uid, umask in ((0, "022"), (1000, "077"), (1001, "027"), (MONITOR, "022")):
        assert train(directory, uid, umask) == ""
    assert read(directory) == (sorted(["0", "1000", "1001", str(MONITOR)]), [])
    assert {path.stat().st_uid for path in directory.iterdir()} == {0, 1000, 1001, MONITOR}


def test_a_record_shows_its_owner(directory: Path) -> None:
    train(directory, 1000)
    train(directory, 1001)
    seen, (refused,) = read(directory, 1000)
    assert seen == ["1000"]
    assert "permission denied" in refused


@pytest.mark.parametrize(
    ("who", "folder", "slot", "journal"),
    [
        (None, 0o700, 0o400, 0o600),
        ("owner", 0o700, 0o400, 0o600),
        ("group", 0o750, 0o440, 0o640),
        ("all", 0o755, 0o444, 0o644),
    ],
)
def test_a_setting_decides_who_may_read_unless_the_directory_does(
    directory: Path, who: str | None, folder: int, slot: int, journal: int
) -> None:
    """Whatever the umask. The slot is read-only, so an accident does not truncate it."""
    directory.chmod(0o1777)
    train(directory, 1000, "077", **({"WARMWATCH_READERS": who} if who else {}))
    (made,) = directory.iterdir()
    modes = [made, *(made / name for name in ("slot", "events.jsonl", "exit"))]
    expected = [folder, slot, journal, journal]
    assert [path.stat().st_mode & 0o7777 for path in modes] == expected
    assert read(directory)[0] == (["1000"] if who == "all" else [])


def test_the_training_reports_a_directory_that_is_not_open(directory: Path) -> None:
    directory.chmod(0o755)
    assert "the record cannot be written" in train(directory, 1000)
    assert read(directory) == ([], [])


@pytest.mark.skipif(Path("/run/warmwatch").exists(), reason="this machine has one of its own")
def test_a_directory_of_another_user_is_trusted_only_if_it_is_named(
    directory: Path,
) -> None:
    assert train(directory, 1000, named=False) == ""  # of root
    os.chown(directory, MONITOR, MONITOR)
    assert "the record cannot be written" in train(directory, 1001, named=False)
    assert train(directory, 1002) == ""
    assert read(directory) == (["1000", "1002"], [])


def test_the_monitor_reports_a_training_hidden_by_a_directory_without_a_group(
    directory: Path,
) -> None:
    directory.chmod(0o1777)
    train(directory, 1000)
    train(directory, 1001, WARMWATCH_READERS="all")
    seen, (refused,) = read(directory)
    assert seen == ["1001"]
    assert "permission denied" in refused


def test_the_acl_of_the_service_shows_every_training_to_the_monitor_and_to_no_other_user(
    directory: Path,
) -> None:
    lines = (DOCKER / "systemd" / "warmwatch.tmpfiles.conf").read_text()
    config = directory.parent / "warmwatch.conf"
    here = lines.replace("user:warmwatch:", f"user:{MONITOR}:")
    config.write_text(here.replace("/run/warmwatch", str(directory)))
    subprocess.run(["systemd-tmpfiles", "--create", config], check=True)
    for uid, umask in ((1000, "077"), (1001, "027"), (1002, "022")):
        train(directory, uid, umask)
    assert read(directory) == (["1000", "1001", "1002"], [])
    seen, refused = read(directory, 1000)
    assert (seen, len(refused)) == (["1000"], 2)
