"""Compares agent and monitor with the truth of a scenario: every difference in words.

Each check is a function from a :class:`Case` to the sentences of what is wrong; ``CHECKS`` is the
list. A check that PyTorch's own account cannot decide is named by the scenario's declaration, with
the reason, and left out there and nowhere else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from support import truth
from support.case import (
    EDGE_NS,
    Case,
    expected_conditions,
    expected_warm_ups,
    false_warm,
    inside,
    late_warm,
    marks_steps,
    may_be_silent,
    must_be_silent,
    outside,
    paused,
    seen_states,
    seen_warm_ups,
    stalled,
)
from support.poller import INTERVAL_NS, Sample
from support.scenarios import timeless
from support.torch_versions import TORCH
from warmwatch.hooks.redaction import REASON_LIMIT, recompile
from warmwatch.shared.record import CACHES, KINDS
from warmwatch_monitor.model.figures import Underway

RELATIVE, SECONDS = 0.02, 0.05
FULL_REASONS = "WARMWATCH_FULL_REASONS"
_SKIP = "cudagraph_skip"  # a line of the journal, and a word of a compilation's

Findings = Iterator[str]


def differ(what: str, agent: object, pytorch: object) -> Findings:
    if agent != pytorch:
        yield f"{what}: the agent reports {agent}, PyTorch {pytorch}"


def steps(case: Case) -> Findings:
    seen = len(case.marks) - case.scenario.unseen_steps
    yield from differ("steps", case.watched.slot.steps.steps, seen)


OTHER_COMPILERS = ("triton", "cpp_extension", "custom")


def _entries(case: Case, *, beside: bool = False) -> list[dict[str, Any]]:
    """The journal's compilations: PyTorch's, or those of other compilers."""
    recorded = [e for e in case.watched.events if e["event"] == "compilation"]
    return [entry for entry in recorded if (entry["kind"] in OTHER_COMPILERS) is beside]


def compilations(case: Case) -> Findings:
    recorded = case.watched.account["compilations"]
    entries = _entries(case)
    names = [(e.get("id"), e["kind"] == "backward") for e in entries]
    yield from differ(
        "compilations", names, [(one["compile_id"], _is_backward(one)) for one in recorded]
    )
    number = sum(_counted(case, beside=False).values())
    yield from differ("their number", number + refused(case), len(recorded))


def refused(case: Case) -> int:
    """PyTorch's records of calls at the recompile limit, for which nothing was compiled.

    They have no name and are of no backward.
    """
    recorded = case.watched.account["compilations"]
    compiled = [one for one in recorded if one["is_forward"] is not False and not one["runtime"]]
    return sum(one["co_name"] is None for one in compiled)


def _counted(case: Case, *, beside: bool) -> dict[str, int]:
    pairs = zip(KINDS, case.watched.slot.compile.compilations, strict=True)
    return {kind: count for kind, count in pairs if (kind in OTHER_COMPILERS) is beside}


def beside(case: Case) -> Findings:
    """Other compilers than PyTorch's, compared with the training itself and Triton's listener."""
    recorded, entries = case.watched.account["beside"], _entries(case, beside=True)
    names = [(e["kind"], e["name"]) for e in entries]
    yield from differ("beside PyTorch", names, [(one["kind"], one["name"]) for one in recorded])
    counted = {kind: n for kind, n in _counted(case, beside=True).items() if n}
    yield from differ("their number", counted, Counter(one["kind"] for one in recorded))
    for entry, one in zip(entries, recorded, strict=False):
        took = one["seconds"]
        wait = stalled(case, one["start"], one["end"]) / 1e9
        if abs(entry["seconds"] - took) > max(SECONDS, RELATIVE * took) + wait:
            yield f"{entry['name']} took {took:.3f} s, by the agent {entry['seconds']:.3f} s"
    categories = tuple(e["category"] for e in entries if e.get("category"))
    yield from differ("their categories", categories, case.scenario.beside)
    counts, requested = case.watched.slot.compile, case.watched.account["triton_cache"]
    agent = {"hits": counts.cache_hits[_TRITON], "misses": counts.cache_misses[_TRITON]}
    yield from differ("Triton's cache", {k: v for k, v in agent.items() if v}, requested)


_TRITON = CACHES.index("triton")


def _is_backward(one: dict[str, Any]) -> bool:
    """A backward that was compiled; what is tuned or recorded at run time is a kind of its own."""
    return one["is_forward"] is False and not one["runtime"]


def graphs(case: Case) -> Findings:
    agent = case.watched.slot.compile.graphs
    yield from differ("graphs (counters)", agent, case.watched.account["graphs"])
    compiled = case.reference.trace["graphs"] - case.scenario.uncompiled_graphs
    yield from differ("graphs (trace)", agent, compiled)


def recompiles(case: Case) -> Findings:
    counts = case.watched.slot.compile
    # PyTorch calls the first compilation of another module of a class a recompile too
    agent = sum(counts.recompiles_by_category) + counts.plain[0] + refused(case)
    agent -= len(case.scenario.beside)
    if TORCH.reason:
        yield from differ("recompiles (metrics)", agent, len(case.recompiles))
    yield from differ("recompiles (trace)", agent, case.reference.trace["recompiles"])


def graph_breaks(case: Case) -> Findings:
    agent = case.watched.slot.compile.graph_breaks
    counted = case.watched.account["breaks"] + case.scenario.uncounted_breaks
    yield from differ("graph breaks (counters)", agent, counted)
    yield from differ("graph breaks (trace)", agent, case.reference.trace["breaks"])
    if agent < case.scenario.breaks:
        yield f"graph breaks: the scenario makes {case.scenario.breaks}, the agent reports {agent}"


def caches(case: Case) -> Findings:
    counts = case.watched.slot.compile
    agent = {
        f"{cache}_{verdict}": values[position]
        for position, cache in enumerate(("inductor_fx", "aot_autograd"))
        for verdict, values in (("hit", counts.cache_hits), ("miss", counts.cache_misses))
    }
    yield from differ("caches", agent, case.watched.account["caches"])
    if case.scenario.warm_cache and not sum(counts.cache_hits):
        yield "caches: they were filled beforehand, and none was hit"


def seconds(case: Case) -> Findings:
    pytorch, agent = truth.seconds(case.intervals), truth.seconds(case.activities)
    waits = sum(_apart(case, one, other) for one, other in _matched(case))
    if abs(agent - pytorch) > max(SECONDS, RELATIVE * pytorch) + waits / 1e9:
        yield f"compile seconds: the agent reports {agent:.3f}, PyTorch {pytorch:.3f}"


def _matched(case: Case) -> list[tuple[truth.Interval, truth.Interval]]:
    return [
        (one, other)
        for one in case.intervals
        for other in case.activities
        if one[0] < other[1] and other[0] < one[1]
    ]


def _apart(case: Case, one: truth.Interval, other: truth.Interval) -> int:
    """How long the training waited for the machine between the ends of the two accounts."""
    return stalled(case, one[0], other[0]) + stalled(case, one[1], other[1])


def phases(case: Case) -> Findings:
    whole, parts = truth.seconds(case.activities), sum(case.watched.slot.compile.phase_ns) / 1e9
    if abs(parts - whole) > max(0.001, RELATIVE * whole):
        yield f"phases add up to {parts:.3f} s of {whole:.3f} s"


def reasons(case: Case) -> Findings:
    entries = [e for e in _entries(case) if e.get("category")]
    seen = tuple(e["category"] for e in entries)
    yield from differ("categories", seen, case.scenario.categories)
    for entry, words in zip(entries, case.recompiles, strict=False):
        if not _is_in(case, words, entry.get("reason", "")):
            yield f"the reason of {entry['id']} lacks PyTorch's words {words!r}: {entry}"


# The variable of PyTorch's wrappers with what they call: its name is recorded instead.
_CALLED = re.compile(r"(?<![\w.])(?:fn|args\\\[0\\\])(?!\w)")


def _is_in(case: Case, words: str, text: str) -> bool:
    """Whether ``text`` has PyTorch's as a record has it: in full if the scenario requests that,
    else redacted.

    That the reduction itself is right is proved apart, see tests/agent/hooks/test_redaction.py.
    """
    is_full = case.scenario.env.get(FULL_REASONS) == "1"
    recorded = re.escape(words[:REASON_LIMIT] if is_full else recompile(words))
    return re.search(_CALLED.sub(r"[\\w.\\[\\]]+", recorded), text) is not None


def failures(case: Case) -> Findings:
    counts = case.watched.slot.compile
    yield from differ("failures (declared)", counts.failures, case.scenario.failures)
    yield from differ("fallbacks (declared)", counts.fallbacks, case.scenario.fallbacks)
    yield from differ("errors of the agent's own", counts.agent_errors, 0)


def coverage(case: Case) -> Findings:
    """Each moment that PyTorch compiled is activity; no activity is without a compilation.

    Around a kernel of the user's own the training takes the time of the whole launch.
    """
    for one in case.watched.account["beside"]:
        seen = sum(max(0, min(b, one["end"]) - max(a, one["start"])) for a, b in case.activities)
        missed = one["end"] - one["start"] - seen
        if missed > EDGE_NS + stalled(case, one["start"], one["end"]):
            yield f"of {one} {missed / 1e9:.3f} s are no activity"
    for start, end in case.compiled:
        if not any(
            a <= start + EDGE_NS + stalled(case, start, a)
            and end <= b + EDGE_NS + stalled(case, end, b)
            for a, b in case.activities
        ):
            yield f"PyTorch compiled from {start} to {end}; the agent saw {case.activities}"
    for a, b in case.activities:
        allowed = EDGE_NS + stalled(case, a, b)
        if b - a > allowed and not any(start < b and a < end for start, end in case.intervals):
            yield f"the agent saw activity from {a} to {b}; PyTorch reports {case.intervals}"


def samples(case: Case) -> Findings:
    for sample in false_warm(case):
        yield f"false warm: {sample}"
    for sample in late_warm(case):
        yield f"late warm: {sample}"
    for sample in case.watched.samples:
        if inside(case, sample) and not sample.compiling:
            yield f"it compiled and the monitor did not say so: {sample}"
        if outside(case, sample) and sample.compiling:
            yield f"nothing compiled and the monitor reports so: {sample}"


_SPEED = re.compile(r"(?:: |slower: )([\d.]+) (ms|s) a step")
_AGE = re.compile(r"no step for ([\d.]+) (ms|s)\b")
_UNITS = {"ms": 1e-3, "s": 1.0}
_WINDOWS = (16, 32, 64)  # steps: of ones that vary the median of the last 32 is not one number
_NEWEST = 4  # steps that end a claim
_FOR_LONG = 6  # seconds in which no step was as short as claimed
_JITTER = 0.002  # seconds by which a step's mark by the training is later than the agent's
_SHOWN = 0.05  # a length is shown with two figures


def claims(case: Case) -> Findings:
    """At every poll, what the sentence claims of the speed, the compiler and the last step.

    The truth is the training's own clock, at the moments between which the record was read.
    """
    if not marks_steps(case):
        return
    marks = case.marks
    for sample in case.watched.samples:
        if not 2 <= sample.steps <= len(marks) or sample.state in ("finished", "failed", "lost"):
            continue
        yield from _speed_claimed(case, sample, marks[: sample.steps])
        yield from _age_claimed(case, sample, marks)
        if "nothing compiles" in sample.text and inside(case, sample):
            yield f"it compiled all the time of {sample.before}: {sample.text}"


def _speed_claimed(case: Case, sample: Sample, marks: list[int]) -> Findings:
    found = _SPEED.search(sample.text)
    if found is None:
        return
    claimed = float(found[1]) * _UNITS[found[2]]
    gaps: list[float] = []
    since: list[float] = []  # the last compilation
    for start, end in pairwise(marks):
        if any(begin < end and start < over for begin, over in case.intervals):
            since = []
            continue
        gaps.append((end - start - paused(case, start, end)) / 1e9)
        since.append(gaps[-1])
    # of few steps, or around a change, the truth is what these windows agree on
    parts = [part[-window:] for window in _WINDOWS for part in (gaps, since) if len(part) >= 3]
    true = [length for part in parts for length in _lengths(part)]
    if len(gaps) < _WINDOWS[0]:
        true = gaps  # "so far": what lies in the middle of a few steps, each mark may move
    if not true:
        return
    least, most = 0.9 * (1 - _SHOWN) * min(true), 1.1 * (1 + _SHOWN) * max(true)
    # right after a change it is that of the newest steps
    newest = (median(gaps[-count:]) for count in range(_NEWEST, _WINDOWS[0]))
    lately = any(abs(claimed - one) <= (0.1 + _SHOWN) * one + _JITTER for one in newest)
    if not lately and not least - _JITTER <= claimed <= most + _JITTER:
        last = " ".join(f"{gap:.3g}" for gap in gaps[-_WINDOWS[1] :])
        yield (
            f"{claimed} s a step is claimed, {true} are true, of {len(gaps)}: {sample.text}"
            f" (last steps: {last})"
        )
    last = gaps[-_WINDOWS[0] :]
    if sum(last) > _FOR_LONG and min(last) > 1.1 * (1 + _SHOWN) * claimed + _JITTER:
        yield f"{claimed} s a step is claimed, none took that in {sum(last):.1f} s: {sample.text}"


def _lengths(gaps: list[float]) -> list[float]:
    """What may be called the length of a step: the median; where many differ from it, the mean."""
    usual = median(gaps)
    far = sum(not usual / 1.5 < gap < 1.5 * usual for gap in gaps)
    return [usual, fmean(gaps)] if far > len(gaps) / 8 else [usual]


def _age_claimed(case: Case, sample: Sample, marks: list[int]) -> Findings:
    """The agent sees a step in the optimizer, the scenario marks it soon after."""
    last = marks[sample.steps - 1]
    least = (sample.after - last) / 1e9
    most = least + (EDGE_NS + stalled(case, sample.before, last)) / 1e9
    if sample.age is not None and not least - 1e-3 <= sample.age <= most:
        yield f"the last step is {sample.age:.3f} s old, not {least:.3f} to {most:.3f} s"
    if found := _AGE.search(sample.text):
        claimed = float(found[1]) * _UNITS[found[2]]
        if not 0.95 * least - 0.06 <= claimed <= 1.05 * most + 0.06:
            yield f"{claimed} s without a step are claimed, {least:.3f} s are true: {sample.text}"


def named(case: Case) -> Findings:
    """At every poll, the function that is said to compile is one that PyTorch compiles then.

    PyTorch's record of a backward has the compile id of its forward, and no name of its own.
    """
    records = [one for one in case.watched.account["compilations"] if not one["runtime"]]
    forwards = {one["compile_id"]: one for one in records if not _is_backward(one)}
    beside = truth.beside(case.watched.account)
    for sample in case.watched.samples:
        if sample.underway is None or not sample.compiling:
            continue
        if any(start < sample.after and sample.before < end for start, end in beside):
            continue
        if not any(_during(case, one, sample) for one in records):
            continue
        compiled = [one for one in records if _around(case, one, sample)]
        claimed = (sample.underway.name, sample.underway.backward)
        true = {
            (forwards.get(one["compile_id"], one)["co_name"], _is_backward(one)) for one in compiled
        }
        if not any(_names(sample.underway, *one) for one in true):
            yield f"{claimed} is said to compile, {true} does: {sample.text}"
        whys = {forwards.get(one["compile_id"], one)["recompile_reason"] for one in compiled}
        why = sample.underway.reason if TORCH.reason else None
        if why is not None and not any(_is_in(case, one.strip(), why) for one in whys if one):
            yield f"{why!r} is said to be the reason, {whys} is: {sample.text}"


# PyTorch's own functions around a module's forward or an optimizer's step, and what follows a graph
# break in one of them: the object is named.
_AROUND = re.compile(r"(torch_dynamo_resume_in_)?(inner|wrapper)(_at_\d+)?")


def _names(underway: Underway, function: str | None, backward: bool) -> bool:
    """Whether what is said to compile is PyTorch's ``function``, or its backward.

    Compiled autograd compiles a backward as a function ``forward`` of its own.
    """
    named = str(underway.name).rpartition(".")[2]
    if function == "forward" and named == "backward":
        return True
    is_around = _AROUND.fullmatch(function or "") is not None
    return underway.backward is backward and (is_around or named == function)


def _during(case: Case, one: dict[str, Any], sample: Sample) -> bool:
    """Whether it compiled during the whole poll, and since the poll before it."""
    start, end = one["start"], one["end"]
    return (
        start + INTERVAL_NS + stalled(case, start, sample.before) < sample.before
        and sample.after < end
    )


def _around(case: Case, one: dict[str, Any], sample: Sample) -> bool:
    """Whether it compiled at the poll, or so shortly before that the answer may still name it.

    Several threads may compile at once, and each poll names one of them.
    """
    late = EDGE_NS + INTERVAL_NS + stalled(case, one["end"], sample.before)
    return one["start"] - EDGE_NS < sample.after and sample.before < one["end"] + late


def silences(case: Case) -> Findings:
    """``silent`` holds exactly where the training's marks show such a gap."""
    if not marks_steps(case):
        return
    for sample in case.watched.samples:
        if not 1 <= sample.steps <= len(case.marks):
            continue
        claimed = "silent" in sample.conditions
        if claimed and not may_be_silent(case, sample):
            yield f"a step is missing, by the monitor, and none is: {sample}"
        if not claimed and must_be_silent(case, sample):
            yield f"a step is missing, and the monitor does not say so: {sample}"


