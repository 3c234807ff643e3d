"""Decodes a journal line: typed, finite and bounded, or refused. Pure.

In a shared directory anybody can write a journal, so a line is accepted only if an agent could have
written it.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.values import MOST_OPTIONS, printable
from warmwatch_monitor.model.journal import MOST_KERNELS, MOST_METHODS, MOST_PLACES, Line, Target

LARGEST_JOURNAL = 2 * record.JOURNAL_LIMIT  # to read completely; an agent stops at half
LONGEST_LINE = 64 * 1024
LONGEST_TEXT = 4_000
LONGEST_NAME = 300
# PyTorch's words, and packed hashes; all other texts are names
_TEXTS = {"reason", "failure_reason", "failure_hint", "cudagraph_skip", "hint", "message"}
_UNBOUNDED = "packed"  # by the line alone
_MOST = {
    "slowest": MOST_KERNELS,
    "methods": MOST_METHODS,
    "options": MOST_OPTIONS,
    "also": MOST_PLACES,
}
# A newer agent's name that is unknown here is read as "other".
_KNOWN = {"kind": frozenset(record.KINDS), "category": frozenset(record.REASONS)}


_Of = TypeVar("_Of", bound=Struct)


class _Head(Struct):
    event: str


_head = msgspec.json.Decoder(_Head)
_decoders = {
    str(line.__struct_config__.tag): msgspec.json.Decoder(line)
    for line in (*get_args(Line), Target)
}


def parse(line: bytes) -> Line | None:
    """The line's struct; ``None`` for an event that monitors do not read.

    Raises:
        ValueError: no agent writes such a line.
    """
    if len(line) > LONGEST_LINE:
        raise ValueError("longer than any agent's line")
    try:
        decoder = _decoders.get(_head.decode(line).event)
        return None if decoder is None else _bounded(decoder.decode(line))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


def _bounded(line: _Of) -> _Of:
    """The line with its texts printable, its lists and texts cut, and its closed names known."""
    changed: dict[str, Any] = {}
    for name in line.__struct_fields__:
        value = getattr(line, name)
        if isinstance(value, str) and name != _UNBOUNDED:
            text = _text(value, LONGEST_TEXT if name in _TEXTS else LONGEST_NAME)
            if name in _KNOWN and text not in _KNOWN[name]:
                text = "other"
            if text != value:
                changed[name] = text
        elif isinstance(value, tuple) and value and not isinstance(value[0], int):
            changed[name] = tuple(_item(item) for item in value[: _MOST[name]])
        elif isinstance(value, dict):
            changed[name] = {phase: value[phase] for phase in record.PHASES if phase in value}
    return replace(line, **changed) if changed else line


def _item(item: Any) -> Any:
    """An option or a method, a place, or a kernel with its time."""
    if isinstance(item, Struct):
        return _bounded(item)
    return _text(item, LONGEST_NAME) if isinstance(item, str) else (_item(item[0]), item[1])


def _text(value: str, longest: int) -> str:
    value = value if len(value) <= longest else f"{value[:longest]}..."
    return printable(value, keep="\n")  # a reason has a line for each compiled entry
