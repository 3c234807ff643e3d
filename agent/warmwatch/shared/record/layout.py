"""The slot: offsets, header, pack and unpack. The package's docstring explains them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from warmwatch.shared.record import identity as _identity
from warmwatch.shared.record.facts import (
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
    flatten,
    index,
    unflatten,
)
from warmwatch.shared.record.recent import BINS, RING, length_ns, newest_first
from warmwatch.shared.record.sealed_blocks import Block, RecordError, newest, store, unseal

if TYPE_CHECKING:
    from warmwatch.shared.record.sealed_blocks import Buffer

MAGIC = b"WARMWTCH"
VERSION = 1
PAGE = 4096

_HEADER = struct.Struct("<8sIIQQQ")
_WORDS = struct.Struct(f"<{len(StepCounts._fields)}Q")
_BINS = struct.Struct(f"<{BINS}Q")
_RING = struct.Struct(f"<{RING}Q")
STEPS_OFFSET = 64
CLEAN_BINS_OFFSET = PAGE
COMPILE_BINS_OFFSET = 2 * PAGE
# At the end of the page with the clean bins, which a step writes anyway.
RING_OFFSET = COMPILE_BINS_OFFSET - 8 * RING
HOT_END = 3 * PAGE
COMPILE_BLOCK = Block(offset=HOT_END, room=PAGE // 2)
IDENTITY_BLOCK = Block(offset=COMPILE_BLOCK.end, room=PAGE)
SIZE = IDENTITY_BLOCK.end

# The index of each field among the words of its block, such as "first_warmup.steps". The agent uses
# the words themselves, since it stores them some hundred times during a compilation.
STEPS_INDEX = index(StepCounts())
COMPILE_WORDS = len(flatten(CompileCounts()))
COMPILE_INDEX = index(CompileCounts())
_COMPILE = struct.Struct(f"<{COMPILE_WORDS}Q")
assert len(STEPS_INDEX) == len(flatten(StepCounts())), "each field of StepCounts is one word"
assert STEPS_OFFSET + _WORDS.size <= CLEAN_BINS_OFFSET
assert CLEAN_BINS_OFFSET + _BINS.size <= RING_OFFSET
assert _BINS.size <= PAGE
assert _COMPILE.size <= COMPILE_BLOCK.limit


def pack_header(header: Header) -> bytes:
    """The header's bytes, magic first."""
    return _HEADER.pack(
        MAGIC, VERSION, SIZE, header.warm_steps, header.attached_ns, header.attached_epoch_ns
    )


def hot_words(buffer: Buffer) -> memoryview:
    """The fields of StepCounts, by STEPS_INDEX: each is read and stored as one 8-byte word."""
    return memoryview(buffer)[STEPS_OFFSET : STEPS_OFFSET + _WORDS.size].cast("Q")


def ring(buffer: Buffer) -> memoryview:
    """The words of the last steps (see ``recent``)."""
    return memoryview(buffer)[RING_OFFSET : RING_OFFSET + _RING.size].cast("Q")


def histograms(buffer: Buffer) -> tuple[memoryview, memoryview]:
    """The bins of clean steps and of steps with activity: words, like the hot ones."""
    view = memoryview(buffer)
    clean, touched = (
        view[at : at + _BINS.size].cast("Q") for at in (CLEAN_BINS_OFFSET, COMPILE_BINS_OFFSET)
    )
    return clean, touched


def store_compile(buffer: Buffer, words: Sequence[int]) -> None:
    """Seal the words of a CompileCounts into the slot."""
    store(buffer, COMPILE_BLOCK, _COMPILE.pack(*words))


def store_identity(buffer: Buffer, identity: Identity) -> None:
    """Seal ``identity`` into the slot.

    Raises:
        RecordError: it does not fit, even with shortened names.
    """
    store(buffer, IDENTITY_BLOCK, _identity.pack_identity(identity, IDENTITY_BLOCK.limit))


def blank() -> bytearray:
    """A slot's bytes with no header, no identity and nothing counted yet."""
    buffer = bytearray(SIZE)
    store_compile(buffer, [0] * COMPILE_WORDS)
    return buffer


