"""Marks on the time axis of every graph of a dashboard, from Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery

from warmwatch_dashboards.panels import SOURCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(Builder[AnnotationQuery]):
    """A mark wherever ``expr`` is above 0, a region where it stays so.

    With ``value_is_time`` the value is itself the time of the mark, in milliseconds.
    """

    name: str
    expr: str
    text: str
    colour: str
    value_is_time: bool = False

    def build(self) -> AnnotationQuery:
        return _PrometheusAnnotation(self)


class _PrometheusAnnotation(AnnotationQuery):
    """With the keys that Grafana's Prometheus data source reads and the SDK lacks."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(name=mark.name, datasource=SOURCE, icon_color=mark.colour, expr=mark.expr)
        self._mark = mark

    def to_json(self) -> dict[str, object]:
        return {
            **super().to_json(),
            "titleFormat": self._mark.name,
            "textFormat": self._mark.text,
            "useValueForTime": self._mark.value_is_time,
            # Grafana's own default of 60 s would place marks a minute too late.
            "step": "15s",
        }
