"""The slot's bytes: offsets, header, pack and unpack. The package's docstring explains them."""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from warmwatch.record import identity as _identity
from warmwatch.record.bins import BINS
from warmwatch.record.facts import CompileCounts, Header, Identity, Slot, StepCounts
from warmwatch.record.seal import Block, RecordError, newest, store, unseal
from warmwatch.record.words import flatten, index, unflatten

if TYPE_CHECKING:
    from warmwatch.record.seal import Buffer

MAGIC = b"WARMWTCH"
VERSION = 4
PAGE = 4096

_HEADER = struct.Struct("<8sIIQQQ")
_WORDS = struct.Struct(f"<{len(fields(StepCounts))}Q")
_BINS = struct.Struct(f"<{BINS}Q")
STEPS_OFFSET = 64
CLEAN_BINS_OFFSET = PAGE
COMPILE_BINS_OFFSET = 2 * PAGE
HOT_END = 3 * PAGE
COMPILE_BLOCK = Block(offset=HOT_END, room=PAGE // 2)
IDENTITY_BLOCK = Block(offset=COMPILE_BLOCK.end, room=PAGE)
SIZE = IDENTITY_BLOCK.end

# Where each field of a block is among its words, such as "first_warmup.steps": the agent keeps the
# words themselves, since it stores them some hundred times while a model compiles.
STEPS_INDEX = index(StepCounts())
COMPILE_WORDS = len(flatten(CompileCounts()))
COMPILE_INDEX = index(CompileCounts())
_COMPILE = struct.Struct(f"<{COMPILE_WORDS}Q")
assert len(STEPS_INDEX) == len(flatten(StepCounts())), "each field of StepCounts is one word"
assert STEPS_OFFSET + _WORDS.size <= CLEAN_BINS_OFFSET
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


def histograms(buffer: Buffer) -> tuple[memoryview, memoryview]:
    """The bins of clean steps and of steps that held activity: words as the hot ones are."""
    view = memoryview(buffer)
    clean, touched = (
        view[at : at + _BINS.size].cast("Q") for at in (CLEAN_BINS_OFFSET, COMPILE_BINS_OFFSET)
    )
    return clean, touched


def store_compile(buffer: Buffer, words: list[int]) -> None:
    """Seal the words of a CompileCounts into the slot."""
    store(buffer, COMPILE_BLOCK, _COMPILE.pack(*words))


def store_identity(buffer: Buffer, identity: Identity) -> None:
    """Seal ``identity`` into the slot.

    Raises:
        RecordError: it does not fit, however much its names are shortened.
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
        RecordError: not a slot, or one of a layout that this version does not know.
    """
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise RecordError("not a warmwatch record (its first bytes are foreign)")
    _, version, size, warm_steps, attached_ns, attached_epoch_ns = _HEADER.unpack_from(data)
    if version != VERSION:
        raise RecordError(
            f"record of version {version}, this warmwatch reads version {VERSION}: "
            "run the same warmwatch release in the training and in the monitor"
        )
    if size != SIZE:
        raise RecordError(
            f"a record of {size} bytes, where this release has {SIZE}: its size is damaged, or "
            "it is another release's; run the same in the training and in the monitor"
        )
    if len(data) < SIZE:
        raise RecordError(f"torn record: {len(data)} bytes of {SIZE}")
    return Header(
        warm_steps=warm_steps, attached_ns=attached_ns, attached_epoch_ns=attached_epoch_ns
    )


def unpack_identity(image: bytes) -> Identity:
    """The identity alone, of a slot whose header is fine.

    Raises:
        TornError: it is being written. RecordError: it is none.
    """
    return newest(image, IDENTITY_BLOCK, _identity.unseal_identity)


def unpack(
    image: bytes, same: Slot | None = None, compile_bins: tuple[int, ...] | None = None
) -> Slot:
    """Unpack a slot's bytes, of which those up to HOT_END were read before the others.

    ``same``: one whose bytes from there on were the same, so that its blocks are these.
    ``compile_bins``: those of one whose histogram of them was the same in every byte.

    Raises:
        TornError: a block was being written twice meanwhile; read again.
        RecordError: not a slot, another version, or damaged.
    """
    header = check_header(image)
    rare = same.compile if same else newest(image, COMPILE_BLOCK, _compile)
    words = _WORDS.unpack_from(image, STEPS_OFFSET)
    steps = StepCounts(**dict(zip(STEPS_INDEX, words, strict=True)))
    return Slot(
        header=header,
        identity=same.identity if same else unpack_identity(image),
        steps=_caught_up(steps, rare, header.warm_steps),
        compile=rare,
        clean_bins=_BINS.unpack_from(image, CLEAN_BINS_OFFSET),
        compile_bins=compile_bins or _BINS.unpack_from(image, COMPILE_BINS_OFFSET),
    )


@lru_cache(maxsize=2048)
def _compile(sealed: bytes) -> CompileCounts:
    """The compile block in a sealed place; a monitor finds the same one at nearly every look."""
    payload = unseal(sealed)
    if len(payload) != _COMPILE.size:
        raise RecordError(f"its compile block has {len(payload)} bytes, not {_COMPILE.size}")
    return unflatten(CompileCounts(), _COMPILE.unpack(payload))


def _caught_up(steps: StepCounts, rare: CompileCounts, warm_steps: int) -> StepCounts:
    """The hot words, no older than what the compile block says of them.

    They were read first. A step that the block tells of was marked, though its words may say so
    only after they were read: without this, a rank that has just become warm for the first time
    would be one step short of it, and look as if it compiled again.
    """
    marked, at = rare.clean_after, rare.irregular_step_ns
    if rare.last_warmup.warm_ns > at:
        marked, at = marked + warm_steps, rare.last_warmup.warm_ns
    if steps.steps >= marked:
        return steps
    return replace(steps, steps=marked, last_step_ns=max(steps.last_step_ns, at))
