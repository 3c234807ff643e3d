"""Figures that did not change since the last poll are reused, for speed with hundreds of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.records import warm, write_record
from warmwatch.shared import record
from warmwatch_monitor.sources.records import folder as records_folder
from warmwatch_monitor.sources.records.folder import Folder, SlotFile, SlotReading


def test_a_slot_that_is_short_for_one_poll_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may truncate and extend the file between the two reads of one poll."""
    file, folder = SlotFile(), write_record(tmp_path, warm())
    look(file, folder)
    image = (folder / record.SLOT).read_bytes()
    read = image[:100], image[record.HOT_END :]
    monkeypatch.setattr(records_folder, "_image", lambda _: read)
    with pytest.raises(record.RecordError, match="torn record"):
        look(file, folder)


def look(file: SlotFile, folder: Path) -> SlotReading:
    with Folder(str(folder)) as opened:
        return file.read(opened)
