"""The series of a rank's state, in the order in which /metrics lists them.

Names, types and labels are public.
"""

from __future__ import annotations

from warmwatch.verdict import CONDITIONS, State
from warmwatch_monitor.export.series.table import Series, gauge, gauges, one_hot
from warmwatch_monitor.model import RankView

STATES = tuple(state.value for state in State)

STATE_SERIES: tuple[Series[RankView], ...] = (
    gauge(
        "warmwatch_warm",
        "Whether nothing is left to wait for: the rank is warm or runs eagerly.",
        lambda view: view.judgement.warm,
    ),
    gauge(
        "warmwatch_compiling",
        "Whether compile activity is in progress now.",
        lambda view: view.judgement.compiling,
    ),
    gauges(
        "warmwatch_state",
        "1 for the state that the rank is in, 0 for the others.",
        "state",
        STATES,
        lambda view: one_hot([view.judgement.state.value], STATES),
    ),
    gauge(
        "warmwatch_state_start_timestamp_seconds",
        "When the present state began.",
        lambda view: view.figures.progress.state_since,
    ),
    gauge(
        "warmwatch_clean_steps",
        "Steps in a row without compile activity, up to now.",
        lambda view: view.judgement.clean_steps,
    ),
    gauges(
        "warmwatch_condition",
        f"1 for what holds beside the state: {', '.join(CONDITIONS)}; else 0.",
        "condition",
        CONDITIONS,
        lambda view: one_hot(view.judgement.conditions, CONDITIONS),
    ),
)
