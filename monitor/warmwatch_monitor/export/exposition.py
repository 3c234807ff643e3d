"""Families of series as text: the Prometheus format and OpenMetrics, which differ in their headers.

A line is made once, where its value is known, and is the same in both formats. prometheus_client
says which format a scraper asks for and how a number is spelled; its own encoders take five times
as long for the five hundred ranks of one host, and the tests hold these lines against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

number = lru_cache(maxsize=8192)(floatToGoString)


@dataclass(slots=True)
class Family:
    """One family: ``name`` as OpenMetrics has it, without ``_total`` or ``_info``."""

    name: str
    help: str
    type: str
    lines: list[str] = field(default_factory=list)

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """One sample."""
        self.lines.append(line(name, label_text(labels), value))


def line(name: str, labels: str, value: float) -> str:
    """One sample; ``labels`` as :func:`label_text` gives them."""
    return f"{name}{{{labels}}} {number(value)}" if labels else f"{name} {number(value)}"


def label_text(labels: Mapping[str, str]) -> str:
    """What stands between the braces: sorted by name, values escaped."""
    parts = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return ",".join(parts)


def encode(families: Iterable[Family], accept: str | None) -> tuple[bytes, str]:
    """Those with a sample, in the format that ``Accept`` asks for, and its content type."""
    _, content_type = choose_encoder(accept or "")
    openmetrics = content_type.startswith("application/openmetrics-text")
    header = _openmetrics_header if openmetrics else _plain_header
    parts: list[str] = []
    for family in families:
        if family.lines:
            parts += (header(family), *family.lines)
    if openmetrics:
        parts.append("# EOF")
    return "".join(f"{part}\n" for part in parts).encode(), content_type


def _plain_header(family: Family) -> str:
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    type_ = "gauge" if family.type == "info" else family.type
    name = f"{family.name}{suffix}"
    return f"# HELP {name} {family.help.translate(_HELP_ESCAPES)}\n# TYPE {name} {type_}"


def _openmetrics_header(family: Family) -> str:
    help = family.help.translate(_ESCAPES)
    return f"# HELP {family.name} {help}\n# TYPE {family.name} {family.type}"
