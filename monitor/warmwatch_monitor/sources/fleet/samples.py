"""Groups a Prometheus server's samples by rank and device. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch_monitor.figures.declared import Figure, figures
from warmwatch_monitor.model import Sample

_MOST_DIGITS = 9  # of a rank, an index, an exit code
_OWN_LABELS = (
    *("state", "phase", "condition", "kind", "category", "cache", "by", "of", "backend"),
    *("limit", "cause"),
)


# figures of a GPU that an answer has, and the names of their series after `gpu_`
GPU_NAMES = (
    *("utilization_ratio", "power_watts", "power_limit_watts"),
    *("sm_active_ratio", "tensor_active_ratio"),
)
CLOCK_BEHIND = "clock_behind"  # the sample of a daemon's clock
_LAG_SECONDS = 2.0  # what a daemon shows is as old as its last poll


def on_one_clock(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples with all timestamps on the server's clock, without those of the clocks."""
    result = list(samples)
    behind = {
        item.labels.get("instance"): item.value
        for item in result
        if item.name == CLOCK_BEHIND and abs(item.value) > _LAG_SECONDS
    }
    for sample in result:
        if sample.name.endswith("_timestamp_seconds") and sample.labels.get("instance") in behind:
            yield replace(sample, value=sample.value + behind[sample.labels.get("instance")])
        elif sample.name != CLOCK_BEHIND:
            yield sample


class RankSeries(Struct):
    """The samples of one rank from one daemon: values by name, and by name and label value."""

    instance: str
    single: dict[str, float] = field(default_factory=dict)
    labelled: dict[tuple[str, str], float] = field(default_factory=dict)
    info: Mapping[str, str] = field(default_factory=dict)
    end: Mapping[str, str] = field(default_factory=dict)
    gpus: set[str] = field(default_factory=set)

    def value(self, name: str) -> float | None:
        return self.single.get(name)

    def count(self, name: str) -> int | None:
        value = self.single.get(name)
        return None if value is None else round(value)

    def values(self, name: str, labels: Iterable[str]) -> dict[str, float]:
        generator = ((label, self.labelled.get((name, label))) for label in labels)
        return {label: value for label, value in generator if value is not None}

    def counts(self, name: str, labels: Iterable[str]) -> dict[str, int] | None:
        """``None`` if there is no such series."""
        return {label: round(v) for label, v in self.values(name, labels).items()} or None

    def complete(self, name: str, labels: Sequence[str]) -> dict[str, int] | None:
        """``None`` if one of them is missing, which is 0 of an ended rank (see ``metrics``)."""
        counts = self.counts(name, labels)
        if counts and self.end:
            return dict.fromkeys(labels, 0) | counts
        return counts if counts and len(counts) == len(labels) else None

    def chosen(self, name: str) -> tuple[str, ...]:
        """The labels of the series with value 1, where each series is 0 or 1."""
        return tuple(label for (text, label), on in self.labelled.items() if text == name and on)


def read(struct: type[Struct], series: RankSeries) -> dict[str, Any]:
    """The figures of ``struct`` that have a series, by field."""
    return {
        name: _value(figure, series)
        for name, figure in figures(struct).items()
        if (figure.metric or figure.label) and not _is_of_one(figure)
    }


def _is_of_one(figure: Figure) -> bool:
    """Whether its label only says of what the one value is."""
    return bool(figure.label) and figure.type in (int, float)


def _value(figure: Figure, series: RankSeries) -> Any:
    """The value of a figure; ``None`` without a series, of seconds by name an empty mapping."""
    name, labels = figure.metric, figure.values
    if not name:  # a struct for each name
        of_each = get_args(figure.type)[1]
        parts = {
            key: series.complete(item.metric, labels) for key, item in figures(of_each).items()
        }
        groups = {key: part for key, part in parts.items() if part is not None}
        if len(groups) < len(parts):
            return None
        return {
            text: of_each(**{key: part[text] for key, part in groups.items()}) for text in labels
        }
    if figure.one_of:
        return next((label for label in series.chosen(name) if label in labels), None)
    if not labels:
        return series.count(name) if figure.type is int else series.value(name)
    whole_numbers = get_args(figure.type)[1] is int
    return series.counts(name, labels) if whole_numbers else series.values(name, labels)


def names(struct: type[Struct]) -> Iterator[str]:
    """The names of the series that ``read`` reads."""
    for figure in figures(struct).values():
        if figure.metric:
            yield figure.metric
        elif figure.label:
            yield from names(get_args(figure.type)[1])


def add_to_rank(ranks: dict[tuple[str, int], dict[str, RankSeries]], sample: Sample) -> None:
    labels = sample.labels
    rank = whole(labels.get("rank", ""))
    if "run" not in labels or rank is None:
        return
    instance = labels.get("instance", "")
    by_instance = ranks.setdefault((labels["run"], rank), {})
    series = by_instance.setdefault(instance, RankSeries(instance))
    if sample.name == "run_info":
        series.info = labels
    elif sample.name == "end_info":
        series.end = labels
    elif sample.name == "rank_gpu_info":
        series.gpus.update({labels["uuid"]} if "uuid" in labels else ())
    elif own := [labels[name] for name in _OWN_LABELS if name in labels]:
        series.labelled[sample.name, own[0]] = sample.value
    else:
        series.single[sample.name] = sample.value


def latest(by_instance: Mapping[str, RankSeries]) -> RankSeries:
    """The series of the daemon at which the rank attached last: a restart can move a rank."""
    return max(
        by_instance.values(), key=lambda t: (t.value("attach_timestamp_seconds") or 0.0, t.instance)
    )


def add_to_device(devices: dict[str, dict[str, float | str]], sample: Sample) -> None:
    uuid, index = sample.labels.get("uuid"), sample.labels.get("gpu", "")
    if uuid is not None and whole(index) is not None:
        device = devices.setdefault(uuid, {"index": index})
        device[sample.name.removeprefix("gpu_")] = sample.value


def whole(text: str) -> int | None:
    """The number in a label; ``None`` if it is not a number or out of range."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None
