"""A journal replayed: which states its rank went through, by the same verdict. Pure.

A journal has every begin and end of activity, every irregular step and every warm-up's end, but not
each regular step. So a replay gives the states as they were, save ``stalled``, which is about steps
that did not come; between two lines nothing else can change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import Struct

from warmwatch.record import ENDS, SETTLED_BY, CompileCounts, StepCounts, Warmup
from warmwatch.verdict import Facts, State, judge

Event = Mapping[str, Any]


class Change(Struct, frozen=True, kw_only=True):
    """The rank entered ``state`` at ``t`` (monotonic nanoseconds) with ``event``."""

    t: int
    state: State
    event: Event


def replay(events: Iterable[Event]) -> list[Change]:
    """The changes of state that a journal tells, oldest first.

    Raises:
        ValueError: it is not a journal from its beginning, or a line lacks what its event has.
    """
    facts: Facts | None = None
    changes: list[Change] = []
    for event in events:
        try:
            facts = _attached(event) if facts is None else _apply(facts, event)
            state = judge(facts, event["t"]).state
        except KeyError as error:
            raise ValueError(f"a line of event {event.get('event')!r} lacks {error}") from None
        except (TypeError, AttributeError) as error:
            raise ValueError(f"a line of event {event.get('event')!r} is wrong: {error}") from None
        if not changes or changes[-1].state is not state:
            changes.append(Change(t=event["t"], state=state, event=event))
    return changes


def _attached(event: Event) -> Facts:
    if event.get("event") != "attach":
        raise ValueError("it does not begin with a line of event 'attach': not a whole journal")
    return Facts(
        attached_ns=event["t"],
        warm_steps=event["k"],
        steps=StepCounts(),
        compile=CompileCounts(graphs_before=event.get("graphs_before", 0)),
    )


def _apply(facts: Facts, event: Event) -> Facts:
    fold = _FOLDS.get(event["event"])
    return fold(facts, event) if fold else facts


def _begin(facts: Facts, event: Event) -> Facts:
    compile = facts.compile
    began = compile.episode_began_ns or event["t"]
    return replace(
        facts,
        steps=replace(facts.steps, steps=event["steps"]),
        compile=replace(
            compile, begun=event["activity"], active_since_ns=event["t"], episode_began_ns=began
        ),
    )


def _end(facts: Facts, event: Event) -> Facts:
    if event.get("background"):  # a step was complete by then: it goes on, and holds up none
        compile = facts.compile
        compile = replace(compile, active_since_ns=0, activities_seen=compile.begun)
        return replace(facts, compile=compile)
    compile = replace(facts.compile, active_since_ns=0, last_end_ns=event["t"])
    return replace(facts, compile=compile)


def _step(facts: Facts, event: Event) -> Facts:
    compile = replace(
        facts.compile,
        activities_seen=facts.compile.begun,
        first_step_ns=facts.compile.first_step_ns or event["t"],
    )
    if not event["clean"]:
        compile = replace(compile, clean_after=event["n"])
    return _at_step(replace(facts, compile=compile), event["n"], event["t"])


def _baseline(facts: Facts, event: Event) -> Facts:
    """The steps that were to run eagerly are over: none of them was clean."""
    return _at_step(replace(facts, baseline_steps=event["steps"]), event["steps"], event["t"])


def _warm(facts: Facts, event: Event) -> Facts:
    warmup = Warmup(
        began_ns=event["began"], ended_ns=event["ended"], warm_ns=event["t"], steps=event["steps"]
    )
    compile = replace(
        facts.compile,
        warmups=facts.compile.warmups + 1,
        last_warmup=warmup,
        episode_began_ns=0,
    )
    facts = _settled(replace(facts, compile=compile), event)
    return _at_step(facts, event["at"], event["t"])


def _eager(facts: Facts, event: Event) -> Facts:
    return _at_step(_settled(facts, event), event["at"], event["t"])


def _settled(facts: Facts, event: Event) -> Facts:
    """With the end of a warm-up that no step ended."""
    if "by" not in event:
        return facts
    by, activities = SETTLED_BY.index(event["by"]), 1 + facts.compile.begun
    compile = replace(facts.compile, settled=activities, settled_ns=event["t"], settled_by=by)
    return replace(facts, compile=compile)


def _exit(facts: Facts, event: Event) -> Facts:
    end = ENDS.index(event["how"])
    compile = replace(facts.compile, end_code=end, ended_ns=event["t"])
    return replace(facts, compile=compile, alive=False)  # nothing comes after that line


def _at_step(facts: Facts, steps: int, t: int) -> Facts:
    return replace(facts, steps=replace(facts.steps, steps=steps, last_step_ns=t))


_FOLDS = {
    "begin": _begin,
    "end": _end,
    "step": _step,
    "baseline": _baseline,
    "warm": _warm,
    "eager": _eager,
    "exit": _exit,
}
