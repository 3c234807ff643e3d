"""The file ``workers``: another program may have written it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warmwatch.shared.record.workers_file import MOST, SIZE, Entry, pack, unpack
from warmwatch.shared.values import LARGEST

NUMBERS = st.tuples(*[st.integers(0, LARGEST)] * 5)
NAMES = st.from_regex(r"[a-z_]{0,20}", fullmatch=True)
ENTRIES = st.builds(lambda numbers, name: Entry._make((*numbers, name)), NUMBERS, NAMES)


@given(st.lists(ENTRIES, max_size=MOST))
def test_what_was_written_is_read(entries: list[Entry]) -> None:
    assert unpack(b"".join(map(pack, entries))) == tuple(entries)


@given(st.integers(0, 4), st.integers(LARGEST + 1, 2**64 - 1))
def test_an_entry_with_an_impossible_number_is_empty(at: int, number: int) -> None:
    numbers = [1] * 5
    numbers[at] = number
    bad, good = Entry._make((*numbers, "f")), Entry(1, 1, 0, 5, 5, "f")
    assert unpack(pack(bad) + pack(good)) == (Entry(), good)


@given(st.binary(max_size=3 * SIZE))
def test_any_bytes_are_read(data: bytes) -> None:
    assert all(max(one[:-1]) <= LARGEST for one in unpack(data))
