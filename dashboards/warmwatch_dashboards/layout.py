"""A whole dashboard from rows of panels, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from warmwatch_dashboards.panels import SOURCE
from warmwatch_dashboards.queries import CLUSTER

TAG = "warmwatch"

Rows = Mapping[str, Sequence[Builder[Panel]]]


def dashboard(uid: str, title: str, description: str) -> build.Dashboard:
    """An empty dashboard with links to the others, and variables for data source and cluster."""
    others = build.DashboardLink("Warmwatch").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    board = build.Dashboard(title).uid(uid).description(description).tags([TAG])
    board.link(others.as_dropdown(True).keep_time(True))
    # One crosshair over all panels: what the compiler and the GPU did at the same moment.
    board.tooltip(DashboardCursorSync.CROSSHAIR).time("now-1h", "now").refresh("15s")
    board.with_variable(
        build.DatasourceVariable("datasource").label("Data source").type("prometheus")
    )
    clusters = "label_values(warmwatch_build_info, cluster)"
    board.with_variable(variable("cluster", "Cluster", clusters, several=True))
    return board


def nodes() -> build.QueryVariable:
    """A choice among the monitors of the chosen clusters."""
    found = f"label_values(warmwatch_build_info{{{CLUSTER}}}, instance)"
    return variable("node", "Node", found, several=True)


def limit(name: str, label: str, *values: int) -> build.CustomVariable:
    """How many lines or rows a panel may have, so that a panel of 4,000 is never drawn."""
    chosen = build.CustomVariable(name).label(label).values(",".join(map(str, values)))
    return chosen.current(VariableOption(selected=True, text=str(values[0]), value=str(values[0])))


def variable(name: str, label: str, query: str, *, several: bool) -> build.QueryVariable:
    """A variable with the values that ``query`` finds in the time shown; one, or ``several``."""
    chosen = build.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    chosen.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.NATURAL_ASC)
    if several:
        chosen.multi(True).include_all(True).all_value(".*")
        chosen.current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    return chosen


def lay_out(board: build.Dashboard, rows: Rows) -> build.Dashboard:
    """``board`` with a heading and its panels for each of ``rows``, all numbered."""
    number = 0
    for heading, panels in rows.items():
        number += 1
        board.with_row(build.Row(heading).id(number))
        for panel in panels:
            number += 1
            board.with_panel(_Numbered(panel, number))
    return board


class _Numbered(Builder[Panel]):
    def __init__(self, panel: Builder[Panel], number: int) -> None:
        self._panel, self._number = panel, number

    def build(self) -> Panel:
        panel = self._panel.build()
        panel.id_val = self._number
        return panel
