"""Numbers of ranks as people write them: ``0-3,6``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MOST = 100_000


def named(ranks: Iterable[int]) -> str:
    """``0-3,6``, of the ranks in order."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def numbers(name: str) -> list[int]:
    """The ranks again. Raises ValueError where it names none."""
    found: list[int] = []
    for part in name.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(name)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > _MOST:
            raise ValueError(name)
        found += range(first, last + 1)
    return found
