"""Reasons of recompiles and graph breaks, with advice, as lines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from shlex import quote
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared.phrases import called_from, counted, duration, one_line, took
from warmwatch.shared.phrases import place as place_of
from warmwatch.shared.states import ENDED, State
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch_monitor.output.amounts import broken_at, failure
from warmwatch_monitor.output.summary import place

_BREAK, _RECOMPILED, _OF_INSTANCE = "graph break", "recompiled", "compiled"
_FAILED = "failed to compile"
_LONG = 600.0  # seconds
_MOST = 3  # of each kind: all are in a report
_LONGEST = 160
_LONGEST_ADVICE = 600  # longer than each of our texts; the answer may be another version's

Rank = dict[str, Any]


class _Reason(Struct, frozen=True):
    """Why ``times`` recompiles or graph breaks of a rank happened."""

    what: str
    category: str
    about: str
    text: str
    advice: str
    times: int
    seconds: float | None = None
    when: str = ""
    run: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return self.run, self.what, self.category, self.about, self.text

    @property
    def head(self) -> str:
        """What to write before the text: ``recompiled 3 times in 24 s (shape), `forward` ``; a
        single one with its step and age: ``recompiled in 8 s (shape, step 22, 40 s ago)...``.
        """
        times = "" if self.times == 1 else f" {self.times} times"
        cost = "" if self.seconds is None else f" in {took(self.seconds)}"
        name = ", ".join(filter(None, [self.category, self.when]))
        why = f" ({name})" if name else ""
        comma = "," if times and self.what == _BREAK else ""
        return f"{self.what}{comma}{times}{cost}{why}{self.about}"


def reasons(
    runs: Sequence[dict[str, Any]],
    most: int = _MOST,
    *,
    remedies: int | None = None,
    now: float | None = None,
    above: Collection[str] = (),
) -> list[tuple[str, str]]:
    """The last ``most`` of each kind, without duplicates, the worst run first, and how many more.

    Several may have the same advice: only the last of these has it. ``remedies``: how many to show,
    those against the most compile time; a line counts the others. ``now``: the recompiles of a run
    that has been warm for long are one line. ``above``: texts that are shown already, which
    may contain an advice.
    """
    ordered = sorted(runs, key=lambda run: (place(run["state"]), run["run"]))
    ages = {id(run): age for run in ordered if (age := now and _warm_for(run, now))}
    recent = [run for run in ordered if id(run) not in ages]
    pairs = [
        *_lines(recent, most, partial(_recompiles, now=now), "recompiles", "recompile"),
        *_lines(recent, most, partial(_failures, now=now), "failures", "failed compilation"),
        *_lines(ordered, most, _breaks, "graph_breaks", "graph break"),
    ]
    advised = [(at, item.advice) for at, (_, item) in enumerate(pairs) if item and item.advice]
    last = {advice: at for at, advice in advised if not any(advice in text for text in above)}
    cost = dict.fromkeys(last, 0.0)
    for _, reason in pairs:
        if reason and reason.advice in cost:
            cost[reason.advice] += reason.seconds or 0.0
    shown = set(sorted(cost, key=lambda advice: -cost[advice])[:remedies])
    texts = [
        (text, one_line(item.advice, _LONGEST_ADVICE))
        if item and item.advice in shown and last[item.advice] == at
        else (text, "")
        for at, (text, item) in enumerate(pairs)
    ]
    hidden = [pairs[at][1] for advice, at in last.items() if advice not in shown]
    left = Counter(reason.run for reason in hidden if reason)
    texts += [
        (f"and {counted(more, 'more remedy', 'more remedies')}: {_report_of(run)}", "")
        for run, more in left.items()
    ]
    for run in ordered:
        many = max((rank["compile"]["recompiles"] or 0 for rank in run["ranks"]), default=0)
        if many and (age := ages.get(id(run))):
            whose = f"{run['run']}: " if len(runs) > 1 else ""
            before = f"{counted(many, 'recompile')}, none in the last {duration(age)}"
            texts.append((f"{whose}{before}: {_report_of(run['run'])}", ""))
    return texts


def _warm_for(run: dict[str, Any], now: float) -> float | None:
    """For how long all of its ranks have been warm, if that is long; ``None`` if one has reached
    the recompile limit, which slows each step.
    """
    since = [rank["since"] for rank in run["ranks"] if rank["state"] == State.WARM]
    last = [value for rank in run["ranks"] for value in rank["compile"].get("last") or ()]
    if None in since or not since or len(since) < len(run["ranks"]):
        return None
    age = now - max(since)
    return age if age >= _LONG and not any(value.get("at_limit") for value in last) else None


def _report_of(run: str) -> str:
    return f"warmwatch report {quote(run)} -v"


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
    left_out = Counter[str]()
    for run in runs:
        not_in_answer = 0  # the answer holds the last ones of each rank only
        for rank in run["ranks"]:
            of_rank: dict[tuple[str, ...], _Reason] = {}
            for found in reasons_of(rank):
                value = replace(found, run=run["run"])
                same = of_rank.get(value.key)
                of_rank[value.key] = _both(same, value) if same else value
            in_answer = sum(_counts(entry) for entry in of_rank.values())
            not_in_answer = max(not_in_answer, (rank["compile"].get(total) or 0) - in_answer)
            for key, value in of_rank.items():
                first = of_all.setdefault(key, value)
                of_all[key] = max(first, value, key=lambda reason: reason.times)
        left_out[run["run"]] += not_in_answer
    # those with the advice that saves most come first, each part newest first
    saves = dict.fromkeys((entry.advice for entry in of_all.values()), 0.0)
    for value in of_all.values():
        saves[value.advice] += (value.seconds or 0.0) if value.advice else 0.0
    best = max(saves.values(), default=0.0)
    every = sorted(of_all.values(), key=lambda reason: not best or saves[reason.advice] < best)
    for value in every[:most]:
        whose = f"{value.run}: " if len(runs) > 1 else ""
        yield f"{whose}{value.head}: {one_line(value.text, _LONGEST)}", value
    for value in every[most:]:
        left_out[value.run] += _counts(value)
    for run_name, count in left_out.items():
        if every and count:
            yield f"and {counted(count, f'more {what}')}: {_report_of(run_name)}", None


def _counts(reason: _Reason) -> int:
    """The recompiles, or graph breaks, that it explains: at the limit PyTorch compiles nothing,
    and what it had dropped is no recompile.
    """
    counted_ones = (_BREAK, _RECOMPILED, _OF_INSTANCE, _FAILED)
    return reason.times if reason.what in counted_ones else 0


def _both(item: _Reason, other: _Reason) -> _Reason:
    values = [reason.seconds for reason in (item, other) if reason.seconds is not None]
    seconds = sum(values) if values else None
    return replace(item, times=item.times + other.times, seconds=seconds, when="")


def _recompiles(rank: Rank, now: float | None) -> Iterator[_Reason]:
    """Also what PyTorch dropped and compiled again, which has no category."""
    for value in reversed(rank["compile"].get("last") or ()):
        text = value.get("plain") or value["reason"]
        if not text or not (value["category"] or value.get("again")):
            continue
        seconds = value.get("total_seconds", value["seconds"])
        if value.get("at_limit"):  # nothing was compiled
            what, seconds = "reached the recompile limit", None
        elif not value["category"]:
            what = "compiled again"
        else:
            what = _OF_INSTANCE if value["category"] == NEW_INSTANCE else _RECOMPILED
        yield _Reason(
            what=what,
            category=value["category"] or "",
            about=_what(value),
            text=text,
            advice=value["advice"] or "",
            times=1,
            seconds=seconds,
            when=_when(value, rank, now),
        )


def _failures(rank: Rank, now: float | None) -> Iterator[_Reason]:
    """Those that no condition and no end reports: the program caught them, and goes on eagerly."""
    last = rank["compile"].get("last") or ()
    told = {condition.get("advice") for condition in rank.get("conditions") or ()}
    named = {value["id"]: _what(value) for value in last if value["name"]}
    for value in reversed(last):
        if not value.get("failure") or value["advice"] in told or rank["state"] == State.FAILED:
            continue
        about = named.get(value["id"], "")
        yield _Reason(
            what=_FAILED,
            category="",
            about=about if value["name"] or not about else f", the backward of {about[2:]}",
            text=_failed(value),
            advice=value["advice"] or "",
            times=1,
            when=_when(value, rank, now),
        )


def _failed(value: dict[str, Any]) -> str:
    text, at = failure(value["failure"], value.get("failure_reason")), value.get("failed_at")
    return f"{text}, at {at}" if at else text


def _when(values: dict[str, Any], rank: Rank, now: float | None) -> str:
    """``step 22, 40 s ago``: the age of a living rank's; without what is unknown."""
    before, at = values.get("step"), values.get("ended_at")
    step = "" if before is None or not rank["steps"] else f"step {before + 1}"
    # as in a report; a change of the grad mode may be an evaluation that nothing marks
    if step and (values.get("between_steps") or values["category"] == "grad_mode"):
        step = f"after step {before}" if before else ""
    if at is None or now is None or State(rank["state"]) in ENDED:
        return step
    return ", ".join(filter(None, [step, f"{duration(max(0.0, now - at))} ago"]))


def _what(values: dict[str, Any]) -> str:
    named = place_of(values["name"], values.get("file"), values.get("line"))
    return f", {named}{called_from(values.get('caller'))}" if named else ""


def _breaks(rank: Rank) -> Iterator[_Reason]:
    for value in rank["compile"].get("breaks") or ():
        places = (*(value.get("also") or ()), value)
        where = broken_at((one.get("called"), one.get("eager")) for one in places)
        about = f", {where}" if where else ""
        yield _Reason(_BREAK, "", about, value["reason"], value.get("advice") or "", value["count"])
