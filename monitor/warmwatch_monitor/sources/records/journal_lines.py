"""Parses a journal line: typed, finite and bounded, or refused. Pure.

In a shared directory anybody can write a journal, so a line is accepted only if an agent could have
written it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from warmwatch.shared import record
from warmwatch.shared.values import printable
from warmwatch_monitor.model import (
    Beginning,
    Compilation,
    Cost,
    CudagraphSkip,
    Fallback,
    GraphBreak,
    LongStep,
    Place,
    Recompile,
    Spill,
)

LARGEST_JOURNAL = 2 * record.JOURNAL_LIMIT  # to read completely; an agent stops at half
LONGEST_LINE = 64 * 1024
LONGEST_TEXT = 4_000
LONGEST_NAME = 300
MOST_METHODS = 5  # of a module, as many as an agent writes
MOST_KERNELS = 3  # of a compilation, as many as an agent writes
_LARGEST = 2**63 - 1

Entry = Mapping[str, Any]


def parse(line: bytes) -> Entry:
    """A line's JSON object.

    Raises:
        ValueError: it has none, or one that no agent writes.
    """
    if len(line) > LONGEST_LINE:
        raise ValueError("longer than any agent's line")
    try:
        entry = json.loads(line)
    except RecursionError:
        raise ValueError("nested deeper than any agent's line") from None
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    return entry


def compilation(entry: Entry) -> Compilation:
    """Raises ValueError if the entry is not a compilation's."""
    target = _target(entry)
    return Compilation(
        **{**target, "kind": _needed(target["kind"])},
        id=text(entry, "id", LONGEST_NAME),
        at_ns=_needed(_count(entry, "t")),
        seconds=_seconds(entry, "seconds"),
        code=text(entry, "code", LONGEST_NAME),
        cache=text(entry, "cache", LONGEST_NAME),
        failure=text(entry, "failure", LONGEST_NAME),
        failure_reason=text(entry, "failure_reason", LONGEST_TEXT),
        failure_hint=text(entry, "failure_hint", LONGEST_TEXT),
        in_a_row=_count(entry, "in_a_row") or 0,
        instance=_count(entry, "instance"),
        cudagraph_skip=text(entry, "cudagraph_skip", LONGEST_TEXT),
        evaluating=entry.get("evaluating") is True,
        at_limit=entry.get("at_limit") is True,
        backward=entry.get("backward") is True,
        new_sizes=_count(entry, "new_sizes"),
        recorded=_count(entry, "recorded"),
        cost=_cost(entry),
    )


def _cost(entry: Entry) -> Cost:
    guard_us = _count(entry, "guard_us")
    return Cost(
        phase_seconds=_phases(entry.get("phase_us")),
        ops=_count(entry, "ops"),
        guards=_count(entry, "guards"),
        guard_seconds=None if guard_us is None else guard_us / 1e6,
        kernels=_count(entry, "kernels"),
        slowest=_slowest(entry.get("slowest")),
        allocated=_count(entry, "allocated"),
        reserved=_count(entry, "reserved"),
    )


def _phases(raw: Any) -> dict[str, float]:
    """Seconds of the known phases. Raises ValueError if it is no table of counts."""
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise ValueError("phase_us is no table")
    counts = {name: _count(raw, name) for name in record.PHASES}
    return {name: us / 1e6 for name, us in counts.items() if us}


