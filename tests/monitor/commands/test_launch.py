"""The runs of one launch, separated from all others in the same directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.records import ended, warm, write_record
from warmwatch.shared.states import State
from warmwatch_monitor.commands.launched import Launched, nothing_seen
from warmwatch_monitor.model.snapshot import Snapshot


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


def test_records_that_cannot_be_read_at_the_end_of_a_command_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "records"
    monkeypatch.setenv("WARMWATCH_DIR", str(directory))
    seen: list[Snapshot] = []

    class ReadableLater(Launched):
        def snapshot(self) -> Snapshot:
            if len(seen) == 3:
                directory.unlink()
                directory.mkdir()
                write_record(directory, ended(warm(started_by="this"), "finished"), name="a")
            seen.append(super().snapshot())
            return seen[-1]

    launched = ReadableLater("this")
    directory.write_text("no directory")
    (run,) = launched.ended().runs
    assert run.state == State.FINISHED
    assert not seen[0].runs
    assert "is not known yet: the records cannot be read" in nothing_seen(seen[0])
