"""Where the time of one rank went, from its part of ``/status``: what is said at an end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmwatch_monitor.export.words.wording import duration, own_words, step_length


def account(rank: dict[str, Any]) -> list[str]:
    """A few lines; what is not known has none."""
    return ["Where the time went", *(f"  {what:13} {words}" for what, words in _parts(rank))]


def _parts(rank: dict[str, Any]) -> Iterator[tuple[str, str]]:
    steps, first = rank["step_seconds"], rank["warmup"]["first"]
    speed = "" if steps["median"] is None else f"; at full speed {step_length(steps['median'])}"
    if steps["first"] is not None:
        yield "first step", f"{duration(steps['first'])}{speed}"
    if rank["compile"]["compilations"]:
        yield from _compiling(rank["compile"])
    if first:
        many = "step" if first["steps"] == 1 else "steps"
        yield "warm-up", f"{duration(first['seconds'])} and {first['steps']} {many}"
    yield from _pauses(rank["pauses"])
    yield from _again(rank["compile"])


def _compiling(compile: dict[str, Any]) -> Iterator[tuple[str, str]]:
    phases = sorted(compile["phase_seconds"].items(), key=lambda item: -item[1])
    many = "compilation" if compile["compilations"] == 1 else "compilations"
    yield "compiling", f"{duration(compile['seconds'])} in {compile['compilations']} {many}"
    if phases:
        yield "", ", ".join(f"{name} {duration(taken)}" for name, taken in phases)


def _pauses(pauses: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What held it up and was no compilation."""
    for what, key in (
        ("evaluating", "evaluation_seconds"),
        ("saving", "checkpoint_seconds"),
        ("data", "data_seconds"),
    ):
        if (seconds := pauses.get(key)) is not None and seconds >= 0.1:
            yield what, duration(seconds)


def _again(compile: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Why it compiled again, and what helps."""
    for entry in compile["last"]:
        if entry["category"]:
            why = entry["plain"] or own_words(entry["reason"] or entry["category"])
            yield "compiled again", f"{duration(entry['seconds'] or 0.0)}: {why}"
            yield "", f"({entry['category']}) {entry['advice'] or ''}".rstrip()
