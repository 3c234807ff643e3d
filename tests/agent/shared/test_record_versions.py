"""Record versions: each reader with a record of each release, older and newer.

``tests/captures/record_v4`` and ``record_v5`` were written by agents of those versions: a training
of 40 steps that compiled at its beginning and at step 13.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from warmwatch.shared import record
from warmwatch.shared.record.counters import flatten, shape
from warmwatch.shared.record.sealed_blocks import Block, store

CAPTURES = Path(__file__).parents[2] / "captures"


def capture(version: int) -> bytes:
    return (CAPTURES / f"record_v{version}" / record.SLOT).read_bytes()


@pytest.mark.parametrize("version", record.READABLE)
def test_a_record_of_its_own_version_and_the_one_before_is_read(version: int) -> None:
    slot = record.unpack(capture(version))
    counts = slot.compile
    assert struct.unpack_from("<I", capture(version), 8) == (version,)
    assert (slot.identity.run, slot.identity.torch) == ("gpt2", "2.13.0+cpu")
    assert (slot.steps.steps, counts.warmups, slot.header.warm_steps) == (40, 2, 3)
    assert (counts.graphs, counts.recompiles_after_warm) == (2, 1)
    assert dict(zip(record.CATEGORIES, counts.recompiles, strict=False))["shape"] == 1
    assert sum(slot.clean_bins) + sum(slot.compile_bins) == 40
    assert record.ENDS[counts.end_code] == "finished"
    assert sum(counts.phase_ns) > 10**9


def test_a_field_that_an_older_agent_lacks_has_its_default() -> None:
    """Each is a field that was appended after version 4."""
    counts, default = record.unpack(capture(4)).compile, record.CompileCounts()
    appended = list(record.CompileCounts._fields[62:])
    assert all(getattr(counts, name) == getattr(default, name) for name in appended)


def newer(
    *,
    lengths: tuple[int, ...] | None = None,
    words: list[int],
    rooms: tuple[int, int] = (4096, 8192),
) -> bytes:
    """A slot as an agent writes it whose blocks are longer and whose lists have more entries."""
    lengths = lengths or shape(record.CompileCounts())
    compile_block = Block(offset=record.HOT_END, room=rooms[0])
    identity = Block(offset=compile_block.end, room=rooms[1])
    data = bytearray(identity.end + 4096)  # and a block that this release does not have
    old = record.unpack(capture(5))
    data[: record.HOT_END] = capture(5)[: record.HOT_END]
    struct.pack_into("<I", data, 12, len(data))
    described = bytes(lengths).ljust(52, b"\0")
    struct.pack_into("<3I52s", data, record.LAYOUT_OFFSET, len(words), *rooms, described)
    struct.pack_into("<Q", data, record.LAYOUT_OFFSET - 8, 77)  # a hot word of its own
    store(data, compile_block, struct.pack(f"<{len(words)}Q", *words))
    body = f'{{"run": "{old.identity.run}", "color": ["red"], "caches": {{"inductor": "frozen"}}}}'
    store(data, identity, body.encode())
    return bytes(data)


def test_additions_of_a_newer_agent_are_ignored() -> None:
    """Longer blocks, more entries in closed lists, more fields and keys."""
    phases = tuple(range(1, 1 + len(record.PHASES)))
    counts = record.CompileCounts(
        begun=2, phase_ns=phases, cache_misses=(5, 6, 7), evaluations=9, warmups=1
    )
    words, grown = [], []
    for value in counts:
        if isinstance(value, int):
            words.append(value)
            continue
        words += [*value, 100, 200]
        grown.append(len(value) + 2)
    slot = record.unpack(newer(lengths=tuple(grown), words=[*words, 8, 9, 10]))
    read = slot.compile
    assert (slot.identity.run, slot.identity.caches) == ("gpt2", {})
    assert (read.begun, read.evaluations, read.warmups) == (2, 9, 1)
    assert read.cache_misses == (5, 6, 7), "this list has no 'other'"
    other = record.PHASES.index("other")
    added = tuple(ns + 300 * (at == other) for at, ns in enumerate(phases))
    assert read.phase_ns == added, "so that phases add up to all"
    other = record.KINDS.index("other")
    assert read.compilations == tuple(300 * (n == other) for n in range(len(record.KINDS)))
    assert sum(read.recompiles) == read.recompiles[record.CATEGORIES.index("other")] == 300
    assert slot.steps == record.unpack(capture(5)).steps


@pytest.mark.parametrize(
    ("name", "newest", "shown"),
    [
        ("active_phase", 1 + len(record.PHASES), 1 + record.PHASES.index("other")),
        ("end_code", len(record.ENDS), 0),
        ("disabled", len(record.DISABLED), 0),
        ("progress_of", 1 + len(record.PROGRESS), 0),
    ],
)
def test_a_code_of_a_newer_agent_is_other_or_absent(name: str, newest: int, shown: int) -> None:
    words = flatten(record.unpack(capture(5)).compile)
    for code, expected in ((newest, shown), (newest - 1, newest - 1), (2**40, 2**40)):
        words[record.COMPILE_INDEX[name]] = code
        slot = record.with_known_codes(record.unpack(newer(words=words)))
        assert getattr(slot.compile, name) == expected


def test_an_older_record_of_this_version_is_read() -> None:
    """One whose compile block ends before the fields that this release appended."""
    lengths = (4, 4, 10, 8, 8, 11, 3, 3, 4)
    whole = [*range(1, 109)]
    read = record.unpack(newer(words=whole, lengths=lengths)).compile
    assert (read.begun, read.agent_errors, read.between_cells_until_ns) == (1, 27, 108)
    assert (read.phase_ns[:8], read.memory[:4]) == ((*range(47, 55),), (94, 95, 96, 97))
    with pytest.raises(record.RecordError, match="description of its layout"):
        record.unpack(newer(words=whole[:-1], lengths=lengths))  # none is shorter than version 4


@pytest.mark.parametrize(
    "lengths",
    [
        (),
        (4, 4, 10, 8, 8, 11, 3, 3),
        (4, 4, 10, 7, 8, 11, 3, 3, 4),
        (4, 4, 10, 255, 8, 11, 3, 3, 4),
    ],
)
def test_a_damaged_description_of_the_layout_is_refused(lengths: tuple[int, ...]) -> None:
    described = bytes(lengths).ljust(52, b"\0")
    data = bytearray(capture(5))
    data[record.LAYOUT_OFFSET + 12 : 4096] = described
    with pytest.raises(record.RecordError, match="description of its layout is damaged"):
        record.unpack(bytes(data))


@pytest.mark.parametrize("rooms", [(0, 4096), (2048, 64), (2**32 - 1, 4096), (2048, 2**31)])
def test_a_room_beyond_the_slot_is_refused(rooms: tuple[int, int]) -> None:
    data = bytearray(capture(5))
    struct.pack_into("<2I", data, record.LAYOUT_OFFSET + 4, *rooms)
    with pytest.raises(record.RecordError, match="description of its layout is damaged"):
        record.unpack(bytes(data))


def test_how_much_is_read_of_a_slot_is_bounded() -> None:
    start = capture(5)[: record.HOT_END]
    assert record.size_of(start) == record.SIZE
    assert record.size_of(newer(words=[0] * 108)[:64]) == record.HOT_END + 8192 + 16384 + 4096
    assert record.size_of(start[:12] + b"\xff" * 4 + start[16:]) == record.LARGEST_SIZE == 65536
    assert record.size_of(start[:12] + bytes(4) + start[16:]) == record.SIZE
    assert record.size_of(b"") == record.SIZE
