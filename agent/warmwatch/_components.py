"""What a compile cache's key is made of: names and short hashes, and nothing of what they hash.

PyTorch tells each part of a key as ``[hash] name: text``, where the text may be the user's graph.
Of that stay the name, where it reads as one, and the hash's beginning. Of an input the text says on
which device it is: its index is told by itself, and taken out of that input's hash, for else every
input of a rank would differ from every input of another.

A key of a large model has thousands of parts, most of them the same each time. So the first one of
a cache is told whole and the others by what differs from it, packed, up to a bound for the process.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

ROOM = 512 * 1024  # of packed components in a process's journal
LONGEST = 48 * 1024  # of one, or its line would not be believed
MOST = 20_000
_HASH = 6
_LOOKED_AT = 4_000  # characters of a text
_PART = re.compile(r"\[([a-z2-7]{6,})\] ([A-Za-z_]\w{0,79})(?:\[([\w.]{1,80})\])?(?=:)")
_WHOLE_NAME = re.compile(r"\[([a-z2-7]{6,})\] ([A-Za-z_]\w{0,79})")
_INDEX = re.compile(r"(device\(type='(?:cuda|xpu)', index=|device='?(?:cuda|xpu):)(\d{1,4})")
_INPUTS = "example_inputs"
DEVICE = "device_index"


def named(lines: Sequence[str]) -> dict[str, str]:
    """The parts of a key: short hash by name, of names that are told twice the last."""
    parts: dict[str, str] = {}
    indices: set[str] = set()
    for line in lines[:MOST]:
        if (found := _PART.match(line)) is not None:
            name = found[2] if found[3] is None else f"{found[2]}[{found[3]}]"
        elif (found := _WHOLE_NAME.match(line)) is not None:
            name = f"{found[2]}[...]"  # a key that may be anything
        else:
            continue
        parts[name] = found[1][:_HASH]
        if found[2] == _INPUTS and (on := _INDEX.findall(line[:_LOOKED_AT])):
            indices.update(index for _, index in on)
            parts[name] = _hash(_INDEX.sub(r"\1", line[found.end() : _LOOKED_AT]))
    if indices:
        parts[DEVICE] = ",".join(sorted(indices))[:_HASH]
    return parts


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_HASH // 2).hexdigest()


class Told:
    """What of the keys was told before: the first of each cache, and how much room is left."""

    def __init__(self) -> None:
        self._first: dict[str, Mapping[str, str]] = {}
        self._room = ROOM

    def packed(self, cache: str, lines: Sequence[str]) -> dict[str, Any]:
        """How a journal's line tells a key's parts; how many alone where there is no room."""
        if not lines:
            return {}
        parts = named(lines)
        first = self._first.get(cache)
        said = parts if first is None else _differences(first, parts)
        text = "\n".join(f"{name} {short}" for name, short in said.items())
        data = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
        if len(data) > min(LONGEST, self._room):
            return {"parts": len(parts)}
        self._room -= len(data)
        if first is None:
            self._first[cache] = parts
        return {"parts": len(parts), "whole": first is None, "packed": data}


def _differences(first: Mapping[str, str], parts: Mapping[str, str]) -> dict[str, str]:
    """What differs from the first; ``-`` for what is not there any more."""
    changed = {name: short for name, short in parts.items() if first.get(name) != short}
    return {**changed, **{name: "-" for name in first if name not in parts}}
