"""The runs of one launch, separated from all others in the same directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.records import warm, write_record
from warmwatch_monitor.commands.launch import Launched


def test_ranks_of_an_earlier_start_of_the_same_name_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARMWATCH_DIR", str(tmp_path))
    for rank in (0, 1):
        earlier = warm(rank=rank, world_size=2, launch="parent:1", started_by="before")
        write_record(tmp_path, earlier, name=f"earlier{rank}")
    write_record(tmp_path, warm(launch="parent:2", started_by="this"), name="a")
    (run,) = Launched("this").snapshot().runs
    assert [rank.record.folder for rank in run.ranks] == [str(tmp_path / "a")]
    assert Launched("another").snapshot().runs == ()
