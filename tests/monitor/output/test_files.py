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
from support.users import ALICE, MALLORY
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.output.safe_writing import write

_WRITE = """
import sys
from pathlib import Path
from warmwatch_monitor.output.safe_writing import write
from warmwatch_monitor.base.errors import UsageError
try:
    write(Path(sys.argv[1]), "new" * 1000)
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
from warmwatch_monitor.output.safe_writing import write
from warmwatch_monitor.base.errors import UsageError
import warmwatch_monitor.output.console
place = Path(sys.argv[1])
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
place.write_text("old")
place.chmod(0o444)
try:
    write(place, "new")
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
        env=environment(PYTHONDONTWRITEBYTECODE="1"),  # the limit would cut it off
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
    write(link, "new")
    assert (held.read_text(), stat.S_IMODE(held.stat().st_mode)) == ("new", 0o640)
    assert link.is_symlink()
    write(tmp_path / "first.toml", "first")
    assert (tmp_path / "first.toml").read_text() == "first"
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for another user")
def test_a_replaced_file_retains_its_owner(tmp_path: Path) -> None:
    """Such as that of a checkout in which a container's root writes."""
    held = tmp_path / "held.toml"
    held.write_text("old")
    os.chown(held, ALICE, ALICE)
    write(held, "new")
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
    write(ahead, "new")
    assert (tmp_path / "made.toml").read_text() == "new"
    round_.symlink_to("round.toml")
    with pytest.raises(UsageError, match="Too many levels of symbolic links"):
        write(round_, "new")
    assert ahead.is_symlink()
    assert round_.is_symlink()


_PLANTED = """
import os, sys
from pathlib import Path
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
folder, secret, pids = Path(sys.argv[1]), sys.argv[2], range(*map(int, sys.argv[3:]))
(folder / "out.json").write_text("bait")
(folder / "out.json").chmod(0o666)
for pid in pids:  # every name that could be guessed
    (folder / f".warmwatch-{{pid}}").symlink_to(secret)
(folder / "link.json").symlink_to(secret)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that others want")
def test_no_link_of_another_user_leads_to_a_file_of_roots() -> None:
    """In a directory of that user: links at guessable names, and at the name of the output."""
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        top.chmod(0o755)
        folder, secret = top / "theirs", top / "secret"
        folder.mkdir()
        os.chown(folder, MALLORY, MALLORY)
        secret.write_text("secret")
        secret.chmod(0o600)
        pids = (str(os.getpid()), str(os.getpid() + 2000))
        planting = _PLANTED.format(uid=MALLORY)
        program = [sys.executable, "-c", planting, str(folder), str(secret), *pids]
        subprocess.run(program, check=True)
        for name in ("out.json", "link.json"):
            done = subprocess.run(
                [sys.executable, "-c", _WRITE, str(folder / name)],
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            refused = f"link.json: it cannot be written: it is a link of user {MALLORY}"
            assert (refused in done.stderr) == (name == "link.json"), done.stderr
            assert (folder / "out.json").read_text() == "new" * 1000
            there = secret.stat()
            assert secret.read_text() == "secret"
            assert (there.st_uid, stat.S_IMODE(there.st_mode)) == (0, 0o600)


def test_output_goes_through_a_link_of_proc(tmp_path: Path) -> None:
    """``/dev/stdout``, where it is a file: it is appended to, and stays the shell's file."""
    file = tmp_path / "log"
    program = _WRITE.replace('"new" * 1000', '"new"')
    with file.open("ab") as output:
        output.write(b"before ")
        output.flush()
        command = [sys.executable, "-c", program, "/dev/stdout"]
        subprocess.run(command, env=environment(), stdout=output, check=True)
    assert file.read_text() == "before new"
    assert [*tmp_path.iterdir()] == [file]
