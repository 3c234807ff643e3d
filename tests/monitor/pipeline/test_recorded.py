"""From a record to figures: units, unknown values, and what is cached between polls."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders as b
from support.builders import NOW, SECOND, view_of
from support.values import field_names, replace
from warmwatch.shared import record
from warmwatch.shared.record import Slot
from warmwatch_monitor.model.figures import Figures
from warmwatch_monitor.model.journal import Beginning, GraphBreak
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.pipeline.figures import forget_gone
from warmwatch_monitor.pipeline.slot_figures import lengths

DURATIONS = st.lists(st.integers(1, 2 * 10**13), max_size=40)
SLOTS = (b.STARTING, b.COMPILING, b.WARMING, b.WARM, b.EAGER, b.RECOMPILING, b.STALLED)


def reading(slot: Slot, **more: Any) -> RecordReading:
    return RecordReading(folder="/records/a", slot=slot, **{"alive": True, "pid": 7, **more})


def figures(slot: Slot, **more: Any) -> Figures:
    return view_of(reading(slot, **more)).figures


def computed(made: RecordReading) -> Figures:
    """The figures of a record on its first poll."""
    forget_gone(())
    return view_of(made).figures


CHANGES = st.sampled_from(
    (
        {},
        {"alive": False},
        {"alive": False, "gone_ns": NOW},
        {"pid": 8},
        {"broken_lines": 3},
        {"compilations": (b.RECOMPILATION,)},
        {"recompile": b.RECOMPILE},
        {"beginning": Beginning(at_ns=NOW, what="entire_backward_compile")},
        {"breaks": (GraphBreak(reason="print", count=2),)},
        {"exception": "RuntimeError"},
    )
)


MOVES = st.sampled_from((0, 1, 2, -3600))  # the last: before the K-th clean step


@given(st.lists(st.tuples(st.sampled_from(SLOTS), CHANGES, MOVES), max_size=8))
@settings(deadline=None)
def test_cached_figures_never_differ_from_newly_computed_ones(
    looks: list[tuple[Slot, dict[str, Any], int]],
) -> None:
    """This includes blocks that are the same object while other blocks changed."""
    forget_gone(())
    found, made = [], []
    for slot, change, steps in looks:
        moved = replace(slot.steps, steps=max(0, slot.steps.steps + steps))
        longer = b.bins(*[SECOND] * steps) if steps else slot.clean_bins
        made.append(reading(replace(slot, steps=moved, clean_bins=longer), **change))
        found.append(view_of(made[-1]).figures)
    # the last second is that since an earlier poll
    assert list(map(_of_one_poll, found)) == [_of_one_poll(computed(one)) for one in made]


def _of_one_poll(figures: Figures) -> Figures:
    return replace(figures, steps=replace(figures.steps, last_second=None))


@given(DURATIONS, st.floats(0, 1))
def test_a_quantile_is_in_the_bin_of_its_step(durations: list[int], q: float) -> None:
    found = record.quantile_ns(b.bins(*durations), q)
    if not durations:
        assert found is None
        return
    assert found is not None
    step = sorted(durations)[max(0, math.ceil(q * len(durations)) - 1)]
    at = b.bins(step).index(1)
    low = record.BOUNDS_NS[at - 1] if at else 0
    assert low <= found <= record.BOUNDS_NS[min(at, len(record.BOUNDS_NS) - 1)]


@given(DURATIONS)
def test_the_longest_step_is_rounded_up_to_its_bins_end(durations: list[int]) -> None:
    longest = lengths(b.bins(*durations), 0).longest
    if not durations:
        assert longest is None
        return
    ends = [end for end in record.BOUNDS_NS if end >= max(durations)] or record.BOUNDS_NS[-1:]
    assert longest == ends[0] / 1e9


def test_values_that_a_record_lacks_are_unknown() -> None:
    bare = figures(b.slot(attached=4, torch="", python="", agent=""))
    unknown = {name for name, value in _leaves(bare) if value is None}
    assert unknown >= {
        *("who.host", "who.torch", "steps.first_at", "steps.last_at", "steps.last"),
        *("steps.clean.median", "steps.tokens", "compile.open"),
        *("compile.last_end_at", "warmups.latest", "warmups.first", "life.end", "agent.version"),
        *("progress.compiler_quiet_seconds", "log.reopened_by", "workers"),
    }
    clean = bare.steps.clean
    assert clean.p99 is clean.median_low is clean.median_high is None
    assert 0.0 not in [value for name, value in _leaves(bare) if name.endswith(("_at", "since"))]


def _leaves(value: Any, where: str = "") -> list[tuple[str, Any]]:
    if not (names := field_names(value)):
        return [(where.removeprefix("."), value)]
    parts = ((name, getattr(value, name)) for name in names)
    return [leaf for name, part in parts for leaf in _leaves(part, f"{where}.{name}")]
