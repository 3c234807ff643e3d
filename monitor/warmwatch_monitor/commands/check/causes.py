"""Why a number grew: its causes in the journal, each with its remedy, else the functions whose
counts differ. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from warmwatch.shared.advice import advice_for
from warmwatch.shared.breaks import break_remedy_for, plain_break
from warmwatch.shared.fallbacks import REMEDIES, reason_of
from warmwatch.shared.fallbacks import words as words_of_fallback
from warmwatch.shared.phrases import broken_place, counted, place
from warmwatch_monitor.commands.check.baseline import BaselineRank, Counts, MeasuredRank
from warmwatch_monitor.model.journal import Compilation, CudagraphSkip, Fallback, GraphBreak
from warmwatch_monitor.output.amounts import own_words, reason
from warmwatch_monitor.status.words.requested import plain_skip

MOST = 5
_LONGEST = 160
_WRAPPED = "(external_utils.py)"  # PyTorch's wrapper around a compiled module
_OF_FAILURE = "Run it with TORCH_LOGS=dynamo,inductor, which shows the error."
_OF_SKIP = "torch.compiler.cudagraph_mark_step_begin and static inputs help, or another mode."
# what is counted of a function, in the order of its text
_OF_FUNCTION = ("compilation", "recompile", "kernel")

_Cause = Compilation | GraphBreak | Fallback | CudagraphSkip


class GrowthCause(Struct, frozen=True, kw_only=True):
    """Why a number grew."""

    words: str
    """The cause as a sentence, with PyTorch's reason."""
    advice: str | None
    """How to avoid it; null if that is unknown."""


OF_WARMUP = GrowthCause(
    words="It is measured in steady steps, so faster steps raise it too; if it "
    'changes from run to run: ignore = ["warmup_ratio"] in the baseline, or a wider '
    "tolerance. `warmwatch run --report -- CMD` shows where it goes, phase by phase.",
    advice=None,
)


def causes_of(measure: str, rank: MeasuredRank, was: BaselineRank) -> list[GrowthCause]:
    """The distinct causes of a count that grew, at most MOST, and how many others there are."""
    recorded, counts = _recorded(measure, rank), Counter[tuple[str, str | None]]()
    for number, cause in enumerate(recorded, 1):
        times = cause.count if isinstance(cause, GraphBreak) else 1
        counts[_words(cause, measure, recorded[number:])] += times
    causes = [
        GrowthCause(words=text if count == 1 else f"{text} ({count} times)", advice=advice)
        for (text, advice), count in counts.items()
    ] or [GrowthCause(words=text, advice=None) for text in _moved(rank, was)]
    if (left := len(causes) - MOST) > 0:
        causes[MOST:] = [GrowthCause(words=f"and {left} more", advice=None)]
    return causes


def _recorded(measure: str, rank: MeasuredRank) -> Sequence[_Cause]:
    journal = rank.causes
    match measure:
        case "recompiles":
            return [cause for cause in journal.recompiles if not cause.at_limit]
        case "recompiles_after_warm":
            return journal.late
        case "graph_breaks":
            return journal.breaks
        case "fallbacks":
            return journal.fallbacks
        case "failures":
            return [cause for cause in journal.compilations if cause.failure]
        case "cudagraph_skips":
            return *(each for each in journal.compilations if each.cudagraph_skip), *journal.skips
    return ()


def _words(cause: _Cause, measure: str, later: Sequence[_Cause]) -> tuple[str, str | None]:
    """The cause as a sentence, and its remedy. ``later``: the causes after it."""
    if isinstance(cause, GraphBreak):
        meant = plain_break(cause.reason, cause.name, library=cause.library)
        why = meant or own_words(cause.reason, _LONGEST)
        where = broken_place(*cause.function, cause.caller)
        return f"{where}: {why}" if where else why, break_remedy_for(cause)
    where = place(*cause.function)
    if isinstance(cause, Fallback):
        kind = reason_of(cause.setting)
        setting = f" ({cause.setting})" if cause.limit is not None else ""
        text = words_of_fallback(kind, where, limit=cause.limit, fullgraph=cause.fullgraph)
        return f"{text}{setting}", REMEDIES[kind]
    where = where or "a graph"
    if isinstance(cause, CudagraphSkip) or measure == "cudagraph_skips":
        skip = cause.reason if isinstance(cause, CudagraphSkip) else cause.cudagraph_skip or ""
        return f"{where}: {plain_skip(skip) or own_words(skip, _LONGEST)}", _OF_SKIP
    if measure == "failures":
        return f"{where}: {cause.failure}", _OF_FAILURE
    own = (
        each for each in later if isinstance(each, Compilation) and each.function == cause.function
    )
    why = reason(cause, _LONGEST) or "reason unknown"
    return f"{where}: {why}", advice_for(cause, later=own)


def _moved(rank: MeasuredRank, was: BaselineRank) -> Iterator[str]:
    """The changed counts of functions; forward and backward of one are two compilations."""
    for name, now in rank.functions.items():
        before = was.functions.get(name)
        if now != before:
            what = "the model" if name.endswith(_WRAPPED) else name
            then = "not in the baseline" if before is None else f"was {_listed(before)}"
            yield f"{what}: {_listed(now)}; {then}"


def _listed(counts: Counts) -> str:
    return ", ".join(
        counted(counts[f"{noun}s"], noun) for noun in _OF_FUNCTION if f"{noun}s" in counts
    )
