"""The slot's bytes: offsets, structs, pack and unpack. The package's docstring explains them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, TypeVar

from warmwatch.record.bins import BINS
from warmwatch.record.facts import CompileCounts, Header, Identity, Slot, StepCounts, Warmup

MAGIC = b"WARMWTCH"
VERSION = 1
SIZE = 12288

_HEADER = struct.Struct("<8sIIQQQ")
_LENGTH = struct.Struct("<I")
IDENTITY_OFFSET = 64
IDENTITY_LIMIT = 2048 - IDENTITY_OFFSET - _LENGTH.size
STEPS_OFFSET = 2048
COMPILE_OFFSET = 2304
BLOCKS_END = 4096
CLEAN_BINS_OFFSET = 4096
COMPILE_BINS_OFFSET = 8192


class RecordError(ValueError):
    """The bytes are not a slot that this version can read; the message says why."""


_Block = TypeVar("_Block", StepCounts, CompileCounts, Warmup)

# ``steps``, which is the mark, the other fields, then the mark again
STEPS_STRUCT = struct.Struct(f"<{len(fields(StepCounts)) + 1}Q")


def _flatten(block: Any) -> list[int]:
    words: list[int] = []
    for field in fields(block):
        value = getattr(block, field.name)
        if isinstance(value, int):
            words.append(value)
        else:
            words.extend(value if isinstance(value, tuple) else _flatten(value))
    return words


def _unflatten(default: _Block, words: Sequence[int], start: int = 0) -> _Block:
    values: dict[str, Any] = {}
    for field in fields(default):
        value = getattr(default, field.name)
        if isinstance(value, int):
            values[field.name], start = words[start], start + 1
        elif isinstance(value, tuple):
            values[field.name] = tuple(words[start : start + len(value)])
            start += len(value)
        else:
            values[field.name] = _unflatten(value, words, start)
            start += len(fields(value))
    return type(default)(**values)


def _index(block: Any, start: int = 0, prefix: str = "") -> dict[str, int]:
    index: dict[str, int] = {}
    for field in fields(block):
        value = getattr(block, field.name)
        index[prefix + field.name] = start
        if isinstance(value, int):
            start += 1
        elif isinstance(value, tuple):
            start += len(value)
        else:
            index |= _index(value, start, f"{prefix}{field.name}.")
            start += len(fields(value))
    return index


# Where each field of CompileCounts begins among its words, such as "first_warmup.steps": the agent
# keeps the words themselves, since it stores them some hundred times while a model compiles.
COMPILE_WORDS = len(_flatten(CompileCounts()))
COMPILE_INDEX = _index(CompileCounts())
COMPILE_STRUCT = struct.Struct(f"<{COMPILE_WORDS + 2}Q")
assert STEPS_OFFSET + STEPS_STRUCT.size <= COMPILE_OFFSET
assert COMPILE_OFFSET + COMPILE_STRUCT.size <= BLOCKS_END
assert CLEAN_BINS_OFFSET + 8 * BINS <= COMPILE_BINS_OFFSET
assert COMPILE_BINS_OFFSET + 8 * BINS <= SIZE


def pack_header(header: Header) -> bytes:
    """The header's bytes, magic first."""
    return _HEADER.pack(
        MAGIC, VERSION, SIZE, header.warm_steps, header.attached_ns, header.attached_epoch_ns
    )


def pack_identity(identity: Identity) -> bytes:
    """Length and JSON of ``identity``, cut to what fits by shortening its names."""
    known = {k: v for k, v in asdict(identity).items() if k == "run" or v not in (None, "", ())}
    for limit in (200, 40):
        body = json.dumps({k: _shorten(v, limit) for k, v in known.items()}).encode()
        if len(body) <= IDENTITY_LIMIT:
            return _LENGTH.pack(len(body)) + body
    raise RecordError(f"the identity takes {len(body)} bytes, {IDENTITY_LIMIT} are there")


def _shorten(value: Any, limit: int) -> Any:
    return value[:limit] if isinstance(value, str) else value


def pack_compile(mark: int, counts: CompileCounts) -> bytes:
    """The rare block's bytes; ``mark`` differs from the one before."""
    return COMPILE_STRUCT.pack(mark, *_flatten(counts), mark)


def pack_steps(counts: StepCounts) -> bytes:
    """The hot block's bytes (the agent's hot path packs the same words inline)."""
    return STEPS_STRUCT.pack(*_flatten(counts), counts.steps)


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
    if size != SIZE or len(data) < SIZE:
        raise RecordError(f"torn record: {len(data)} bytes of {SIZE}")
    return Header(
        warm_steps=warm_steps, attached_ns=attached_ns, attached_epoch_ns=attached_epoch_ns
    )


def unpack(images: Sequence[bytes]) -> Slot | None:
    """Unpack three images of one slot, taken one after another.

    Returns ``None`` where a block was being written meanwhile: read again.

    Raises:
        RecordError: not a slot, another version, or torn.
    """
    first, second, third = images
    header = check_header(second)
    steps = _block(STEPS_STRUCT, STEPS_OFFSET, first, second, third)
    rare = _block(COMPILE_STRUCT, COMPILE_OFFSET, first, second, third)
    renamed = slice(IDENTITY_OFFSET, STEPS_OFFSET)
    if steps is None or rare is None or first[renamed] != third[renamed]:
        return None
    return Slot(
        header=header,
        identity=unpack_identity(second[IDENTITY_OFFSET:STEPS_OFFSET]),
        steps=_unflatten(StepCounts(), steps[:-1]),
        compile=_compile(rare[1:-1]),
        clean_bins=_BINS.unpack_from(second, CLEAN_BINS_OFFSET),
        compile_bins=_BINS.unpack_from(second, COMPILE_BINS_OFFSET),
    )


_BINS = struct.Struct(f"<{BINS}Q")


@lru_cache(maxsize=2048)
def _compile(words: tuple[int, ...]) -> CompileCounts:
    """The rare block; a monitor finds the same one at nearly every look."""
    return _unflatten(CompileCounts(), words)


def _block(
    layout: struct.Struct, offset: int, first: bytes, second: bytes, third: bytes
) -> tuple[int, ...] | None:
    end = layout.unpack_from(first, offset)[-1]
    front = layout.unpack_from(third, offset)[0]
    return layout.unpack_from(second, offset) if end == front else None


@lru_cache(maxsize=1024)
def unpack_identity(data: bytes) -> Identity:
    """Read the identity from a slot's bytes ``[IDENTITY_OFFSET:STEPS_OFFSET]``.

    Raises:
        RecordError: the bytes are no identity.
    """
    (length,) = _LENGTH.unpack_from(data)
    try:
        known: Mapping[str, Any] = json.loads(data[_LENGTH.size :][:length])
        values: dict[str, Any] = {
            f.name: tuple(value) if isinstance(value := known[f.name], list) else value
            for f in fields(Identity)
            if f.name in known
        }
        return Identity(**values)
    except (ValueError, TypeError) as error:
        raise RecordError(f"torn record: its identity cannot be read ({error})") from None
