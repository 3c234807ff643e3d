"""Reasons of recompiles and graph breaks, with advice, as lines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.phrases import called_from, counted, duration, one_line
from warmwatch.shared.phrases import place as place_of
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch_monitor.output.states import place

_BREAK, _LIMIT = "graph break", "reached the recompile limit"
_MOST = 3  # of each kind: all are in a report
_LONGEST = 160
_LONGEST_ADVICE = 400  # longer than each of our texts; the answer may be another version's

Rank = dict[str, Any]


class _Reason(Struct, frozen=True):
    """Why ``times`` recompiles or graph breaks of a rank happened."""

    what: str
    about: str
    text: str
    advice: str
    times: int
    seconds: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.what, self.about, self.text

    @property
    def head(self) -> str:
        """What to write before the text: ``recompiled 3 times in 24 s (shape), `forward` ``."""
        times = "" if self.times == 1 else f" {self.times} times"
        took = "" if self.seconds is None else f" in {duration(self.seconds)}"
        return f"{self.what}{',' if times and self.what == _BREAK else ''}{times}{took}{self.about}"


def reasons(
    runs: Sequence[dict[str, Any]], most: int = _MOST, *, remedies: int | None = None
) -> list[tuple[str, str]]:
    """The last ``most`` of each kind, without duplicates, the worst run first, and how many more.

    Several may have the same advice: only the last of these has it. ``remedies``: how many to show,
    those against the most compile time; a line counts the others.
    """
    ordered = sorted(runs, key=lambda run: (place(run["state"]), run["run"]))
    found = [
        *_lines(ordered, most, _recompiles, "recompiles", "recompile"),
        *_lines(ordered, most, _breaks, "graph_breaks", "graph break"),
    ]
    last = {one.advice: at for at, (_, one) in enumerate(found) if one and one.advice}
    cost = dict.fromkeys(last, 0.0)
    for _, one in found:
        if one and one.advice:
            cost[one.advice] += one.seconds or 0.0
    shown = set(sorted(cost, key=lambda advice: -cost[advice])[:remedies])
    texts = [
        (words, one_line(one.advice, _LONGEST_ADVICE))
        if one and one.advice in shown and last[one.advice] == at
        else (words, "")
        for at, (words, one) in enumerate(found)
    ]
    if more := len(cost) - len(shown):
        texts.append(
            (f"and {counted(more, 'more remedy', 'more remedies')}: {_report_of(runs)}", "")
        )
    return texts


def _report_of(runs: Sequence[dict[str, Any]]) -> str:
    from shlex import quote  # few answers leave something out

    return f"warmwatch report {quote(runs[0]['run']) if len(runs) == 1 else 'RUN'} -v"


def _lines(
    runs: Sequence[dict[str, Any]],
    most: int,
    reasons_of: Callable[[Rank], Iterator[_Reason]],
    total: str,
    what: str,
) -> Iterator[tuple[str, _Reason | None]]:
    """Each reason of a run once, with the times and seconds of the rank that has it most often.

    The line that counts those left out has no reason.
    """
    of_all: dict[tuple[str, ...], _Reason] = {}
    left_out = 0
    for run in runs:
        not_in_answer = 0  # the answer holds the last ones of each rank only
        for rank in run["ranks"]:
            of_rank: dict[tuple[str, ...], _Reason] = {}
            for one in reasons_of(rank):
                same = of_rank.get(one.key)
                of_rank[one.key] = _both(same, one) if same else one
            in_answer = sum(_counts(one) for one in of_rank.values())
            not_in_answer = max(not_in_answer, (rank["compile"].get(total) or 0) - in_answer)
            for key, one in of_rank.items():
                of_run = (run["run"], *key)
                first = of_all.setdefault(of_run, one)
                of_all[of_run] = max(first, one, key=lambda reason: reason.times)
        left_out += not_in_answer
    # the one with advice that cost most is shown in any case, the others newest first
    dearest = max(of_all, key=lambda key: _worth(of_all[key]), default=None)
    shown = [*list(of_all)[:most]]
    if dearest is not None and dearest not in shown and _worth(of_all[dearest]):
        shown[-1] = dearest
    every = sorted(of_all.items(), key=lambda item: item[0] not in shown)
    for (run_name, *_), one in every[:most]:
        whose = f"{run_name}: " if len(runs) > 1 else ""
        yield f"{whose}{one.head}: {one_line(one.text, _LONGEST)}", one
    left_out += sum(_counts(one) for _, one in every[most:])
    if every and left_out:
        yield f"and {counted(left_out, f'more {what}')}: {_report_of(runs)}", None


def _counts(one: _Reason) -> int:
    """The recompiles, or graph breaks, that it explains: at the limit PyTorch compiles nothing."""
    return 0 if one.what == _LIMIT else one.times


def _worth(one: _Reason) -> float:
    """Seconds that its advice may save; 0 without any."""
    return (one.seconds or 0.0) if one.advice else 0.0


def _both(one: _Reason, other: _Reason) -> _Reason:
    known = [of.seconds for of in (one, other) if of.seconds is not None]
    return replace(one, times=one.times + other.times, seconds=sum(known) if known else None)


def _recompiles(rank: Rank) -> Iterator[_Reason]:
    for one in reversed(rank["compile"].get("last") or ()):
        if one["category"] and one["reason"]:
            about = f" ({one['category']}){_what(one)}"
            seconds = one.get("total_seconds", one["seconds"])
            text = one.get("plain") or one["reason"]
            if one.get("at_limit"):  # nothing was compiled
                yield _Reason(_LIMIT, about, text, one["advice"] or "", 1)
            else:
                what = "compiled" if one["category"] == NEW_INSTANCE else "recompiled"
                yield _Reason(what, about, text, one["advice"] or "", 1, seconds)


def _what(one: dict[str, Any]) -> str:
    named = place_of(one["name"], one.get("file"), one.get("line"))
    return f", {named}{called_from(one.get('caller'))}" if named else ""


def _breaks(rank: Rank) -> Iterator[_Reason]:
    for one in rank["compile"].get("breaks") or ():
        left = one.get("whole") and one["called"]
        whole = f", all of {left} runs eagerly" if left else ""
        yield _Reason(_BREAK, whole, one["reason"], one.get("advice") or "", one["count"])
