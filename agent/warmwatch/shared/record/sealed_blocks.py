"""Sealed blocks: two copies with checksums, so that half of a block can never be read.

A block has two places. Each holds ``sequence u64, length u64, checksum 8s, payload``; the checksum
is over the sequence, the length and the payload. A writer stores into the place that is not the
current one, the payload first and then its head; the block is the whole place with the highest
sequence. So the last whole payload is always there, and a mixture of old and new bytes fails its
checksum, whatever the order in which a processor makes the stores visible.

What is current is read off the buffer each time: a writer that was interrupted anywhere, by a
signal handler that raised for one, stores into the same place again and never into the last whole
one. A block has one writer at a time; whoever stores sees to that.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import mmap

    Buffer = bytearray | mmap.mmap

_HEAD = struct.Struct("<QQ8s")
_SEALED = struct.Struct("<QQ")  # what of the head its checksum covers
_SEQUENCE = struct.Struct("<Q")
_T = TypeVar("_T")


class RecordError(ValueError):
    """The bytes are not a slot that this version can read; the message says why."""


class TornError(RecordError):
    """Both places of a block were being written: another look may find one whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A sealed block of the slot: where its first place begins, and how long each place is."""

    offset: int
    room: int

    @property
    def limit(self) -> int:
        """The longest payload that fits."""
        return self.room - _HEAD.size

    @property
    def end(self) -> int:
        """Where its second place ends."""
        return self.offset + 2 * self.room

    def place(self, sequence: int) -> int:
        """The offset of the place that ``sequence`` belongs into."""
        return self.offset + (sequence & 1) * self.room


def store(buffer: Buffer, block: Block, payload: bytes) -> None:
    """Make ``payload`` the block's content.

    Raises:
        RecordError: it is longer than the block's limit.
    """
    at, head = _next(buffer, block, payload)
    begin = at + _HEAD.size
    buffer[begin : begin + len(payload)] = payload
    buffer[at:begin] = head  # one C call: no signal handler comes in between


def following(buffer: Buffer, block: Block, payload: bytes) -> tuple[int, bytes]:
    """Where ``payload`` goes if it is to be the block's next content, and the bytes of its place.

    Raises:
        RecordError: it is longer than the block's limit.
    """
    at, head = _next(buffer, block, payload)
    return at, head + payload


def _next(buffer: Buffer, block: Block, payload: bytes) -> tuple[int, bytes]:
    if len(payload) > block.room - _HEAD.size:
        raise RecordError(f"a block of {len(payload)} bytes, {block.limit} are there")
    first, second = block.offset, block.offset + block.room
    (even,) = _SEQUENCE.unpack(buffer[first : first + _SEQUENCE.size])
    (odd,) = _SEQUENCE.unpack(buffer[second : second + _SEQUENCE.size])
    sequence = 1 + max(even, odd)
    head = _HEAD.pack(sequence, len(payload), _checksum(sequence, payload))
    return second if sequence & 1 else first, head


def newest(image: bytes, block: Block, read: Callable[[bytes], _T]) -> _T:
    """What ``read`` makes of the newest whole place, which it is given with its head.

    Raises:
        TornError: no place is whole.
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
        TornError: it is not whole.
    """
    sequence, _, checksum = _HEAD.unpack_from(sealed)
    payload = sealed[_HEAD.size :]
    if _checksum(sequence, payload) != checksum:
        raise TornError("torn record: the checksum of a block is wrong")
    return payload


def _candidates(image: bytes, block: Block) -> Iterator[bytes]:
    """The places that may be whole, the newest first, each as long as it says it is."""
    found = []
    for which in (0, 1):
        sequence, length, _ = _HEAD.unpack_from(image, block.place(which))
        if sequence and sequence & 1 == which and length <= block.limit:
            found.append((sequence, block.place(which), length))
    for _, at, length in sorted(found, reverse=True):
        yield image[at : at + _HEAD.size + length]


def _checksum(sequence: int, payload: bytes) -> bytes:
    sealed = _SEALED.pack(sequence, len(payload)) + payload
    return hashlib.blake2b(sealed, digest_size=8, usedforsecurity=False).digest()
