"""Keys of compile caches from any journal: bounded, and compared in words."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.values import replace
from warmwatch_monitor.commands.cache_misses import Lookup, lookups_in, misses, sentence
from warmwatch_monitor.model.records import RecordReading

GOOD: dict[str, Any] = {"t": 5, "event": "cache", "cache": "inductor_fx", "verdict": "miss"}


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def journal(folder: Path, *entries: dict[str, Any]) -> list[Lookup]:
    lines = (json.dumps(entry, separators=(",", ":")) for entry in entries)
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return lookups_in(str(folder))


def test_packed_parts_are_combined(tmp_path: Path) -> None:
    first = {**GOOD, "parts": 2, "whole": True, "packed": packed("gm abcdef\nfx_kwargs[x] ghijkl")}
    second = {**GOOD, "parts": 2, "whole": False, "packed": packed("gm zzzzzz\nfx_kwargs[x] -")}
    found = journal(tmp_path, first, second)
    assert [dict(one.hashes) for one in found] == [
        {"gm": "abcdef", "fx_kwargs[x]": "ghijkl"},
        {"gm": "zzzzzz"},
    ]


def test_a_repeated_key_has_the_same_parts(tmp_path: Path) -> None:
    first = {**GOOD, "parts": 1, "whole": True, "packed": packed("gm abcdef")}
    again = {**GOOD, "parts": 1, "whole": False, "packed": packed("")}
    assert [dict(one.hashes) for one in journal(tmp_path, first, again)] == [{"gm": "abcdef"}] * 2


@pytest.mark.parametrize(
    "bad",
    [
        {"packed": packed("a" * 5_000_000)},
        {"packed": packed("gm abcdef\nfx_kwargs[x] ghijkl")[:-8]},
        {"packed": "not base64"},
        {"packed": base64.b64encode(b"not zlib").decode()},
        {"packed": packed("gm \u1234")},
        {"cache": "another"},
        {"cache": []},
        {"verdict": "maybe"},
        {"key": 7},
    ],
)
def test_an_invalid_line_is_ignored(tmp_path: Path, bad: dict[str, Any]) -> None:
    assert len(journal(tmp_path, {**GOOD, **bad}, GOOD)) == 1


def ranks(world: int = 2) -> list[RecordReading]:
    return [b.view(b.as_rank(b.WARM, rank, world)).record for rank in range(world)]


def sentences(readings: list[RecordReading], *lookups: Lookup) -> list[str]:
    """The sentences, where each record has one of ``lookups``."""
    by_folder = {one.folder: [was] for one, was in zip(readings, lookups, strict=True)}
    return [sentence(miss) for miss in misses(readings, lambda folder: by_folder[folder])]


KEY = Lookup(
    cache="inductor_fx",
    verdict="hit",
    id="0/0",
    key="a",
    parts=4730,
    hashes={"device_index": "0", "inductor_config[max_autotune]": "x", "gm": "g"},
)


def test_differing_parts_of_two_ranks_are_named() -> None:
    other = {**KEY.hashes, "device_index": "1", "inductor_config[max_autotune]": "y"}
    missed = replace(KEY, verdict="miss", key="b", hashes=other)
    (line,) = sentences(ranks(), KEY, missed)
    assert line == (
        "gpt2 rank 1, 0/0 (Inductor): missed: 2 of 4,730 parts of its key differ from rank 0's: "
        "device index, inductor config max_autotune"
    )


def test_an_equal_key_points_to_the_cache() -> None:
    missed = replace(KEY, verdict="miss")
    (line,) = sentences(ranks(), KEY, missed)
    assert "its key is rank 0's, which hit: it looked earlier, or into another" in line
    lines = sentences(ranks(), missed, missed)
    assert lines[0].endswith("its key is rank 1's, which missed too")


def test_a_bypass_has_its_reason_and_no_comparison() -> None:
    passed = replace(KEY, verdict="bypass", reason="Unsupported post grad custom pass")
    (line,) = sentences(ranks(), KEY, passed)
    assert line.endswith("(Inductor): bypassed: Unsupported post grad custom pass")


def test_a_lookup_without_another_one_is_not_compared() -> None:
    (line,) = sentences(ranks(1), replace(KEY, verdict="miss"))
    assert "nothing to compare it with" in line