def _slowest(raw: Any) -> tuple[tuple[str, float], ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise ValueError("slowest is no list")
    return tuple(_kernel(one) for one in raw[:MOST_KERNELS])


def _kernel(raw: Any) -> tuple[str, float]:
    if not isinstance(raw, list) or len(raw) != 2:
        raise ValueError("a kernel is no pair")
    pair = {"name": raw[0], "us": raw[1]}
    return _needed(text(pair, "name", LONGEST_NAME)), _needed(_count(pair, "us")) / 1e6


def beginning(entry: Entry) -> Beginning:
    """Raises ValueError if the entry is not that of an activity's begin."""
    return Beginning(
        **_target(entry),
        at_ns=_needed(_count(entry, "t")),
        what=text(entry, "what", LONGEST_NAME),
        code=text(entry, "code", LONGEST_NAME),
        id=text(entry, "id", LONGEST_NAME),
        backward=entry.get("backward") is True,
    )


def steps_by(entry: Entry, key: str) -> tuple[int, int]:
    """The time of the entry, and its step count, else 0."""
    return _needed(_count(entry, "t")), _count(entry, key) or 0


def recompile(entry: Entry) -> Recompile:
    """Raises ValueError if the entry is not a recompile's."""
    return Recompile(**_target(entry), at_ns=_needed(_count(entry, "t")))


def graph_break(entry: Entry) -> GraphBreak:
    """Raises ValueError if the entry is not a graph break's."""
    return GraphBreak(
        **_located(entry),
        reason=_needed(text(entry, "reason", LONGEST_TEXT)),
        count=_needed(_count(entry, "count")),
        library=entry.get("library") is True,
        hint=text(entry, "hint", LONGEST_TEXT),
        whole=entry.get("whole") is True,
    )


def fallback(entry: Entry) -> Fallback:
    """Raises ValueError if the entry is not a fallback's."""
    return Fallback(
        **_located(entry),
        at_ns=_needed(_count(entry, "t")),
        step=_needed(_count(entry, "steps")),
        limit=_count(entry, "limit"),
        setting=text(entry, "setting", LONGEST_NAME),
        id=text(entry, "id", LONGEST_NAME),
        score_bytes=_count(entry, "score_bytes"),
        main_limit=_count(entry, "main_limit"),
        reason=text(entry, "reason", LONGEST_TEXT),
        category=_one_of(record.REASONS, entry, "category"),
        inputs=text(entry, "inputs", LONGEST_NAME),
        variants=_count(entry, "variants"),
        variants_of=text(entry, "variants_of", LONGEST_NAME),
        in_a_row=_count(entry, "in_a_row") or 0,
        in_steps=_count(entry, "in_steps"),
        dynamic=_flag(entry, "dynamic"),
        isolates=entry.get("isolates") is True,
        anew=entry.get("anew") is True,
    )


def spill(entry: Entry) -> Spill:
    """Raises ValueError if the entry is not that of a kernel that spills registers."""
    return Spill(
        kernel=_needed(text(entry, "kernel", LONGEST_NAME)),
        registers=_needed(_count(entry, "registers")),
        seconds=_seconds(entry, "seconds"),
    )


def cudagraph_skip(entry: Entry) -> CudagraphSkip:
    """Raises ValueError if the entry is not that of a skipped CUDA graph."""
    return CudagraphSkip(
        **_located(entry),
        at_ns=_needed(_count(entry, "t")),
        reason=_needed(text(entry, "reason", LONGEST_TEXT)),
    )


def long_step(entry: Entry) -> LongStep:
    """Raises ValueError if the entry is not a long step's."""
    step, seconds = _needed(_count(entry, "n")), _needed(_seconds(entry, "seconds"))
    before = _count(entry, "batches_before")
    return LongStep(
        at_ns=_needed(_count(entry, "t")),
        step=step,
        seconds=seconds,
        usual_seconds=_needed(_seconds(entry, "usual")),
        saving_seconds=min(seconds, _seconds(entry, "saving") or 0.0),
        evaluating_seconds=min(seconds, _seconds(entry, "evaluating") or 0.0),
        between_cells_seconds=min(seconds, _seconds(entry, "between_cells") or 0.0),
        data_seconds=_seconds(entry, "data"),
        batches=_count(entry, "batches"),
        batches_usual=None if before is None or step < 2 else before / (step - 1),
        left_out=_count(entry, "left_out") or 0,
    )


def methods(entry: Entry) -> tuple[str, ...]:
    """Methods of a module that ``torch.compile`` was called with. Raises ValueError."""
    raw = entry.get("methods")
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise ValueError("methods is no list")
    names = (text({"name": one}, "name", LONGEST_NAME) for one in raw[:MOST_METHODS])
    return tuple(name for name in names if name)


def raised(entry: Entry) -> Place | None:
    """The user's line that raised the exception that ended the process."""
    place = _located(entry)
    return None if None in place.values() else Place(**place)


def first_step_bytes(entry: Entry) -> int | None:
    """The peak of CUDA's allocator up to the end of the first step."""
    return _count(entry, "peak_allocated")


def _located(entry: Entry) -> dict[str, Any]:
    return {
        "name": text(entry, "name", LONGEST_NAME),
        "file": text(entry, "file", LONGEST_NAME),
        "line": _count(entry, "line"),
    }


def _target(entry: Entry) -> dict[str, Any]:
    """The fields of ``CompileTarget``."""
    return {
        **_located(entry),
        "kind": _one_of(record.KINDS, entry, "kind"),
        "reason": text(entry, "reason", LONGEST_TEXT),
        "category": _one_of(record.REASONS, entry, "category"),
        "caller": text(entry, "caller", LONGEST_NAME),
        "dynamic": _flag(entry, "dynamic"),
        "of_class": text(entry, "class", LONGEST_NAME),
        "last_batch": _pair(entry.get("last_batch")),
        "anew": entry.get("anew") is True,
    }


def _one_of(names: Collection[str], entry: Entry, key: str) -> str | None:
    """A name; ``other`` if a newer agent wrote one that is unknown here."""
    name = text(entry, key, LONGEST_NAME)
    return name if name is None or name in names else "other"


def _pair(raw: Any) -> tuple[int, int] | None:
    """Two counts. Raises ValueError if it is anything else."""
    if raw is None:
        return None
    if not isinstance(raw, list) or len(raw) != 2:
        raise ValueError("no pair")
    first, second = (_needed(_count({"n": one}, "n")) for one in raw)
    return first, second


def _flag(entry: Entry, name: str) -> bool | None:
    value = entry.get(name)
    return value if isinstance(value, bool) else None


def text(entry: Entry, key: str, longest: int) -> str | None:
    """A text, cut if it is too long; ``None`` if there is none. Raises ValueError."""
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")
    value = value if len(value) <= longest else f"{value[:longest]}..."
    return printable(value, keep="\n")  # a reason has a line for each compiled entry


def _count(entry: Entry, key: str) -> int | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{key} is no count")
    return value


def _seconds(entry: Entry, key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is no number")
    if not 0 <= value <= _LARGEST:  # excludes NaN and infinities
        raise ValueError(f"{key} is no time")
    return float(value)


def _needed(value: Any) -> Any:
    if value is None:
        raise ValueError("incomplete")
    return value
