"""Tables of what has ended, and how."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table

from warmwatch_dashboards.columns import CLUSTER_COLUMN, TO_RUN, Column, arrange
from warmwatch_dashboards.panels import About, Query, rows
from warmwatch_dashboards.queries import CHOSEN, CLUSTER

_HOW = (
    Column(field="end", heading="End"),
    Column(field="exit_code", heading="Exit code"),
)


def of_ranks() -> table.Panel:
    """How each of the chosen ranks ended."""
    panel = rows(
        About(
            title="Ends",
            description="Ranks that are over: how each ended, and its exit code where it is known. "
            "Lost: ended without an exit record, as after SIGKILL.",
            width=24,
            height=6,
            none="no rank has ended",
        ),
        Query(f"topk($rows, max by (rank, end, exit_code) ({_ended(CHOSEN)}))"),
    )
    return arrange(panel, Column(field="rank", heading="Rank"), *_HOW)


def of_runs() -> table.Panel:
    """How many ranks of each run ended how."""
    panel = rows(
        About(
            title="Ends",
            description="Ranks that are over, by how they ended. Some of a run that lives are a "
            "loss; all of a run, lost within seconds, are a cancelled job.",
            width=12,
            none="no rank has ended",
        ),
        Query(f"topk($rows, count by (cluster, run, end, exit_code) ({_ended(CLUSTER)}))"),
    )
    ranks = Column(field="Value", heading="Ranks")
    return arrange(
        panel, CLUSTER_COLUMN, Column(field="run", heading="Run", link=TO_RUN), *_HOW, ranks
    )


def _ended(selector: str) -> str:
    """Of the record that represents each rank now: one that was started again has not ended."""
    over = f'rank:warmwatch_state:latest{{{selector},state=~"finished|failed|lost"}}'
    return f"warmwatch_end_info{{{selector}}} and on (cluster, run, rank, instance) {over}"
