"""What was read of a Prometheus server."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Sample(Struct, frozen=True, kw_only=True):
    """One series' last value; ``name`` is without the prefix ``warmwatch_``."""

    name: str
    labels: Mapping[str, str]
    value: float
