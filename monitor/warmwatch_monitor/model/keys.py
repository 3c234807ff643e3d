"""What compile caches were asked, as journals tell it; a miss beside what it is held against."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Asked(Struct, frozen=True, kw_only=True):
    """A compile cache that was asked, or passed by.

    Attributes:
        cache: one of ``record.CACHES``. verdict: of ``bounds.VERDICTS``. id: of the compilation.
        key: the beginning of it. reason: for a bypass.
        parts: how many parts the key has; ``None`` where none were told.
        hashes: of each part by its name; empty where there was no room for them.
    """

    cache: str
    verdict: str
    id: str | None = None
    key: str | None = None
    reason: str | None = None
    parts: int | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)


class Other(Struct, frozen=True, kw_only=True):
    """What a miss is compared with: the same question elsewhere. ``whose``: in words."""

    whose: str
    asked: Asked


class Miss(Struct, frozen=True, kw_only=True):
    """A cache that missed, or was passed by.

    Attributes:
        run, rank: whose. asked: what was asked. other: what it is compared with; ``None`` where
        there is none. differing: names of parts that differ; ``None`` where that is not known.
    """

    run: str
    rank: int
    asked: Asked
    other: Other | None = None
    differing: tuple[str, ...] | None = None
