"""A Prometheus server as a data source: what many daemons last reported, by rank and device.

This module only reads the samples; ``assembly.py`` interprets them. Prometheus returns the last
sample of five minutes unless a target is gone, so samples of a dead daemon do not appear.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from warmwatch_monitor.base.access import ANYBODY, Access
from warmwatch_monitor.base.errors import FleetError
from warmwatch_monitor.figures.compile import Compile, Counted, OpenActivity
from warmwatch_monitor.figures.declared import Figure, figures
from warmwatch_monitor.figures.rank import LimitedBy, Slower
from warmwatch_monitor.figures.training import Pauses, Warmup
from warmwatch_monitor.model.figures import Memory, Progress, Steps, Stretch, Who
from warmwatch_monitor.model.machine import Sample

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
        # the label of a single number only says of what it is
        if (figure.type not in (int, float) if figure.label else figure.metric)
    }


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


# The series that an answer needs, without the prefix. Others, such as buckets, are not fetched.
_ONE_HOT = ("state", "compile_phase", "condition", "compile_disabled", "limited_by")
_FIGURES = (
    *(Compile, OpenActivity, Counted, Stretch, Progress, Steps, Warmup, Who, Memory, Pauses),
    *(Slower, LimitedBy),
)
_RANK_NAMES = (
    *(name for struct in _FIGURES for name in names(struct) if name not in _ONE_HOT),
    *("clean_steps", "compile_workers", "steady_step_seconds"),
    *("step_seconds_count", "step_seconds_sum"),
    *("run_info", "rank_gpu_info", "end_info", "oom_killed"),
)
# How far the clock of a host is behind the server's.
_CLOCKS = (
    "label_replace(max by (instance) (timestamp(warmwatch_time_seconds) - warmwatch_time_seconds), "
    f'"__name__", "warmwatch_{CLOCK_BEHIND}", "", "")'
)
_OF_ANYBODY = "(@[^@]+)?"  # the suffix of a run's own name, see ``Owner.shown``
_TIMEOUT_SECONDS = 30.0
_LARGEST_REPLY = 256 << 20  # bytes; 10,000 ranks have about 100 MB
_MOST_SERIES = 2_000_000  # 10,000 ranks have about 600,000
_OF_EACH = b'"metric"'  # of each series in an answer
_LARGEST = 2.0**63  # decades in nanoseconds; no series of ours comes near it


class PrometheusSource:
    """Queries the Prometheus at ``url``, such as ``http://host:9090``; the URL may have a path."""

    def __init__(self, url: str, access: Access = ANYBODY) -> None:
        self._url, self._access = url.rstrip("/"), access

    def read(self, run: str | None = None) -> tuple[Sample, ...]:
        """The last samples of every rank and its GPUs, or only those of the runs named ``run``.

        ``run`` is a public name, or an own name of any user's runs.

        Raises:
            FleetError: it cannot be reached, or does not answer like Prometheus. UsageError:
            the credentials cannot be read.
        """
        return tuple(sample for query in queries(run) for sample in self._ask(query))

    def _ask(self, query: str) -> Iterator[Sample]:
        form = urllib.parse.urlencode({"query": query}).encode()
        request = urllib.request.Request(f"{self._url}/api/v1/query", data=form)  # noqa: S310 - checked
        if who := self._access.authorization():
            request.add_unredirected_header("Authorization", who)  # not sent on a redirect
        tls = self._access.tls() if self._url.startswith("https:") else None
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=_TIMEOUT_SECONDS, context=tls
            ) as reply:
                body = reply.read(_LARGEST_REPLY + 1)
                if len(body) > _LARGEST_REPLY:
                    raise ValueError(f"its answer is larger than {_LARGEST_REPLY >> 20} MiB")
        except urllib.error.HTTPError as error:
            advice = _CREDENTIALS if error.code == UNAUTHORIZED else _OTHER
            raise FleetError(f"{self._url} answers with HTTP {error.code}; {advice}") from None
        except (OSError, ValueError, HTTPException) as error:
            cause = getattr(error, "reason", None) or error  # what a URLError wraps
            why = getattr(cause, "strerror", None) or cause
            raise FleetError(
                f"{self._url} does not answer as Prometheus: {why}; {_OTHER}"
            ) from None
        yield from samples(body, self._url)


UNAUTHORIZED = 401
_CREDENTIALS = "give --token-file or --user-file with its credentials"
_OTHER = "give the address of a Prometheus server, such as http://prometheus:9090"


def queries(run: str | None) -> Iterator[str]:
    which = "" if run is None else f",run=~{json.dumps(re.escape(run) + _OF_ANYBODY)}"
    yield f"{{__name__=~{_names('', _ONE_HOT)}{which}}} == 1"
    yield f"{{__name__=~{_names('', _RANK_NAMES)}{which}}}"
    rank_gpus = f"warmwatch_rank_gpu_info{{{which.removeprefix(',')}}}"
    yield f"{{__name__=~{_names('gpu_', GPU_NAMES)}}} and on (uuid) {rank_gpus}"
    yield _CLOCKS


def _names(prefix: str, names: tuple[str, ...]) -> str:
    return f'"warmwatch_{prefix}({"|".join(names)})"'


class _Series(Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Result(Struct):
    result: list[_Series]


class _Answer(Struct):
    status: str
    data: _Result


def samples(body: bytes, url: str) -> Iterator[Sample]:
    """The samples of an answer, without values that are not finite or out of range.

    Raises:
        FleetError: it is not an answer from Prometheus.
    """
    try:
        if body.count(_OF_EACH) > _MOST_SERIES:
            raise FleetError(
                f"{url} answers with more than {_MOST_SERIES:,} series; name one run, or ask a "
                "Prometheus server of fewer hosts"
            )
        samples = [_sample(series) for series in _result(body)]
    except (ValueError, LookupError, RecursionError, msgspec.MsgspecError):
        raise FleetError(f"{url} does not answer as Prometheus; {_OTHER}") from None
    return (sample for sample in samples if abs(sample.value) < _LARGEST)  # which NaN is not


def _result(body: bytes) -> list[_Series]:
    answer = msgspec.json.decode(body, type=_Answer)
    if answer.status != "success":
        raise ValueError("not a success")
    return answer.data.result


def _sample(series: _Series) -> Sample:
    name = series.metric.pop("__name__").removeprefix("warmwatch_")
    return Sample(name=name, labels=series.metric, value=float(series.value[1]))
