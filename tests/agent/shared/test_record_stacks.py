"""The lines of a record's stacks: the stored part of a frame, and what a reader accepts."""

from __future__ import annotations

import json
import re

import pytest

from warmwatch.shared.record import RecordError
from warmwatch.shared.record.stack_file import (
    LINE_LIMIT,
    MOST_FRAMES,
    MOST_THREADS,
    NAME_LIMIT,
    STACKS_LIMIT,
    Frame,
    Stacks,
    ThreadStack,
    cut,
    pack_stacks,
    unpack_stacks,
)

FRAME = Frame("Scheduler.__init__", "scheduler.py", 31)
LOOK = Stacks(
    at_ns=9,
    since_ns=2,
    phase="inductor",
    threads=(ThreadStack(frames=(FRAME,), main=True, compiles=True, left_out=3),),
    threads_left_out=1,
)


def test_the_form_of_a_line_and_its_limits_are_pinned() -> None:
    """An agent and a reader may be of two releases."""
    assert pack_stacks(LOOK) == (
        b'{"t":9,"since":2,"phase":"inductor","more":1,"threads":[{"main":true,"compiles":true,'
        b'"more":3,"frames":[["Scheduler.__init__","scheduler.py",31]]}]}\n'
    )
    limits = (STACKS_LIMIT, LINE_LIMIT, NAME_LIMIT, MOST_FRAMES, MOST_THREADS)
    assert limits == (262_144, 65_536, 120, 100, 32)


def test_a_dump_is_read_back_unchanged() -> None:
    assert unpack_stacks(pack_stacks(LOOK)) == LOOK
    bare = Stacks(at_ns=2**63 - 1, since_ns=0, threads=(ThreadStack(frames=()),) * MOST_THREADS)
    assert (bare.phase, bare.threads_left_out, Stacks(at_ns=1, since_ns=1).threads) == (None, 0, ())
    assert bare.threads[0] == ((), 0, False, False)
    assert unpack_stacks(pack_stacks(bare)) == bare


@pytest.mark.parametrize(
    ("there", "left_out"), [(0, 0), (99, 0), (100, 0), (101, 1), (1000, 900)], ids=str
)
def test_a_deep_stack_is_cut_in_the_middle(there: int, left_out: int) -> None:
    retained, missing = cut([FRAME._replace(line=number) for number in range(there)])
    assert missing == left_out
    inner, outer = range(there)[:80], range(there)[80 + left_out :]
    assert [frame.line for frame in retained] == [*inner, *outer]


def test_a_name_is_cut_on_write_and_on_read() -> None:
    long = LOOK._replace(threads=(ThreadStack(frames=(Frame("n" * 121, "f" * 121, 1),)),))
    written = json.loads(pack_stacks(long))
    assert written["threads"][0]["frames"] == [["n" * 120, "f" * 120, 1]]
    written["threads"][0]["frames"] = [["n" * 121, "f" * 121, 1]]
    (frame,) = unpack_stacks(json.dumps(written).encode()).threads[0].frames
    assert (frame.name, frame.file) == ("n" * 120, "f" * 120)


def of_length(length: int) -> Stacks:
    """Six threads, as deep as may be, whose line is so long."""
    names = ["f"] * 6 * MOST_FRAMES

    def made() -> Stacks:
        frames = [Frame(name, "g.py", 1) for name in names]
        deep = (frames[at : at + MOST_FRAMES] for at in range(0, len(frames), MOST_FRAMES))
        return Stacks(
            at_ns=9, since_ns=2, threads=tuple(ThreadStack(frames=tuple(one)) for one in deep)
        )

    missing = length - len(pack_stacks(made()))
    for place in range(len(names)):
        more = min(missing, NAME_LIMIT - 1)
        names[place], missing = "f" * (1 + more), missing - more
    return made()


def test_a_line_may_take_all_of_its_room_and_leaves_out_threads_beyond() -> None:
    full = of_length(LINE_LIMIT)
    line = pack_stacks(full)
    assert len(line) == LINE_LIMIT
    assert unpack_stacks(line) == full
    beyond = of_length(LINE_LIMIT + 1)
    read = unpack_stacks(pack_stacks(beyond))
    assert read == beyond._replace(threads=beyond.threads[:5], threads_left_out=1)


def test_a_line_is_bounded_for_any_thread_names() -> None:
    long = Frame("\u1234" * 5000, "\u1234" * 5000, 1)
    thread = ThreadStack(frames=(long,) * MOST_FRAMES)
    line = pack_stacks(LOOK._replace(threads=(LOOK.threads[0], *[thread] * 31)))
    assert len(line) <= LINE_LIMIT
    assert unpack_stacks(line) == LOOK._replace(threads_left_out=1 + 31)


GOOD = json.loads(pack_stacks(LOOK))


def otherwise(**parts: object) -> bytes:
    return json.dumps({**GOOD, **parts}).encode()


def with_frames(frames: object) -> bytes:
    return otherwise(threads=[{**GOOD["threads"][0], "frames": frames}])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "JSONDecodeError"),
        (b"{", "JSONDecodeError"),
        (b"[]", "TypeError"),
        (b"[" * 60_000, "RecursionError"),
        (otherwise() + b" " * LINE_LIMIT, "a line of its stacks is too long"),
        (otherwise(t="now"), "TypeError"),
        (otherwise(t=-1), "TypeError"),
        (otherwise(t=2**63), "TypeError"),
        (otherwise(more=True), "TypeError"),
        (otherwise(threads={}), "its stacks are of too many threads"),
        (otherwise(threads=[{}]), "KeyError"),
        (otherwise(threads=GOOD["threads"] * 33), "its stacks are of too many threads"),
        (with_frames({}), "a thread of its stacks has too many frames"),
        (with_frames([["f", "g", 1]] * 101), "a thread of its stacks has too many frames"),
        (with_frames([["f"]]), "ValueError"),
        (with_frames([[["f"], "g.py", 3]]), "TypeError"),
        (with_frames([["f", ["g.py"], 3]]), "TypeError"),
    ],
)
def test_an_invalid_line_is_refused_with_a_message(line: bytes, words: str) -> None:
    if words.endswith("Error"):
        words = f"a line of its stacks cannot be read ({words})"
    with pytest.raises(RecordError, match=f"^{re.escape(words)}$"):
        unpack_stacks(line)


def test_an_unknown_phase_is_none() -> None:
    for phase in ([], "a later release's", None):
        assert unpack_stacks(otherwise(phase=phase)).phase is None


def test_terminal_control_characters_are_escaped() -> None:
    line = pack_stacks(
        LOOK._replace(threads=(ThreadStack(frames=(Frame("\x1b[2J", "a\nb.py", 1),)),))
    )
    (frame,) = unpack_stacks(line).threads[0].frames
    assert (frame.name, frame.file) == ("\\x1b[2J", "a\\nb.py")
