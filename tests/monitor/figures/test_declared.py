"""A figure is declared once: each view has its text, each reader its name."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from support import builders as b
from support.reference import OF_GPUS
from warmwatch.hooks.registry import OTHER_COMPILERS, POINTS
from warmwatch.shared.record import CompileCounts
from warmwatch.shared.values import PLAIN
from warmwatch_monitor import figures as room
from warmwatch_monitor.figures.declared import Figure, field_texts, figures
from warmwatch_monitor.metrics import families
from warmwatch_monitor.model import figures as model_figures
from warmwatch_monitor.model import machine
from warmwatch_monitor.status.schema import rank as rank_schema
from warmwatch_monitor.status.schema import status as status_schema
from warmwatch_monitor.status.schema.json_schema import schema_file

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
FAMILIES = {family.sample_name: family for family in families(b.snapshot())}
HOT = "1 for the value that holds, else 0: "


def declared() -> Iterator[tuple[type[Struct], str, Figure]]:
    """Every figure, with its struct and its field."""
    names = [f"{room.__name__}.{one.name}" for one in pkgutil.iter_modules(room.__path__)]
    modules = [*map(import_module, names), model_figures, machine]
    modules += [rank_schema, status_schema]
    structs = {
        one: None
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Struct) and one is not Struct
    }
    for struct in structs:
        for name, figure in figures(struct).items():
            yield struct, name, figure


def test_status_metrics_and_the_reference_have_the_same_text_for_a_figure() -> None:
    keys = json.loads(schema_file())["$defs"]
    metrics = (REFERENCE / "metrics.md").read_text()
    gpus = (REFERENCE / "gpus.md").read_text()
    documents = (REFERENCE / "status-and-events.md").read_text()
    in_both = set()
    for struct, name, figure in declared():
        text = figure.text or field_texts(struct)[name]
        published = keys.get(struct.__name__, {}).get("properties", {}).get(name)
        if published is not None:
            assert published["description"] == text, (struct, name)
            assert text in documents, (struct, name)
        if figure.metric:
            family = FAMILIES[f"warmwatch_{figure.metric}"]
            assert family.help.removeprefix(HOT) == text, (struct, name)
            if family.name.startswith(OF_GPUS):
                assert f"`{family.sample_name.removeprefix(OF_GPUS)}`" in gpus, (struct, name)
            else:
                assert text in metrics, (struct, name)
            if published is not None:
                in_both.add(figure.metric)
    assert len(in_both) > 15


def test_a_figure_is_read_from_a_counter_and_needs_hook_points_that_exist() -> None:
    points = {name for name, *_ in (*POINTS, *OTHER_COMPILERS)}
    counted = {"graph_counter", "graph_break_counter", "cache_counters"}  # of Dynamo's counters
    counters = {(figure.counter, name) for _, name, figure in declared() if figure.counter}
    assert {counter for counter, _ in counters} <= {*CompileCounts._fields, *PLAIN}
    assert len(counters) > 10
    assert {point for _, _, figure in declared() for point in figure.needs} <= points | counted
