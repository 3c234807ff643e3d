"""Sealed blocks: two copies with checksums, so that half of a block can never be read.

A block has two places. Each holds ``sequence u64, length u64, checksum 8s, payload``; the checksum
is over the sequence, the length and the payload. A writer stores into the place that is not the
current one, the payload first and then its head; the block is the whole place with the highest
sequence. So the last whole payload is always there. A mixture of old and new bytes fails its
checksum, in whatever order a processor makes the stores visible.

The current place is read from the buffer each time. So after an interruption, such as an exception
from a signal handler, a writer stores into the same place again and never into the last complete
one. A block has one writer at a time; the caller ensures that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from warmwatch.shared.values import hashed

if TYPE_CHECKING:
    import mmap

    Buffer = bytearray | mmap.mmap

_HEAD = struct.Struct("<QQ8s")
_SEALED = struct.Struct("<QQ")  # the part of the head that its checksum covers
_SEQUENCE = struct.Struct("<Q")
_HASH = hashed(size=8)  # copied: cheaper than a new one
_T = TypeVar("_T")


class RecordError(ValueError):
    """The bytes are not a slot that this version can read; the message contains the reason."""


class TornError(RecordError):
    """Both places of a block were being written: another read may find a complete one."""


class Block:
    """A sealed block of the slot: the begin of its first place, and the length of each place."""

    __slots__ = ("offset", "room")

    def __init__(self, offset: int, room: int) -> None:
        self.offset, self.room = offset, room

    @property
    def limit(self) -> int:
        """The longest payload that fits."""
        return self.room - _HEAD.size

    @property
    def end(self) -> int:
        """The end of its second place."""
        return self.offset + 2 * self.room

    def place(self, sequence: int) -> int:
        return self.offset + (sequence & 1) * self.room


def store(buffer: Buffer, block: Block, payload: bytes) -> None:
    """Make ``payload`` the block's content.

    Raises:
        RecordError: it is longer than the block's limit.
    """
    at, sealed = following(buffer, block, payload)
    begin = at + _HEAD.size
    buffer[begin : at + len(sealed)] = payload
    buffer[at:begin] = sealed[: _HEAD.size]  # one C call: no signal handler runs in between


def following(buffer: Buffer, block: Block, payload: bytes) -> tuple[int, bytes]:
    """The offset and bytes of the place that makes ``payload`` the block's next content.

    Raises:
        RecordError: it is longer than the block's limit.
    """
    if len(payload) > block.room - _HEAD.size:
        raise RecordError(f"a block of {len(payload)} bytes, {block.limit} are there")
    first, second = block.offset, block.offset + block.room
    (even,) = _SEQUENCE.unpack_from(buffer, first)
    (odd,) = _SEQUENCE.unpack_from(buffer, second)
    sequence = 1 + max(even, odd)
    return second if sequence & 1 else first, _sealed(sequence, payload)


def _sealed(sequence: int, payload: bytes) -> bytes:
    checked = _SEALED.pack(sequence, len(payload))
    checksum = _HASH.copy()
    checksum.update(checked)
    checksum.update(payload)
    return b"".join((checked, checksum.digest(), payload))


def newest(image: bytes, block: Block, read: Callable[[bytes], _T]) -> _T:
    """The result of ``read`` for the newest complete place, including its head.

    Raises:
        TornError: no place is complete.
    """
    for sealed in _candidates(image, block):
        try:
            return read(sealed)
        except TornError:
            continue
    raise TornError("torn record: both places of a block were being written")


def unseal(sealed: bytes) -> bytes:
    """The payload of a place.

    Raises:
        TornError: it is not complete.
    """
    payload = sealed[_HEAD.size :]
    if _sealed(_SEQUENCE.unpack_from(sealed)[0], payload) != sealed:
        raise TornError("torn record: the checksum of a block is wrong")
    return payload


def _candidates(image: bytes, block: Block) -> Iterator[bytes]:
    """The places that may be complete, newest first, each cut to its stated length."""
    result = []
    for which in (0, 1):
        sequence, length, _ = _HEAD.unpack_from(image, block.place(which))
        if sequence and sequence & 1 == which and length <= block.limit:
            result.append((sequence, block.place(which), length))
    for _, at, length in sorted(result, reverse=True):
        yield image[at : at + _HEAD.size + length]
