"""Comparability checks: differences between runs and the rows they affect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.phrases import without_line
from warmwatch_monitor.commands.report.compilations import cache_use
from warmwatch_monitor.commands.report.parts import Report
from warmwatch_monitor.model.run_summary import Provenance, RunSummary

# names of rows, as in the table
FIRST, FIRST_MEMORY = "first step", "memory when it had compiled"
WARMUP, COST, SPENT = "warm-up", "compile cost", "its energy"
STEADY, SPEED_UP = "steady step", "speed-up"
PEAK, ENERGY, BREAK_EVEN = "peak memory", "energy a step", "break-even"
COMPILED_CODE = "compiled code"  # a property, below
_COMPILING = (FIRST, WARMUP, COST, SPENT, BREAK_EVEN)
_STEPS = (STEADY, SPEED_UP, ENERGY, BREAK_EVEN)
ALL = (FIRST, FIRST_MEMORY, WARMUP, COST, SPENT, STEADY, SPEED_UP, PEAK, ENERGY, BREAK_EVEN)


class Incomparable(Struct, frozen=True, kw_only=True):
    """A difference between runs."""

    what: str
    """The property, such as `torch`."""
    values: tuple[str, ...]
    """Its value in each run."""
    rows: tuple[str, ...]
    """The rows of the table that it affects."""


class _Fact(Struct, frozen=True):
    """A property that should be equal for comparable runs."""

    what: str
    of: Callable[[Provenance], object]
    rows: tuple[str, ...]


_FACTS = (
    _Fact("GPUs", lambda what: ", ".join(sorted(what.gpus)) or None, ALL),
    _Fact("world size", lambda what: what.world_size, ALL),
    _Fact("tokens a step", lambda what: what.tokens_per_step, (*_STEPS, FIRST, FIRST_MEMORY, PEAK)),
    _Fact(
        "samples a step", lambda what: what.samples_per_step, (*_STEPS, FIRST, FIRST_MEMORY, PEAK)
    ),
    _Fact("torch", lambda what: what.torch, ALL),
    _Fact("CUDA", lambda what: what.cuda, ALL),
    _Fact("Triton", lambda what: what.triton, ALL),
    _Fact("driver", lambda what: what.driver, _STEPS),
    _Fact("script", lambda what: what.script, ALL),
    _Fact("commit", lambda what: what.commit, ALL),
    _Fact(COMPILED_CODE, lambda what: what.code, ALL),
    _Fact("compile threads", lambda what: what.compile_threads, _COMPILING),
    _Fact("caches", lambda what: _caches(what), _COMPILING),
)
_NEEDED = frozenset({"GPUs", "tokens a step"})  # warn if these are not known


def incomparable(
    summaries: Sequence[RunSummary], reports: Sequence[Report]
) -> tuple[Incomparable, ...]:
    """Properties that differ between the runs."""
    codes = _codes_apart(summaries)
    properties = [
        replace(report.what, code=code, caches=_found(summary))
        for summary, report, code in zip(summaries, reports, codes, strict=True)
    ]
    differing = []
    for fact in _FACTS:
        # a run that compiles nothing uses no cache and has no workers
        of_compiler = fact.rows is _COMPILING or fact.what == COMPILED_CODE
        unused = [of_compiler and not report.compile_seconds for report in reports]
        pairs = list(zip(map(fact.of, properties), unused, strict=True))
        if len({value for value, is_unused in pairs if value is not None and not is_unused}) > 1:
            texts = (
                "nothing compiled" if is_unused else "not known" if value is None else str(value)
                for value, is_unused in pairs
            )
            differing.append(Incomparable(what=fact.what, values=tuple(texts), rows=fact.rows))
    return tuple(differing)


def unknown(reports: Sequence[Report]) -> tuple[str, ...]:
    """Needed properties that are known for some of the runs only."""
    known = {
        fact.what: {fact.of(report.what) is not None for report in reports}
        for fact in _FACTS
        if fact.what in _NEEDED
    }
    return tuple(sorted(name for name, states in known.items() if len(states) > 1))


def _codes_apart(summaries: Sequence[RunSummary]) -> list[str | None]:
    """For each run, one hash of the functions whose code differs between the runs.

    Only functions that all runs compiled count: a run that ended earlier, or never evaluated, is
    still the same program. ``None`` without a difference, and for a run that compiled nothing.
    """
    each = [_codes(summary) for summary in summaries]
    groups = [codes for codes in each if codes]
    shared = set.intersection(*map(set, groups)) if groups else set()
    apart = [key for key in shared if not set.intersection(*(codes[key] for codes in groups))]
    differing = [sorted(code for key in apart for code in codes.get(key, ())) for codes in each]
    return [
        sha256("\n".join(names).encode()).hexdigest()[:12] if names else None for names in differing
    ]


def _codes(summary: RunSummary) -> dict[tuple[str, str | None], set[str]]:
    """Code hashes by function; ignores the line."""
    groups: dict[tuple[str, str | None], set[str]] = {}
    for rank in summary.ranks:
        for compilation in rank.compiled:
            if compilation.name and compilation.code:
                key = without_line(compilation.name), compilation.file
                groups.setdefault(key, set()).add(compilation.code)
    return groups


def _found(summary: RunSummary) -> Mapping[str, str]:
    """The caches, Inductor's by what its lookups found."""
    compiled = (compilation for rank in summary.ranks for compilation in rank.compiled)
    others = {name: state for name, state in summary.what.caches.items() if name != "inductor"}
    use = cache_use(compiled, summary.what.caches)
    return others if use is None else {"inductor": use, **others}


def _caches(what: Provenance) -> str | None:
    return ", ".join(f"{name} {state}" for name, state in sorted(what.caches.items())) or None
