"""The writer between two calls of Python: a signal handler may raise at each of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from support import slots
from warmwatch import record
from warmwatch._writer import Writer
from warmwatch.record import Header, Identity

HEADER = Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1)
OURS = ("/_writer.py", "/_inbox.py", "/seal.py", "/layout.py", "/record/identity.py")


class _HandlerError(Exception):
    pass


def raising_at(number: int, call: object) -> bool:
    """Whether ``call`` came to its end before its ``number``-th event: there, a handler raises."""
    left = number

    def profile(frame: FrameType, _event: str, _what: object) -> None:
        nonlocal left
        if frame.f_code.co_filename.endswith(OURS):
            left -= 1
            if left == 0:
                raise _HandlerError

    sys.setprofile(profile)
    try:
        call()  # type: ignore[operator]
    except _HandlerError:
        return False
    finally:
        sys.setprofile(None)
    return True


def test_a_name_is_stored_whatever_a_signal_handler_raises_while_another_was(
    memory: Path,
) -> None:
    writer = Writer()
    identity = writer.open([str(memory)], HEADER, Identity(run="t"), named=True)
    over = False
    for number in range(1, 400):
        late = replace(identity, rank=number)
        over = raising_at(number, lambda late=late: writer.rename(late))
        last = replace(identity, rank=1000 + number)
        writer.rename(last)
        assert slots.read(slots.only(memory)).identity == last, number
    writer.close()
    assert over, "the last of them were not raised in any more"


def test_a_name_that_was_interrupted_is_stored_with_the_next_rare_fact(memory: Path) -> None:
    writer = Writer()
    identity = writer.open([str(memory)], HEADER, Identity(run="t"), named=True)
    for number in range(3, 60):
        late = replace(identity, rank=number)
        raising_at(number, lambda late=late: writer.rename(late))
        writer.publish([0] * record.COMPILE_WORDS)
        assert slots.read(slots.only(memory)).identity == late, number
    writer.close()
