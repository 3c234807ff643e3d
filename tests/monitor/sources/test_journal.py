"""Untrusted journals: values are typed and finite, size and time of a poll are bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmwatch.shared.values import STRICT_EXPORT
from warmwatch_monitor.sources.records import parsed_journal
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import CHUNK, Journal
from warmwatch_monitor.sources.records.journal_sums import MOST_BREAKS

GOOD = '{"t": 5, "event": "compilation", "id": "0/1", "kind": "forward", "seconds": 1.5}'
BAD = {
    "a time that is infinite": GOOD.replace("5,", "1e999,", 1),
    "a time that is no number": GOOD.replace("5,", "NaN,", 1),
    "a time of a thousand digits": GOOD.replace("5,", "9" * 1000 + ",", 1),
    "a time before the beginning": GOOD.replace("5,", "-5,", 1),
    "a time that is a truth value": GOOD.replace("5,", "true,", 1),
    "a time with a fraction": GOOD.replace("5,", "5.5,", 1),
    "no time": GOOD.replace('"t": 5, ', ""),
    "seconds that are infinite": GOOD.replace("1.5", "1e999"),
    "seconds that are no number": GOOD.replace("1.5", "NaN"),
    "seconds below zero": GOOD.replace("1.5", "-1"),
    "seconds in words": GOOD.replace("1.5", '"1.5"'),
    "seconds of a thousand digits": GOOD.replace("1.5", "9" * 1000),
    "an id that is a list": GOOD.replace('"0/1"', "[]"),
    "a kind that is an object": GOOD.replace('"forward"', "{}"),
    "a reason that is a number": GOOD.replace("1.5}", '1.5, "reason": 7}'),
    "an event that is a list": GOOD.replace('"compilation"', "[1]"),
    "nesting without end": '{"event": "compilation", "id": ' + "[" * 30_000 + "]" * 30_000 + "}",
    "a line of 100 kilobytes": GOOD.replace("0/1", "x" * 100_000),
    "not UTF-8": GOOD.replace("0/1", "\udcff"),
    "a fallback of no step": '{"t": 5, "event": "fallback"}',
}


def follow(followed: Journal, path: Path) -> bool:
    with Folder(str(path.parent)) as folder:
        return followed.follow(folder)


def journal(path: Path, *lines: str) -> Journal:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    followed = Journal()
    follow(followed, path)
    return followed


def test_the_dearest_remedy_is_kept_beyond_the_last_compilations(tmp_path: Path) -> None:
    line = {"t": 1, "event": "compilation", "kind": "forward", "id": "0/0", "seconds": 90.0}
    again = {**line, "category": "shape", "reason": "0/0: why"}
    cheap = [{**again, "id": f"0/{n}", "seconds": 1.0} for n in range(2, 40)]
    warm = {"t": 1, "event": "warm", "at": 4, "steps": 1}
    dear = {**again, "id": "0/1", "seconds": 30.0}
    backward = {**line, "kind": "backward", "id": "0/1"}
    reset = {**line, "id": "0/1", "seconds": 2.0}
    of_it = (dear, line, backward, reset, backward)
    lines = map(json.dumps, (again, warm, *of_it, *cheap))
    followed = journal(tmp_path / "events.jsonl", *lines)
    assert followed.sums.dearest is not None
    assert followed.sums.dearest.id == "0/1", (
        "the warm-up has to compile, and a first compilation too"
    )
    assert followed.sums.dearest not in followed.sums.compilations
    assert followed.sums.dearest_seconds == 120.0, (
        "with its own backward, not with that after a reset"
    )


@pytest.mark.parametrize("bad", BAD)
def test_an_invalid_line_is_counted_and_the_next_one_is_read(tmp_path: Path, bad: str) -> None:
    followed = journal(tmp_path / "events.jsonl", BAD[bad], GOOD)
    assert [one.id for one in followed.sums.compilations] == ["0/1"]
    assert followed.sums.fallbacks == ()
    assert followed.broken_lines >= 1


def test_a_text_is_truncated_and_printable(tmp_path: Path) -> None:
    long = GOOD.replace("1.5}", '1.5, "reason": "' + "x" * 50_000 + '", "name": "a\\u001bb"}')
    (one,) = journal(tmp_path / "events.jsonl", long).sums.compilations
    assert one.reason is not None
    assert len(one.reason) <= parsed_journal.LONGEST_TEXT + 3
    assert one.name == "a\\x1bb"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
# All fields of every kind of entry, as an agent writes them; a test replaces a few of them.
WHOLE: dict[str, Any] = {
    **dict.fromkeys(("id", "category", "reason", "what", "name", "file", "code", "cache"), "x"),
    **dict.fromkeys(("kind", "failure", "cudagraph_skip", "setting"), "forward"),
    **dict.fromkeys(("t", "line", "ops", "guards", "guard_us", "kernels", "allocated"), 7),
    **dict.fromkeys(("reserved", "steps", "limit", "count", "n", "batches", "left_out"), 2),
    **dict.fromkeys(("seconds", "usual", "saving", "evaluating", "between_cells", "data"), 1),
    **dict.fromkeys(("score_bytes", "new_sizes", "recorded", "registers"), 3),
    "kernel": "x",
    "batches_before": 1,
    "phase_us": {"dynamo": 8},
    "slowest": [["kernel", 9]],
}
EVENTS = (
    *("compilation", "fallback", "begin", "recompile", "graph_break", "cudagraph_skip"),
    *("long_step", "spill"),
)


def numbers(value: Any) -> Iterator[float]:
    """All that there are, however deep."""
    if isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers(one)
    elif isinstance(value, int | float):
        yield value


def taken(changes: dict[str, Any]) -> int:
    """Return of how many events this line is read. Each field has its declared type."""
    count = 0
    for event in EVENTS:
        try:
            whole = {**WHOLE, "evaluating": True} if event == "compilation" else WHOLE
            made = parsed_journal.parse(json.dumps({**whole, **changes, "event": event}).encode())
        except ValueError:
            continue
        assert made is not None
        # this refuses what is not of its field's type, and a text that is not Unicode
        assert msgspec.json.decode(msgspec.json.encode(made), type=type(made)) == made
        assert all(0 <= number < 2**63 for number in numbers(msgspec.to_builtins(made)))
        count += 1
    return count


@settings(deadline=None)  # a busy machine is no finding
@given(st.dictionaries(st.sampled_from([*WHOLE]), JSON, max_size=3))
def test_any_json_value_is_a_typed_entry_or_refused(
    changes: dict[str, Any],
) -> None:
    assert 0 <= taken(changes) <= len(EVENTS)


@settings(deadline=None)  # a busy machine is no finding
@given(st.binary())
def test_any_bytes_are_at_most_a_broken_line(data: bytes) -> None:
    followed = Journal()
    followed._take(data)
    assert followed.broken_lines in (0, 1)


@pytest.mark.parametrize("grown", [500 * 10**6, 200 * 10**9])
def test_an_excessively_long_journal_is_read_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grown: int
) -> None:
    """The file is sparse. The bytes that a poll reads are bounded, and skipped ones are counted."""
    path = tmp_path / "events.jsonl"
    followed = journal(path, GOOD)
    with path.open("r+b") as file:
        file.truncate(grown)
        file.seek(grown)
        file.write(("\n" + GOOD.replace("0/1", "7/7") + "\n").encode())
    read = bytes_read(monkeypatch)
    assert follow(followed, path)
    assert sum(read) <= 2 * CHUNK
    assert [one.id for one in followed.sums.compilations] == ["0/1", "7/7"]
    assert grown - CHUNK < followed.skipped_bytes <= grown
    assert (followed.broken_lines, followed.unread_bytes) == (0, 0)
    assert not follow(followed, path)


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all reads from now on."""
    import os

    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    return read