def check_header(data: bytes) -> Header:
    """Read a slot's header.

    Raises:
        RecordError: not a slot, or one of another version.
    """
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise RecordError("not a warmwatch record (wrong magic number)")
    _, version, size, warm_steps, attached_ns, attached_epoch_ns = _HEADER.unpack_from(data)
    if version != VERSION:
        old = "training" if version < VERSION else "monitor"
        raise RecordError(
            f"record of version {version}, this warmwatch reads version {VERSION}: upgrade the "
            f"{old}'s warmwatch"
        )
    if size != SIZE:
        raise RecordError(f"a record of {size} bytes, not {SIZE}: its size is damaged")
    if len(data) < SIZE:
        raise RecordError(f"torn record: {len(data)} bytes of {SIZE}")
    return Header(
        warm_steps=warm_steps, attached_ns=attached_ns, attached_epoch_ns=attached_epoch_ns
    )


def unpack_identity(image: bytes) -> Identity:
    """Only the identity, from a slot with a valid header.

    Raises:
        TornError: it is being written. RecordError: it is invalid.
    """
    return newest(image, IDENTITY_BLOCK, _identity.unseal_identity)


def unpack(image: bytes) -> Slot:
    """Unpack a slot's bytes, of which those up to HOT_END were read before the others.

    Raises:
        TornError: a block was written twice meanwhile; read again.
        RecordError: not a slot, another version, or damaged.
    """
    header = check_header(image)
    slot = Slot(
        header=header,
        identity=newest(image, IDENTITY_BLOCK, _identity.unseal_identity),
        steps=StepCounts(),
        compile=newest(image, COMPILE_BLOCK, _compile),
        clean_bins=(),
        compile_bins=(),
    )
    return with_hot_words(slot, image)


def with_hot_words(slot: Slot, image: bytes, compile_bins: tuple[int, ...] | None = None) -> Slot:
    """``slot`` with the counters, the histograms and the ring of ``image``.

    ``slot``: the header and the blocks of ``image``, which need not have bytes beyond HOT_END.
    ``compile_bins``: the bins of a slot whose compile histogram had the same bytes.
    """
    steps = StepCounts._make(_WORDS.unpack_from(image, STEPS_OFFSET))
    recent = newest_first(_RING.unpack_from(image, RING_OFFSET), steps.steps)
    if recent and recent[0]:  # the length of a regular step is only in the ring
        steps = steps._replace(last_duration_ns=length_ns(recent[0]))
    return Slot(
        header=slot.header,
        identity=slot.identity,
        steps=_caught_up(steps, slot.compile, slot.header.warm_steps),
        compile=slot.compile,
        clean_bins=_BINS.unpack_from(image, CLEAN_BINS_OFFSET),
        compile_bins=compile_bins or _BINS.unpack_from(image, COMPILE_BINS_OFFSET),
        recent=recent,
    )


@lru_cache(maxsize=512)
def _compile(sealed: bytes) -> CompileCounts:
    payload = unseal(sealed)
    if len(payload) < _COMPILE.size:  # a longer one has fields that a newer agent appended
        raise RecordError(f"its compile block has {len(payload)} bytes, not {_COMPILE.size}")
    return unflatten(CompileCounts(), _COMPILE.unpack_from(payload))


def _caught_up(steps: StepCounts, rare: CompileCounts, warm_steps: int) -> StepCounts:
    """The hot words, raised to what the compile block proves.

    They were read first, so the block may contain a step that the words do not. Without this, a
    rank that has just become warm for the first time would miss one step, and look as if it
    compiled again.
    """
    marked, at = rare.clean_after, rare.irregular_step_ns
    warm_ns = rare.last_warmup.warm_ns
    if warm_ns > at and warm_ns != rare.settled_ns:  # K clean steps ended the warm-up
        marked, at = marked + warm_steps, warm_ns
    if steps.steps >= marked:
        return steps
    return steps._replace(steps=marked, last_step_ns=max(steps.last_step_ns, at))
