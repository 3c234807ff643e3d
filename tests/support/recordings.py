"""Recorded trainings: their facts at one moment, as JSON by name, so that a layout may change.

A file of ``captures/trainings`` holds the two clocks and the boot at that moment, which of its
records were alive, and for each record the slot, the lines of the journal and the exit status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from warmwatch.shared import record

FOLDER = Path(__file__).parent.parent / "captures" / "trainings"
_BINS = ("clean_bins", "compile_bins")


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """``run``: its name. ``living``: folders of the records whose process lived."""

    run: str
    monotonic_ns: int
    epoch: float
    boot: str
    living: tuple[str, ...]
    records: Mapping[str, Mapping[str, Any]]


def names() -> list[str]:
    """All recordings, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read(name: str) -> Recording:
    """One recording."""
    return msgspec.convert(json.loads((FOLDER / f"{name}.json").read_text()), Recording)


def slot_of(facts: Mapping[str, Any]) -> record.Slot:
    """The slot of one of its records."""
    slot = {**facts["slot"], **{one: _dense(facts["slot"][one]) for one in _BINS}}
    found: record.Slot = _value(record.Slot, slot)
    return found


def write_records(recording: Recording, directory: Path) -> None:
    """Its records, as the agent of this version writes them."""
    from support.records import slot_bytes  # here: it imports the monitor (see outputs.py)

    for name, facts in recording.records.items():
        folder = directory / name
        folder.mkdir(parents=True, mode=0o700)
        (folder / record.SLOT).write_bytes(slot_bytes(slot_of(facts)))
        lines = (json.dumps(line, separators=(",", ":")) + "\n" for line in facts["events"])
        (folder / record.JOURNAL).write_text("".join(lines))
        (folder / record.EXIT).write_bytes(bytes.fromhex(facts["exit"]))


def _dense(bins: Mapping[str, int]) -> list[int]:
    return [bins.get(str(place), 0) for place in range(record.BINS)]


def _named(value: Any) -> Any:
    if not hasattr(value, "_fields"):
        return value
    defaults = value._field_defaults
    return {
        name: _named(one)
        for name, one in zip(value._fields, value, strict=True)
        if name not in defaults or defaults[name] != one
    }


def _value(kind: Any, facts: Any) -> Any:
    """The reverse of :func:`_named`."""
    if not hasattr(kind, "_fields"):
        return msgspec.convert(facts, kind)
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], one) for name, one in facts.items()})
