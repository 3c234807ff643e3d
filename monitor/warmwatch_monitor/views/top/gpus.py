"""The GPUs as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.text import Text

from warmwatch_monitor.views.table import wrapped

_HEAD = ("", "GPU", "power", "busy", "SMs", "memory", "temp", "held down by", "name")
_LEFT = frozenset({"", "held down by", "name"})
_UNKNOWN = "-"


def gpus(answer: Mapping[str, Any], own: frozenset[str], width: int) -> list[Text]:
    """A line for each; ``own``, those of the rank that is looked at, are marked with a star."""
    known = answer.get("gpus") or ()
    if not known:
        return [Text(line, style="dim") for line in _none(answer, width)]
    rows = [_HEAD, *(_row(gpu, gpu["uuid"] in own) for gpu in known)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = []
    for row in rows:
        cells = zip(_HEAD, row, widths, strict=True)
        text = "  ".join(t.ljust(w) if head in _LEFT else t.rjust(w) for head, t, w in cells)
        lines.append(Text(text.rstrip(), style="dim" if row is _HEAD else "", no_wrap=True))
    for gpu in known:
        trouble = f"GPU {gpu['index']}: {gpu['trouble']}" if gpu["trouble"] else ""
        lines += [Text(line, style="red") for line in wrapped(trouble, width) if line]
    return lines


def _none(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    """Why none is known, where a source says it."""
    yield "no GPU is known here"
    for source in answer.get("sources", ()):
        if source["source"] == "nvml" and source["error"]:
            yield from wrapped(f"{source['source']}: {source['error']}", width)


def _row(gpu: Mapping[str, Any], own: bool) -> tuple[str, ...]:
    return (
        "*" if own else "",
        str(gpu["index"]),
        _of(gpu["power_watts"], gpu["power_limit_watts"], 1, "W"),
        _if_known(gpu["utilization_ratio"], _percent),
        _if_known(gpu["sm_active_ratio"], _percent),
        _of(gpu["memory_used_bytes"], gpu["memory_total_bytes"], 2**30, "GiB"),
        _if_known(gpu["temperature_celsius"], lambda degrees: f"{degrees:.0f} C"),
        ", ".join(gpu["throttled"] or ()),
        gpu["profile"] or gpu["name"] or "",
    )


def _of(value: float | None, most: float | None, unit: float, name: str) -> str:
    """``686/700 W``."""
    if value is None:
        return _UNKNOWN
    of = "" if most is None else f"/{most / unit:.0f}"
    return f"{value / unit:.0f}{of} {name}"


def _if_known(value: float | None, words: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else words(value)


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"
