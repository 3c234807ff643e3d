"""Metric families as text: the Prometheus format and OpenMetrics, which differ in their
headers.

prometheus_client negotiates the format and defines how numbers are formatted. Its own encoders take
five times as long for the five hundred ranks of one host; tests compare these lines with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import copysign
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from warmwatch_monitor.metrics.families import ESCAPES, Distribution, Family, pair

_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

# by their media type in Accept; the library defines each content type
_VERSIONS = {
    "application/openmetrics-text": ("", "1.0.0"),
    "text/plain": ("", "0.0.4", "1.0.0"),
}

_spelled: Callable[[Any], str] = floatToGoString
_known = lru_cache(maxsize=8192)(_spelled)


_ZERO, _MINUS_ZERO = _spelled(0.0), _spelled(-0.0)


def number(value: Any) -> str:
    """``value`` as the library formats it; 0 and -0 are one cache key with two texts.

    Two of three values are 0, so they have a shortcut.
    """
    if value:
        return _known(value)
    return _ZERO if copysign(1.0, value) > 0 else _MINUS_ZERO


@lru_cache(maxsize=64)
def content_type(accept: str | None) -> str:
    """The content type of the requested format, of the versions that this module writes.

    The library accepts any version and returns it unchanged.
    """
    names = [name for name in (accept or "").split(",") if _is_written(name)]
    return str(choose_encoder(",".join(names))[1])


def _is_written(accepted: str) -> bool:
    kind, *parameters = (part.strip() for part in accepted.split(";"))
    versions = [
        parameter.partition("=")[2] for parameter in parameters if parameter.startswith("version=")
    ]
    return all(version in _VERSIONS.get(kind, ()) for version in versions)


def encode(families: Iterable[Family], accept: str | None) -> tuple[bytes, str]:
    """Families with a sample in the format that ``Accept`` requests, and its content type."""
    kind = content_type(accept)
    openmetrics = kind.startswith("application/openmetrics-text")
    header = _openmetrics_header if openmetrics else _plain_header
    parts: list[str] = []
    for family in families:
        at = len(parts)
        parts.extend(_histograms(family) if family.type == "histogram" else _lines(family))
        if len(parts) > at:
            name = family.name if openmetrics else family.sample_name
            parts.insert(at, header(name, family.help, family.type))
    if openmetrics:
        parts.append("# EOF")
    parts.append("")  # the last line ends, too
    return "\n".join(parts).encode(), kind


def _lines(family: Family) -> list[str]:
    """One line per sample. Hot path: formats shared parts once."""
    name, label, lines = family.sample_name, family.label, list[str]()
    own = [pair(label, column) if label else "" for column in family.columns]
    for labels, values in family.rows:
        before, after = labels.around(label)
        if not label and not after:
            lines += [f"{name} {number(value)}" for value in values if value is not None]
            continue
        start, end = f"{name}{{{before}", f"{after}}} "
        lines += [
            f"{start}{column}{end}{number(value)}"
            for column, value in zip(own, values, strict=True)
            if value is not None
        ]
    return lines


def _histograms(family: Family) -> Iterator[str]:
    name, label = family.name, family.label
    bounds = [pair("le", bound) for bound in (*map(number, family.bounds), "+Inf")]
    for labels, column, value in family.samples():
        assert isinstance(value, Distribution)
        before, after = labels.around(label)
        own = f"{before}{pair(label, column)}"
        names = bounds if value.upto else bounds[-1:]
        for bound, count in zip(names, (*value.upto, value.count), strict=True):
            yield f"{name}_bucket{{{own},{bound}{after}}} {number(count)}"
        yield f"{name}_count{{{own}{after}}} {number(value.count)}"
        yield f"{name}_sum{{{own}{after}}} {number(value.sum)}"


@lru_cache(maxsize=1024)
def _plain_header(name: str, help: str, type: str) -> str:
    type_ = "gauge" if type == "info" else type
    return f"# HELP {name} {help.translate(_HELP_ESCAPES)}\n# TYPE {name} {type_}"


@lru_cache(maxsize=1024)
def _openmetrics_header(name: str, help: str, type: str) -> str:
    return f"# HELP {name} {help.translate(ESCAPES)}\n# TYPE {name} {type}"
