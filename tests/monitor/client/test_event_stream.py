"""The reader of server-sent events: whole events however bytes come, and nothing without end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmwatch_monitor.client.events import Event, NonsenseError, Reader

STREAM = (
    b"retry: 2000\n\n: still here\n\n"
    b'event: state\nid: a-1\ndata: {"run":"gpt2"}\n\n'
    b"data: one\r\ndata:two\r\n\r\n"
    b"event: gone\n\n"  # without data there is none
    b"event: warm\ndata: {}\n\nevent: half\ndata: "
)
EVENTS = [
    Event("state", b'{"run":"gpt2"}'),
    Event("message", b"one\ntwo"),
    Event("warm", b"{}"),
]


@given(cuts=st.lists(st.integers(0, len(STREAM))))
def test_events_are_independent_of_how_the_bytes_are_split(cuts: list[int]) -> None:
    reader, found = Reader(), list[Event]()
    places = sorted({0, len(STREAM), *cuts})
    for first, last in pairwise(places):
        found += reader.feed(STREAM[first:last])
    assert found == EVENTS
    assert reader.lines == STREAM.count(b"\n")


@pytest.mark.parametrize("line", [b"<html>", b"\xff\x00", b"events: x", b"Data: x"])
def test_any_other_line_is_invalid(line: bytes) -> None:
    with pytest.raises(NonsenseError):
        Reader().feed(line + b"\n")


@pytest.mark.parametrize("part", [b"data: x", b"x" * 100, b": beat\n", b"data: x\n"])
def test_an_endless_event_is_refused(part: bytes) -> None:
    reader = Reader(longest=10_000)
    for _ in range(10_000 // len(part)):
        reader.feed(part)
    with pytest.raises(NonsenseError):
        reader.feed(part * 1_000)
