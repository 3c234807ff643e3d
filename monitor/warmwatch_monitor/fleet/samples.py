"""Groups a Prometheus server's samples by rank and device. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from warmwatch_monitor.model import Sample

_MOST_DIGITS = 9  # of a rank, an index, an exit code
_OWN_LABELS = (
    *("state", "phase", "condition", "kind", "category", "cache", "by", "of", "backend"),
    "limit",
)


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
        found = ((label, self.labelled.get((name, label))) for label in labels)
        return {label: value for label, value in found if value is not None}

    def counts(self, name: str, labels: Iterable[str]) -> dict[str, int] | None:
        """``None`` if there is no such series."""
        return {label: round(v) for label, v in self.values(name, labels).items()} or None

    def complete(self, name: str, labels: Sequence[str]) -> dict[str, int] | None:
        """``None`` if one of them is missing, which is 0 of an ended rank (see ``metrics``)."""
        found = self.counts(name, labels)
        if found and self.end:
            return dict.fromkeys(labels, 0) | found
        return found if found and len(found) == len(labels) else None

    def chosen(self, name: str) -> tuple[str, ...]:
        """The labels of the series with value 1, where each series is 0 or 1."""
        return tuple(label for (known, label), on in self.labelled.items() if known == name and on)


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