def warm_ups(case: Case) -> Findings:
    seen, expected = seen_warm_ups(case), expected_warm_ups(case)
    late = case.scenario.late_steps or (0,) * len(expected)
    due = [one.step + by for one, by in zip(expected, late, strict=True)]
    yield from differ("steps at which it was warm", [one.step for one in seen], due)
    for one, other in zip(seen, expected, strict=False):
        allowed = EDGE_NS + stalled(case, one.ended, other.ended)
        if abs(one.ended - other.ended) > allowed:
            yield f"a warm-up ended at {one.ended}, by PyTorch's account at {other.ended}"


def states(case: Case) -> Findings:
    yield from differ("states", seen_states(case), case.scenario.states)
    # where the marks do not decide whether it is silent, `silences` allows for both
    seen = {
        word
        for sample in case.watched.samples
        for word in sample.conditions
        if word != "silent" or word in case.scenario.conditions or must_be_silent(case, sample)
    }
    if all(
        sample.before > max(case.marks, default=0)
        for sample in case.watched.samples
        if "exiting" in sample.conditions
    ):  # no step followed: whether a poll sees it depends on how long the exit takes
        seen.discard("exiting")
    yield from differ("conditions", seen, expected_conditions(case))
    skips = case.watched.slot.compile.cudagraph_skips
    yield from differ("CUDA graphs left out", skips, case.watched.account["cudagraph_skips"])
    recorded = [
        one for one in case.watched.events if one["event"] == _SKIP or one.get(_SKIP) is not None
    ]
    if "skipping cudagraphs due to" in case.reference.output and not recorded:
        yield "PyTorch reports why CUDA graphs were skipped, and the agent does not"


