"""What a test compiled, its limits, and the message if they differ. Pure functions.

``compile_counter`` counts, ``pytest_plugin`` reports. The monitor shows reasons in the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmwatch.shared.advice import advice_for
from warmwatch.shared.breaks import break_remedy_for, plain_break
from warmwatch.shared.fallbacks import LIMIT, REMEDIES
from warmwatch.shared.fallbacks import words as words_of_fallback
from warmwatch.shared.phrases import broken_place, counted, one_line, place
from warmwatch.shared.reasons import plain

NAMES = ("graphs", "breaks", "recompiles", "fallbacks", "failures")
Allowed = int | tuple[int, int]
_NOUNS = {
    "graphs": ("graph", "graphs"),
    "breaks": ("graph break", "graph breaks"),
    "recompiles": ("recompile", "recompiles"),
    "fallbacks": ("function left to run eagerly", "functions left to run eagerly"),
    "failures": ("failed compilation", "failed compilations"),
}
_MOST = 10
_LONGEST = 160
_OFF = {
    "environment": "by TORCHDYNAMO_DISABLE",
    "config": "by torch._dynamo.config.disable",
    "stance": 'by torch.compiler.set_stance("force_eager")',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The user's function or line; ``file`` is a base name."""

    name: str | None = None
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One recompile, break, graph, fallback or failure; ``reason`` is redacted.

    ``dynamic``, ``last_batch``, ``anew``, ``parameter``: as ``advice`` takes them. ``of_class``:
    as ``plain`` takes it. ``hint``, ``library``, ``caller``: as ``break_remedy`` takes them.
    """

    where: Place = Place()
    reason: str = ""
    category: str | None = None
    dynamic: bool | None = None
    last_batch: Sequence[int] | None = None
    parameter: str | None = None
    anew: bool = False
    of_class: str | None = None
    hint: str | None = None
    library: bool = False
    caller: str | None = None

    @property
    def name(self) -> str | None:
        return self.where.name


@dataclass(slots=True, kw_only=True)
class Compiled:
    """What was compiled so far.

    Attributes:
        counts: the numbers, by NAMES; graphs as Dynamo counts them.
        seen: place and reason of each, by NAMES.
        limited: the function of each fallback.
        disabled: what disabled compilation at the end; empty if it was enabled.
        armed: Dynamo was imported.
        troubles: why counts may be wrong, one sentence each.
    """

    counts: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[Cause]] = field(default_factory=lambda: {name: [] for name in NAMES})
    limited: set[tuple[Any, ...]] = field(default_factory=set)
    disabled: str = ""
    armed: bool = False
    troubles: list[str] = field(default_factory=list)

    def count(self, what: str, cause: Cause) -> None:
        self.counts[what] += 1
        self.seen[what].append(cause)

    def __str__(self) -> str:
        return ", ".join(_counted(name, self.counts[name]) for name in NAMES)


def checked(limits: Mapping[str, object]) -> dict[str, Allowed]:
    """The limits of a marker or block, without those that are ``None``.

    Raises:
        TypeError: a name or a limit is invalid.
    """
    values: dict[str, Allowed] = {}
    for name, value in limits.items():
        if name not in NAMES:
            raise TypeError(f"warmwatch_compiles counts {', '.join(NAMES)}, not {name!r}")
        if value is None:
            continue
        pair = value if isinstance(value, tuple) else (value, value)
        numbers = [number for number in pair if type(number) is int and number >= 0]
        if len(pair) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
            raise TypeError(
                f"warmwatch_compiles({name}={value!r}): give a number, or (least, most)"
            )
        values[name] = (numbers[0], numbers[1]) if isinstance(value, tuple) else numbers[0]
    return values


def complaint(compiled: Compiled, limits: dict[str, Allowed]) -> str | None:
    """The violated limits with reasons and remedies; ``None`` if there are none."""
    lines = [f"  {trouble}" for trouble in compiled.troubles]
    if not lines and (why := _why_nothing(compiled, limits)):
        lines = [f"  {why}"]
    for name, limit in limits.items():
        least, most = limit if isinstance(limit, tuple) else (limit, limit)
        count = compiled.counts[name]
        if least <= count <= most:
            continue
        expected = f"{least}" if least == most else f"{least} to {most}"
        lines.append(f"  {_counted(name, count)}, expected {expected}")
        lines += [f"    {line}" for line in _each_once(name, compiled.seen[name])]
    if not lines:
        return None
    return "\n".join(["compiled otherwise than expected:", *lines])


def _why_nothing(compiled: Compiled, limits: dict[str, Allowed]) -> str | None:
    """Why nothing could compile. A limit of 0 recompiles proves nothing then: fail."""
    if any(compiled.counts.values()) or not limits or limits.get("graphs") == 0:
        return None
    if not compiled.armed:
        return "nothing could compile: torch._dynamo was not imported (torch.compile imports it)"
    if compiled.disabled:
        return f"nothing could compile: compilation is disabled {_OFF[compiled.disabled]}"
    return None


def _counted(name: str, count: int) -> str:
    return counted(count, *_NOUNS[name])


def _each_once(name: str, causes: list[Cause]) -> Iterator[str]:
    """Each distinct cause with its remedy."""
    times: dict[tuple[str, str | None], int] = {}
    for number, cause in enumerate(causes, 1):
        later = (other for other in causes[number:] if other.where == cause.where)
        described = _cause(name, cause, later)
        times[described] = times.get(described, 0) + 1
    for (text, remedy), count in list(times.items())[:_MOST]:
        yield text if count == 1 else f"{text} ({count} times)"
        if remedy:
            yield f"  {remedy}"
    if len(times) > _MOST:
        yield f"and {len(times) - _MOST} more"


def _cause(name: str, cause: Cause, later: Iterable[Cause] = ()) -> tuple[str, str | None]:
    where = place(cause.where.name, cause.where.file, cause.where.line) or "somewhere"
    if name == "graphs":
        return where, None
    if name == "breaks":
        text = plain_break(cause.reason, cause.where.name, library=cause.library) or one_line(
            cause.reason, _LONGEST
        )
        of = cause.where
        where = broken_place(of.name, of.file, of.line, cause.caller) or "somewhere"
        return f"{where}: {text}", break_remedy_for(cause)
    if name == "fallbacks":
        kind, limit = cause.category or LIMIT, f" ({cause.reason})" if cause.reason else ""
        return f"{words_of_fallback(kind, where)}{limit}", REMEDIES[kind]
    if name == "failures":
        return f"{where}: {one_line(cause.reason, _LONGEST)}", None
    why = (
        plain(cause.reason, cause.category, cause.of_class, cause.parameter)
        or one_line(cause.reason, _LONGEST)
        or "PyTorch gives no reason"
    )
    return f"{where}: {why}", advice_for(cause, later=later)
