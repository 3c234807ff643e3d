"""The ranks of a run beside each other: the slowest first, then what they did otherwise. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warmwatch_monitor.export.lengths import clean_step
from warmwatch_monitor.export.report.parts import RankLine
from warmwatch_monitor.export.words.amounts import took
from warmwatch_monitor.export.words.differences import numbers
from warmwatch_monitor.export.words.wording import counted
from warmwatch_monitor.model import CATEGORIES
from warmwatch_monitor.model.account import RankAccount

# as the sentence of a living run has it: a difference that is long and a large share
_APART_SECONDS, _APART_SHARE = 5.0, 0.2
_STEP_SHARE = 0.05

Rank = Mapping[str, Any]


def line(account: RankAccount) -> RankLine:
    """One rank's row."""
    rank = account.answer
    first = rank["warmup"].get("first")
    return RankLine(
        rank=account.rank,
        state=rank["state"],
        steps=rank["steps"],
        compile_seconds=rank["compile"]["seconds"],
        warmup_seconds=first["seconds"] if first else None,
        recompiles=rank["compile"]["recompiles"],
        graphs=rank["compile"]["graphs"],
        step_seconds=clean_step(rank),
    )


def differences(ranks: Sequence[RankAccount]) -> Iterator[str]:
    """One sentence for each thing in which they differ."""
    if len(ranks) < 2:
        return
    lines = [line(one) for one in ranks]
    yield from _apart(lines)
    yield from _counts(lines)
    yield from _categories(ranks)
    yield from _slow_steps(lines)
    yield from _states(lines)


def _apart(lines: Sequence[RankLine]) -> Iterator[str]:
    least = min(lines, key=lambda one: one.compile_seconds)
    most = max(lines, key=lambda one: one.compile_seconds)
    gap = most.compile_seconds - least.compile_seconds
    if gap >= max(_APART_SECONDS, _APART_SHARE * most.compile_seconds):
        yield f"rank {most.rank} compiled {took(gap)} longer than rank {least.rank}"


def _counts(lines: Sequence[RankLine]) -> Iterator[str]:
    for noun, key in (("graph", "graphs"), ("recompile", "recompiles")):
        known = [(getattr(one, key), one.rank) for one in lines if getattr(one, key) is not None]
        if known and min(known)[0] != max(known)[0]:
            (few, least), (many, most) = min(known), max(known)
            yield f"{counted(many, noun)} in rank {most}, {few} in rank {least}"


def _categories(ranks: Sequence[RankAccount]) -> Iterator[str]:
    for category in CATEGORIES:
        hit = [one.rank for one in ranks if any(c.category == category for c in one.compiled)]
        if hit and len(hit) < len(ranks):
            yield f"only {numbers(hit)} recompiled for {category}"


def _slow_steps(lines: Sequence[RankLine]) -> Iterator[str]:
    known = [(one.step_seconds, one.rank) for one in lines if one.step_seconds]
    if len(known) > 1 and max(known)[0] > (1 + _STEP_SHARE) * min(known)[0]:
        (short, least), (long, most) = min(known), max(known)
        yield f"a clean step takes {took(long)} in rank {most}, {took(short)} in rank {least}"


def _states(lines: Sequence[RankLine]) -> Iterator[str]:
    by_state: dict[str, list[int]] = {}
    for one in lines:
        by_state.setdefault(one.state, []).append(one.rank)
    if len(by_state) > 1:
        said = sorted(by_state.items(), key=lambda item: -len(item[1]))
        yield "; ".join(f"{numbers(ranks)}: {state}" for state, ranks in said)
