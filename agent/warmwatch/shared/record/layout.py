"""The slot: offsets, header, pack and unpack. The package's docstring explains them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from warmwatch.shared.record import identity as _identity
from warmwatch.shared.record.counters import flatten, index, shape, unflatten
from warmwatch.shared.record.facts import (
    DISABLED,
    ENDS,
    PHASES,
    PROGRESS,
    SETTLED_BY,
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
)
from warmwatch.shared.record.histogram import BINS
from warmwatch.shared.record.recent import RING, length_ns, newest_first
from warmwatch.shared.record.sealed_blocks import Block, RecordError, newest, store, unseal

if TYPE_CHECKING:
    from warmwatch.shared.record.sealed_blocks import Buffer

MAGIC = b"WARMWTCH"
VERSION = 5
READABLE = (4, 5)  # versions that this release reads: its own and the one before
PAGE = 4096

_HEADER = struct.Struct("<8sIIQQQ")
# The writer's block layout: words and room of the compile block, room of the identity, and the
# number of words of each composite field of CompileCounts.
_LAYOUT = struct.Struct("<3I52B")
_WORDS = struct.Struct(f"<{len(StepCounts._fields)}Q")
_BINS = struct.Struct(f"<{BINS}Q")
_RING = struct.Struct(f"<{RING}Q")
STEPS_OFFSET = 64
LAYOUT_OFFSET = PAGE - _LAYOUT.size
CLEAN_BINS_OFFSET = PAGE
COMPILE_BINS_OFFSET = 2 * PAGE
# At the end of the page with the clean bins, which a step writes anyway.
RING_OFFSET = COMPILE_BINS_OFFSET - 8 * RING
HOT_END = 3 * PAGE
COMPILE_BLOCK = Block(offset=HOT_END, room=PAGE // 2)
IDENTITY_BLOCK = Block(offset=COMPILE_BLOCK.end, room=PAGE)
SIZE = IDENTITY_BLOCK.end
LARGEST_SIZE = 16 * PAGE  # of a readable slot; a newer release may have longer blocks

# The index of each field among the words of its block, such as "first_warmup.steps". The agent uses
# the words themselves, since it stores them some hundred times during a compilation.
STEPS_INDEX = index(StepCounts())
COMPILE_WORDS = len(flatten(CompileCounts()))
COMPILE_INDEX = index(CompileCounts())
_COMPILE = struct.Struct(f"<{COMPILE_WORDS}Q")
_SHAPE = shape(CompileCounts())
# Each code of a closed list: its field, its number of codes in this release, and the "other" code.
_CODED = (
    ("active_phase", 1 + len(PHASES), 1 + PHASES.index("other")),
    ("end_code", len(ENDS), 0),
    ("disabled", len(DISABLED), 0),
    ("progress_of", 1 + len(PROGRESS), 0),
    ("settled_by", len(SETTLED_BY), SETTLED_BY.index("ready")),
)
_MOST_CODES = 256  # more than any closed list will have: a higher code is damage
assert len(STEPS_INDEX) == len(flatten(StepCounts())), "each field of StepCounts is one word"
assert STEPS_OFFSET + _WORDS.size <= LAYOUT_OFFSET
assert CLEAN_BINS_OFFSET + _BINS.size <= RING_OFFSET
assert _BINS.size <= PAGE
assert _COMPILE.size <= COMPILE_BLOCK.limit


class _Layout:
    """Offsets of the blocks in one release's slot, and the shape of its compile block.

    ``words`` is the length of the compile block; ``shape`` holds the number of words of each of
    its composite fields, in their order.
    """

    __slots__ = ("compile", "identity", "shape", "words")

    def __init__(self, compile: Block, identity: Block, words: int, shape: tuple[int, ...]) -> None:
        self.compile, self.identity, self.words, self.shape = compile, identity, words, shape


# Version 4 did not write its layout. These values are final.
_VERSION_4 = _Layout(
    compile=Block(offset=HOT_END, room=2048),
    identity=Block(offset=HOT_END + 2 * 2048, room=4096),
    words=108,
    shape=(4, 4, 10, 8, 8, 11, 3, 3, 4),
)


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
    rooms = COMPILE_WORDS, COMPILE_BLOCK.room, IDENTITY_BLOCK.room
    _LAYOUT.pack_into(buffer, LAYOUT_OFFSET, *rooms, *_SHAPE, *(0,) * (52 - len(_SHAPE)))
    store_compile(buffer, [0] * COMPILE_WORDS)
    return buffer


def check_header(data: bytes) -> Header:
    """Read a slot's header.

    Raises:
        RecordError: not a slot, or one of a version that this release does not read.
    """
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
        raise RecordError("not a warmwatch record (wrong magic number)")
    _, version, size, warm_steps, attached_ns, attached_epoch_ns = _HEADER.unpack_from(data)
    if version not in READABLE:
        old = "training" if version < READABLE[0] else "monitor"
        raise RecordError(
            f"record of version {version}, this warmwatch reads versions {READABLE[0]} and "
            f"{READABLE[-1]}: upgrade the {old}'s warmwatch"
        )
    if not SIZE <= size <= LARGEST_SIZE:
        raise RecordError(f"a record of {size} bytes, which no release writes: its size is damaged")
    if len(data) < size:
        raise RecordError(f"torn record: {len(data)} bytes of {size}")
    return Header(
        warm_steps=warm_steps, attached_ns=attached_ns, attached_epoch_ns=attached_epoch_ns
    )


def size_of(start: bytes) -> int:
    """The number of bytes to read of the slot that begins with ``start``, within bounds."""
    if len(start) < _HEADER.size:
        return SIZE
    size: int = _HEADER.unpack_from(start)[2]
    return min(max(size, SIZE), LARGEST_SIZE)


def _layout_of(image: bytes) -> _Layout:
    """The layout that the writer of ``image`` used.

    Raises:
        RecordError: its description is damaged.
    """
    _, version, size, *_ = _HEADER.unpack_from(image)
    return _layout(version, size, image[LAYOUT_OFFSET:PAGE])


@lru_cache(maxsize=64)
def _layout(version: int, size: int, described: bytes) -> _Layout:
    if version == 4:
        return _VERSION_4
    words, compile_room, identity_room, *lengths = _LAYOUT.unpack(described)
    compile_block = Block(offset=HOT_END, room=compile_room)
    identity = Block(offset=compile_block.end, room=identity_room)
    # every release has at least the blocks of version 4, since fields are only appended
    least = _VERSION_4.shape
    fits = (
        compile_room >= _VERSION_4.compile.room
        and identity_room >= _VERSION_4.identity.room
        and identity.end <= size
        and _VERSION_4.words <= words <= compile_block.limit // 8
        and all(length >= short for length, short in zip(lengths, least, strict=False))
        and sum(lengths) <= words
    )
    if not fits:
        raise RecordError("torn record: the description of its layout is damaged")
    return _Layout(
        compile=compile_block,
        identity=identity,
        words=words,
        shape=tuple(takewhile(bool, lengths)),
    )


def unpack_identity(image: bytes) -> Identity:
    """Only the identity, from a slot with a valid header.

    Raises:
        TornError: it is being written. RecordError: it is invalid.
    """
    return newest(image, _layout_of(image).identity, _identity.unseal_identity)


def unpack(image: bytes) -> Slot:
    """Unpack a slot's bytes, of which those up to HOT_END were read before the others.

    Raises:
        TornError: a block was written twice meanwhile; read again.
        RecordError: not a slot, another version, or damaged.
    """
    header = check_header(image)
    layout = _layout_of(image)
    slot = Slot(
        header=header,
        identity=newest(image, layout.identity, _identity.unseal_identity),
        steps=StepCounts(),
        compile=newest(image, layout.compile, lambda sealed: _compile(sealed, layout)),
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


def _compile(sealed: bytes, layout: _Layout) -> CompileCounts:
    """The compile block in a sealed place.

    A block longer than this release's is not cached: forged ones would take the memory.
    """
    unpack = _cached_compile if len(sealed) <= COMPILE_BLOCK.room else _cached_compile.__wrapped__
    return unpack(sealed, layout)


@lru_cache(maxsize=512)
def _cached_compile(sealed: bytes, layout: _Layout) -> CompileCounts:
    payload = unseal(sealed)
    if len(payload) != 8 * layout.words:
        raise RecordError(f"its compile block has {len(payload)} bytes, not {8 * layout.words}")
    words = struct.unpack(f"<{layout.words}Q", payload)
    return unflatten(CompileCounts(), words, layout.shape)


def with_known_codes(slot: Slot) -> Slot:
    """``slot``, with a newer agent's codes replaced by "other" or dropped.

    A code beyond any possible list is damage; the reader rejects it later.
    """
    counts = slot.compile
    known: dict[str, Any] = {
        name: instead
        for name, codes, instead in _CODED
        if codes <= getattr(counts, name) < _MOST_CODES
    }
    return slot._replace(compile=counts._replace(**known)) if known else slot


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
