"""Files that a command was told to write."""

from __future__ import annotations

import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.records import environment
from warmwatch_monitor.cli.places import write_whole

_WRITE = """
import sys
from pathlib import Path
from warmwatch_monitor.cli.places import write_whole
from warmwatch_monitor.errors import UsageError
try:
    write_whole(Path(sys.argv[1]), "new" * 1000)
except UsageError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("link", [False, True])
def test_what_a_file_held_stays_where_the_new_text_has_no_room(tmp_path: Path, link: bool) -> None:
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


def test_a_file_is_written_anew_as_it_was_and_through_a_link(tmp_path: Path) -> None:
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
