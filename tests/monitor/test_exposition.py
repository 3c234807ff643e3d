"""The text of /metrics is, to the byte, what prometheus_client's own encoders make of the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from warmwatch_monitor.export.exposition import Family, encode

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# what the name of a sample adds to its family's
SUFFIXES = {"gauge": "", "counter": "_total", "info": "_info"}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
LABELS = st.dictionaries(st.sampled_from(("run", "rank", "kind", "uuid")), TEXT, max_size=4)
VALUES = st.one_of(
    st.integers(0, 2**60), st.floats(allow_nan=True, allow_infinity=True), st.booleans()
)


class Registry:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


@given(
    st.lists(st.tuples(st.sampled_from(sorted(SUFFIXES)), TEXT, LABELS, VALUES), max_size=6),
    st.sampled_from(("text/plain", OPENMETRICS, "")),
)
def test_the_text_is_the_library_s(
    given_: list[tuple[str, str, dict[str, str], float]], accept: str
) -> None:
    families, metrics = [], []
    for number, (type_, help, labels, value) in enumerate(given_):
        name = f"warmwatch_{number}"
        family, metric = Family(name, help, type_), Metric(name, help, type_)
        family.add(name + SUFFIXES[type_], labels, value)
        metric.samples.append(Sample(name + SUFFIXES[type_], labels, value))
        families.append(family)
        metrics.append(metric)
    encoder, content_type = choose_encoder(accept)
    assert encode(families, accept) == (encoder(Registry(metrics)), content_type)


def test_a_family_without_a_sample_is_not_there() -> None:
    assert encode([Family("warmwatch_x", "help", "gauge")], None)[0] == b""
