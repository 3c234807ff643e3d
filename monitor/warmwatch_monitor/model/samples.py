"""What was read of a Prometheus server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series' last value; ``name`` is without the prefix ``warmwatch_``."""

    name: str
    labels: Mapping[str, str]
    value: float