def many(count: int) -> str:
    return "".join(GOOD.replace("0/1", f"{number}/0") + "\n" for number in range(count))


def test_reading_a_journal_resumes_where_the_last_poll_ran_out_of_time(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(many(20_000))
    size, followed = path.stat().st_size, Journal()
    pieces = iter([True, False])
    with Folder(str(tmp_path)) as folder:
        assert followed.follow(folder, lambda: next(pieces, False))
        assert size - CHUNK <= followed.unread_bytes < size
        first = followed.unread_bytes
        assert not followed.follow(folder, lambda: False)
        assert followed.unread_bytes == first
        assert followed.follow(folder)
        assert not followed.follow(folder)
    assert (followed.unread_bytes, followed.broken_lines) == (0, 0)
    assert followed.sums.compilations[-1].id == "19999/0"


def line(event: str, t: int, **values: object) -> str:
    return json.dumps({"t": t, "event": event, **values})


WHERE = {"name": "forward", "file": "model.py", "line": 31}


@pytest.mark.parametrize(
    ("verdicts", "known"),
    [(("miss", "hit"), "miss"), (("hit",), "hit"), (("bypass",), None), ((), None)],
)
def test_the_lookups_of_what_compiles_now_are_one_verdict(
    tmp_path: Path, verdicts: tuple[str, ...], known: str | None
) -> None:
    def lookups(verdicts: Iterable[str]) -> list[str]:
        return [line("cache", 2, cache="inductor_fx", verdict=verdict) for verdict in verdicts]

    before = (*lookups(["hit"]), GOOD, *lookups(["miss"]), line("begin", 1, activity=1, steps=0))
    followed = journal(tmp_path / "events.jsonl", *before, *lookups(verdicts))
    assert followed.sums.lookup == known


def test_reasons_of_graph_breaks_are_ordered_and_bounded(tmp_path: Path) -> None:
    many = [line("graph_break", n, reason=f"r{n}", count=n) for n in range(MOST_BREAKS + 9)]
    followed = journal(tmp_path / "events.jsonl", *many, line("graph_break", 5, reason="r0"))
    assert [one.reason for one in followed.sums.breaks] == [f"r{n}" for n in range(MOST_BREAKS)]
    assert followed.sums.breaks[3].count == 3
    assert followed.broken_lines == 1


def test_the_first_of_ten_consecutive_long_steps_is_stored(tmp_path: Path) -> None:
    lines = [
        json.dumps({"t": n, "event": "long_step", "n": n, "seconds": 2.0, "usual": 0.4})
        for n in (3, *range(20, 29), *range(40, 55), 70)
    ]
    assert journal(tmp_path / "events.jsonl", *lines[:19]).sums.slowed is None
    slowed = journal(tmp_path / "events.jsonl", *lines).sums.slowed
    assert slowed is not None
    assert slowed.step == 40


@pytest.mark.parametrize("exports", [True, False])
def test_what_pytorch_compiles_again_has_the_cause_that_dropped_it(
    tmp_path: Path, exports: bool
) -> None:
    """A strict ``torch.export`` drops all that was compiled, as ``torch._dynamo.reset()`` does.
    What has been compiled since the export was dropped by a later reset.
    """
    export = line("compilation", 4, kind="custom", name=STRICT_EXPORT, seconds=0.5, steps=16)
    again = {**WHERE, "kind": "forward", "again": True, "steps": 16, "seconds": 0.25}
    followed = journal(
        tmp_path / "events.jsonl",
        line("compilation", 3, kind="forward", steps=0, **WHERE),
        *([export] if exports else []),
        line("begin", 5, what="dynamo", again=True, steps=16, **WHERE),
        line("compilation", 6, **again),
        line("compilation", 9, **again),
    )
    assert followed.sums.beginning is not None
    assert followed.sums.beginning.exported == exports
    *_, by_export, by_reset = followed.sums.compilations
    assert (by_export.exported, by_reset.exported) == (exports, False)
