"""How a table's columns are named, formatted and linked.

Grafana calls the value of query A ``Value #A``, or ``Value`` where it is the only one, and labels
by their names; several queries are merged into one row for each set of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    ValueMap,
)

# The same time, data source and clusters there; Grafana encodes the value itself.
_QUERY = "${__url_time_range}&var-datasource=${datasource}&${cluster:queryparam}"
TO_RUN = ("Show this run", f"/d/warmwatch-run/?var-run=${{__value.raw}}&{_QUERY}")
TO_GPU = ("Show this GPU", f"/d/warmwatch-gpu/?var-gpu=${{__value.raw}}&{_QUERY}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: the field it shows, its heading, and how its values look."""

    field: str
    heading: str
    unit: str | None = None
    mapping: ValueMap | None = None
    link: tuple[str, str] | None = None


# Prometheus servers without clusters have no such label, and the table no such column.
CLUSTER_COLUMN = Column(field="cluster", heading="Cluster")


def arrange(panel: table.Panel, *columns: Column) -> table.Panel:
    """These columns in this order, and no other."""
    fields = [column.field for column in columns]
    for name, options in (
        ("merge", {}),
        ("filterFieldsByName", {"include": {"names": fields}}),
        ("organize", _order(columns)),
    ):
        panel.with_transformation(DataTransformerConfig(id_val=name, options=options))
    for column in columns:
        if properties := _properties(column):
            panel.override_by_name(column.heading, properties)
    return panel.filterable(True)


def _order(columns: Sequence[Column]) -> dict[str, object]:
    return {
        "indexByName": {column.field: place for place, column in enumerate(columns)},
        "renameByName": {column.field: column.heading for column in columns},
    }


def _properties(column: Column) -> list[DynamicConfigValue]:
    properties = []
    if column.unit is not None:
        properties.append(DynamicConfigValue(id_val="unit", value=column.unit))
    if column.mapping is not None:
        properties.append(DynamicConfigValue(id_val="mappings", value=[column.mapping]))
        coloured = {"type": "color-background"}
        properties.append(DynamicConfigValue(id_val="custom.cellOptions", value=coloured))
    if column.link is not None:
        title, url = column.link
        properties.append(DynamicConfigValue(id_val="links", value=[{"title": title, "url": url}]))
    return properties
