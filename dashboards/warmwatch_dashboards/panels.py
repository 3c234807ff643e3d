"""The kinds of panel that the dashboards are made of.

Each panel has a title, a description, a unit and a data source: there is no way to make one
without. Ids and places are given by :mod:`warmwatch_dashboards.layout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import (
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

_Panel = TypeVar("_Panel", stat.Panel, statetimeline.Panel, table.Panel, timeseries.Panel)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What every panel has: words, a unit of Grafana's, a size on the grid of 24 columns."""

    title: str
    description: str
    width: int
    unit: str = units.NoUnit
    height: int = 8
    none: str | None = None  # what to show where the query finds nothing


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and how each of its series is called."""

    expr: str
    legend: str = ""


def lines(about: About, *queries: Query, from_zero: bool = True) -> timeseries.Panel:
    """Curves over time, with their last and highest values below."""
    legend = (
        build_common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    tooltip = (
        build_common.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    panel = timeseries.Panel().legend(legend).tooltip(tooltip)
    if from_zero:
        panel.min(0)
    panel.color_scheme(build.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    panel.line_width(1).show_points(common.VisibilityMode.AUTO)
    return _with(panel, about, [_range(query) for query in queries])


def areas(
    about: About, *queries: Query, colours: Mapping[str, str] = MappingProxyType({})
) -> timeseries.Panel:
    """Curves that add up, one on the other; ``colours``: by the name of a curve."""
    stacking = build_common.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
    panel = lines(about, *queries).stacking(stacking).fill_opacity(40)
    for name, colour in colours.items():
        fixed = {"mode": FieldColorModeId.FIXED.value, "fixedColor": colour}
        panel.override_by_name(name, [DynamicConfigValue(id_val="color", value=fixed)])
    return panel


def counts(about: About, *queries: Query) -> timeseries.Panel:
    """Counters as they stand: a step up is when something happened."""
    return (
        lines(about, *queries).line_interpolation(common.LineInterpolation.STEP_AFTER).decimals(0)
    )


def number(about: About, *queries: Query, steps: Sequence[Threshold] = ()) -> stat.Panel:
    """The value at the end of the time shown, never an older one; coloured by ``steps``."""
    reduce = build_common.ReduceDataOptions().calcs(["lastNotNull"])
    panel = stat.Panel().reduce_options(reduce).graph_mode(common.BigValueGraphMode.NONE)
    panel.color_mode(common.BigValueColorMode.VALUE)
    return _with(panel, about, [_instant(query) for query in queries]).thresholds(_levels(steps))


def state(about: About, query: Query, mapping: ValueMap) -> stat.Panel:
    """A state in words, in its colour."""
    panel = number(about, query).mappings([mapping])
    return panel.color_mode(common.BigValueColorMode.BACKGROUND)


def timeline(about: About, query: Query, mapping: ValueMap) -> statetimeline.Panel:
    """A band for each series, in the colour of its state."""
    legend = (
        build_common.VizLegendOptions().show_legend(True).placement(common.LegendPlacement.BOTTOM)
    )
    panel = statetimeline.Panel().mappings([mapping]).merge_values(True).legend(legend)
    panel.show_value(common.VisibilityMode.AUTO).row_height(0.85).fill_opacity(80)
    return _with(panel, about, [_range(query)]).thresholds(_levels(()))


def rows(about: About, *queries: Query) -> table.Panel:
    """A table of the present values, which :mod:`warmwatch_dashboards.columns` arranges."""
    return _with(table.Panel(), about, [_instant(query, table=True) for query in queries])


def level(colour: str, value: float | None = None) -> Threshold:
    """A colour from ``value`` on; without one, from the start."""
    return Threshold(value=value, color=colour)


def _with(panel: _Panel, about: About, queries: Sequence[prometheus.Dataquery]) -> _Panel:
    panel.title(about.title).description(about.description).unit(about.unit)
    panel.datasource(SOURCE).span(about.width).height(about.height)
    if about.none is not None:
        panel.no_value(about.none)
    for letter, query in zip("ABCDEFGHIJ", queries, strict=False):
        panel.with_target(query.ref_id(letter).datasource(SOURCE))
    return panel


def _range(query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend).range()


def _instant(query: Query, *, table: bool = False) -> prometheus.Dataquery:
    form = PromQueryFormat.TABLE if table else PromQueryFormat.TIME_SERIES
    found = prometheus.Dataquery().expr(query.expr).legend_format(query.legend)
    return found.instant().format(form)


def _levels(steps: Sequence[Threshold]) -> build.ThresholdsConfig:
    config = build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE)
    return config.steps(list(steps) or [level("text")])