def guest(case: Case) -> Findings:
    """The training is the same with the agent and without it."""
    beside, alone = case.watched.account, case.reference.account
    beside, alone = _untraced(beside), _untraced(alone)
    for key in ("losses", "random", "warnings", "graphs", "breaks", "caches"):
        if beside[key] != alone[key]:
            yield f"{key} with the agent {beside[key]}, without it {alone[key]}"
    with_, without = _compiled(beside), _compiled(alone)
    for one in with_ - without:
        yield f"a compilation only with the agent: {one}"
    for one in without - with_:
        yield f"a compilation only without the agent: {one}"
    if case.watched.output != case.reference.output:
        yield f"printed with the agent {case.watched.output!r}, not {case.reference.output!r}"


# 2.6 warns so where its trace is on, which it is not in both runs.
_OF_THE_TRACE = "Skipping serialization of"


def _untraced(account: dict[str, Any]) -> dict[str, Any]:
    warned = [one for one in account["warnings"] if _OF_THE_TRACE not in one]
    return {**account, "warnings": warned}


_COMPILED = ("compile_id", "is_forward", "co_name", "recompile_reason", "num_graph_breaks", "fail")


def _compiled(account: dict[str, Any]) -> Counter[tuple[str, ...]]:
    """Each compilation by what must not change."""
    return Counter(
        tuple(timeless(str(one[key])) for key in _COMPILED)
        for one in _once_tuned(account["compilations"])
    )


