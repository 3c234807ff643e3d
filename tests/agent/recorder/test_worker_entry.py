"""The file ``workers`` is written to no directory of another user's."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from warmwatch.recorder import worker_entry
from warmwatch.shared import record


def test_a_planted_directory_is_neither_found_nor_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "train-r0-77-1"
    folder.mkdir()
    (folder / record.JOURNAL).touch(0o600)
    places = "warmwatch.recorder.worker_entry.places.directories"
    monkeypatch.setattr(places, lambda *_: [str(tmp_path)])
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(pid=77))
    assert worker_entry.folder_of_parent() == folder
    found = Path.glob
    removed = [tmp_path / "train-r0-77-2", tmp_path / ".train-r0-77-3.tmp"]
    monkeypatch.setattr(Path, "glob", lambda *one: [removed[0], *found(*one)])
    removed[1].mkdir()
    assert worker_entry.folder_of_parent() == folder, "an earlier one was removed meanwhile"
    removed[1].rmdir()
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert worker_entry.folder_of_parent() is None
    with pytest.raises(PermissionError):
        worker_entry._opened(folder)
    assert [one.name for one in folder.iterdir()] == [record.JOURNAL]
