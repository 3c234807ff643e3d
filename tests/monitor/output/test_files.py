"""Files that a command writes for the user."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.records import environment
from support.users import ALICE
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.files import write_whole

_WRITE = """
import sys
from pathlib import Path
from warmwatch_monitor.output.files import write_whole
from warmwatch_monitor.errors import UsageError
try:
    write_whole(Path(sys.argv[1]), "new" * 1000)
except UsageError as error:
    sys.exit(str(error))
"""
_MOUNTED = """
set -e
mount --bind "$1" "$2"
exec "$3" -c "$4" "$2"
"""
_PROTECTED = """
import os, sys
from pathlib import Path
from warmwatch_monitor.output.files import write_whole
from warmwatch_monitor.errors import UsageError
import warmwatch_monitor.output.console
place = Path(sys.argv[1])
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
place.write_text("old")
place.chmod(0o444)
try:
    write_whole(place, "new")
except UsageError as error:
    print(error)
"""
_MOUNTING = ("unshare", "--user", "--map-root-user", "--mount")


def _can_mount() -> bool:
    return shutil.which("unshare") is not None and not subprocess.call(
        [*_MOUNTING, "true"], stderr=subprocess.DEVNULL
    )


@pytest.mark.parametrize("link", [False, True])
def test_a_file_is_unchanged_if_the_new_text_does_not_fit_on_the_disk(
    tmp_path: Path, link: bool
) -> None:
    held = tmp_path / "held.toml"
    held.write_text("old")
    place = tmp_path / "link.toml" if link else held
    if link:
        place.symlink_to(held)
    done = subprocess.run(
        [sys.executable, "-c", _WRITE, str(place)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert (done.returncode, done.stderr) == (1, f"{place}: it cannot be written: File too large\n")
    assert held.read_text() == "old"
    assert {*tmp_path.iterdir()} == {held, place}


def test_a_file_is_replaced_with_its_mode_and_through_a_link(tmp_path: Path) -> None:
    held, link = tmp_path / "held.toml", tmp_path / "link.toml"
    held.write_text("a long old text")
    held.chmod(0o640)
    link.symlink_to("held.toml")
    write_whole(link, "new")
    assert (held.read_text(), stat.S_IMODE(held.stat().st_mode)) == ("new", 0o640)
    assert link.is_symlink()
    write_whole(tmp_path / "first.toml", "first")
    assert (tmp_path / "first.toml").read_text() == "first"
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for another user")
def test_a_replaced_file_retains_its_owner(tmp_path: Path) -> None:
    """Such as that of a checkout in which a container's root writes."""
    held = tmp_path / "held.toml"
    held.write_text("old")
    os.chown(held, ALICE, ALICE)
    write_whole(held, "new")
    assert (held.read_text(), held.stat().st_uid, held.stat().st_gid) == ("new", ALICE, ALICE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become who may not write")
def test_a_write_protected_file_is_not_replaced() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        held = Path(place, "held.toml")
        done = subprocess.run(
            [sys.executable, "-c", _PROTECTED.format(uid=ALICE), str(held)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == f"{held}: it cannot be written: Permission denied\n", done.stderr
        assert held.read_text() == "old"


@pytest.mark.skipif(not _can_mount(), reason="nothing may be mounted here")
def test_a_file_that_is_a_mount_point_is_written_in_place(tmp_path: Path) -> None:
    """As a container is given one: no other can take its place."""
    outside, inside = tmp_path / "outside.toml", tmp_path / "inside.toml"
    outside.write_text("a long old text" * 1000)
    inside.touch()
    words = (*_MOUNTING, "sh", "-c", _MOUNTED, "sh", str(outside), str(inside))
    done = subprocess.run(
        [*words, sys.executable, _WRITE],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert outside.read_text() == "new" * 1000
    assert {*tmp_path.iterdir()} == {outside, inside}


def test_a_dangling_link_is_written_through_or_refused(tmp_path: Path) -> None:
    ahead, round_ = tmp_path / "ahead.toml", tmp_path / "round.toml"
    ahead.symlink_to("made.toml")
    write_whole(ahead, "new")
    assert (tmp_path / "made.toml").read_text() == "new"
    round_.symlink_to("round.toml")
    with pytest.raises(UsageError, match="Too many levels of symbolic links"):
        write_whole(round_, "new")
    assert ahead.is_symlink()
    assert round_.is_symlink()


def test_a_file_name_of_the_maximum_length_is_written(tmp_path: Path) -> None:
    place = tmp_path / ("n" * 255)
    write_whole(place, "new")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["new"]