def _once_tuned(compilations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Without how often the kernels of one graph were tuned as they ran.

    That changes from run to run of one program, without an agent: once or twice on an H200.
    """
    tuned = set()
    for one in compilations:
        if not one["co_name"] and one["is_forward"]:
            if one["compile_id"] in tuned:
                continue
            tuned.add(one["compile_id"])
        yield one


def trace(case: Case) -> Findings:
    """The truth is whole: what PyTorch times lies within the compilations that it records."""
    recorded = case.reference.trace
    outside = [
        (start, end)
        for start, end in recorded["intervals"]
        if not any(a < end and start < b for a, b in recorded["windows"])
    ]
    if bool(outside) != case.scenario.traced:
        yield f"the trace has events outside of every compilation: {outside}"
    # how long they last together depends on a busy core, at both ends of each
    empty = [
        (a, b)
        for a, b in recorded["windows"]
        if not any(a < end and start < b for start, end in recorded["intervals"])
    ]
    if empty:
        yield f"compilations in which the trace has no event: {empty}"
    records = len(case.reference.account["compilations"])
    yield from differ("records in the trace", recorded["records"], records)


CHECKS: dict[str, Callable[[Case], Findings]] = {
    check.__name__: check
    for check in (
        steps,
        compilations,
        beside,
        graphs,
        recompiles,
        graph_breaks,
        caches,
        seconds,
        phases,
        reasons,
        failures,
        coverage,
        samples,
        claims,
        named,
        silences,
        warm_ups,
        states,
        guest,
        trace,
    )
}


def findings(case: Case) -> list[str]:
    """Everything that is wrong."""
    unknown = set(case.scenario.cannot_know) - set(CHECKS)
    assert not unknown, f"{case.scenario.name} leaves out checks that do not exist: {unknown}"
    return [
        f"[{name}] {sentence}"
        for name, check in CHECKS.items()
        if name not in case.scenario.cannot_know
        for sentence in check(case)
    ]
