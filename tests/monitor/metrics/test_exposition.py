"""The text of /metrics is, to the byte, what prometheus_client's own encoders make of the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from support import builders as b
from warmwatch_monitor.metrics import Family, Labels, SnapshotCollector, render
from warmwatch_monitor.metrics.families import encode

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# what the name of a sample adds to its family's
SUFFIXES = {"gauge": "", "counter": "_total", "info": "_info"}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
LABELS = st.dictionaries(st.sampled_from(("run", "rank", "a", "uuid")), TEXT, max_size=4)
VALUES = st.one_of(
    st.integers(0, 2**60), st.floats(allow_nan=True, allow_infinity=True), st.booleans()
)
# a family's own label, its columns, and rows with a value, or none, for each of them
OWN = st.one_of(
    st.just(("", ("",))),
    st.tuples(st.sampled_from(("kind", "state", "own")), st.lists(TEXT, min_size=1, max_size=3)),
)


class Registry:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


@st.composite
def families(draw: st.DrawFn) -> tuple[list[Family], list[Metric]]:
    """Ours, and the same as prometheus_client's."""
    made, metrics = [], []
    for number in range(draw(st.integers(0, 5))):
        name, type_, help = (
            f"warmwatch_{number}",
            draw(st.sampled_from(sorted(SUFFIXES))),
            draw(TEXT),
        )
        label, columns = draw(OWN)
        family = Family(name=name, help=help, type=type_, label=label, columns=columns)
        metric = Metric(name, help, type_)
        for _ in range(draw(st.integers(1, 3))):
            labels = draw(LABELS)
            values = [draw(st.none() | VALUES) for _ in columns[1:]] + [draw(VALUES)]
            family.rows.append((Labels(labels), values))
            for column, value in zip(columns, values, strict=True):
                own = {label: column} if label else {}
                if value is not None:
                    sample = Sample(name + SUFFIXES[type_], {**labels, **own}, value)
                    metric.samples.append(sample)
        made.append(family)
        metrics.append(metric)
    return made, metrics


@given(families(), st.sampled_from(("text/plain", OPENMETRICS, "")))
def test_the_text_equals_the_library_s(
    both: tuple[list[Family], list[Metric]], accept: str
) -> None:
    made, metrics = both
    encoder, content_type = choose_encoder(accept)
    assert encode(made, accept) == (encoder(Registry(metrics)), content_type)


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
@pytest.mark.parametrize("state", [*b.in_every_state(), "with a GPU", "nothing"])
def test_a_registry_with_the_collector_serves_the_same_bytes(state: str, accept: str) -> None:
    gpu = b.gpu(clocks_hertz=(("sm", 1.9e9),), throttled=(("power", True), ("heat", False)))
    states = {**b.in_every_state('odd "\\\n run'), "with a GPU": b.view(b.WARM, gpus=(gpu,))}
    snapshot = b.snapshot(*[states[state]] if state in states else [], gpus=(gpu,))
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(lambda: snapshot, "0.1.0"))
    encoder, content_type = choose_encoder(accept)
    assert (encoder(registry), content_type) == render(snapshot, accept, version="0.1.0")
