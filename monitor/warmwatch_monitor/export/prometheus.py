"""The ``/metrics`` answer: one Snapshot in the Prometheus text format, or in OpenMetrics.

Built anew for each scrape from one Snapshot, so all series are of one moment; nothing is
registered and nothing is kept. The encoding is prometheus_client's. A Snapshot holds each
(run, rank) once, so no series appears twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from warmwatch.record import BOUNDS_NS
from warmwatch_monitor.export import figures, gpu_series, host_series, observed
from warmwatch_monitor.export.figures import tells
from warmwatch_monitor.export.rank_series import RANK_SERIES
from warmwatch_monitor.export.series import Rank, Series, rank
from warmwatch_monitor.model import Snapshot

# 1, 2.5 and 5 in each decade from a millisecond to 1000 s; each is an edge of the fine bins.
_EDGES_NS = (*(m * 10**d for d in range(5, 11) for m in (10, 25, 50)), 10**12)
_UPTO = tuple(BOUNDS_NS.index(edge) + 1 for edge in _EDGES_NS)
_LE = (*(str(edge / 1e9) for edge in _EDGES_NS), "+Inf")

_Labels = dict[str, str]


def render(
    snapshot: Snapshot, accept: str | None, *, version: str | None = None
) -> tuple[bytes, str]:
    """The body and its content type, in the format that the ``Accept`` header asks for.

    ``version`` is Warmwatch's own, for ``warmwatch_build_info``; without it there is none.
    """
    encode, content_type = choose_encoder(accept or "")
    # Our names need no escaping, and prometheus_client finds that out five times faster where
    # UTF-8 is allowed than where every character of every name is looked at.
    if isinstance(encode, partial) and encode.keywords.get("escaping") == "underscores":
        encode = partial(encode, escaping="allow-utf-8")
    return encode(_Families(snapshot, version)), content_type


class _Families:
    """What an encoder asks for: an object with ``collect``."""

    def __init__(self, snapshot: Snapshot, version: str | None) -> None:
        self._snapshot = snapshot
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Every family that has a series."""
        return (metric for metric in self._all() if metric.samples)

    def _all(self) -> Iterator[Metric]:
        ranks = [
            ({"rank": str(view.rank), "run": _text(run.run)}, rank(view, self._snapshot.now_ns))
            for run in self._snapshot.runs
            for view in run.ranks
        ]
        for series in RANK_SERIES:
            yield _family(series, ranks)
        yield _step_seconds(ranks)
        yield _info("warmwatch_run", "What the rank runs on.", map(_run_info, ranks))
        yield _info("warmwatch_rank_gpu", "Which GPU is whose.", _rank_gpus(ranks))
        yield from gpu_series.families(self._snapshot.gpus)
        yield from host_series.families(self._snapshot.host)
        yield _observed(self._snapshot)
        yield from _sources(self._snapshot)
        build = [{"version": self._version}] if self._version else []
        yield _info("warmwatch_build", "The version of the monitor.", build)


def _family(series: Series, ranks: Sequence[tuple[_Labels, Rank]]) -> Metric:
    metric = Metric(series.name.removesuffix("_total"), series.help, series.type)
    for labels, one in ranks:
        if series.seam and not tells(one.slot, series.seam):
            continue
        numbers = series.read(one)
        if numbers is None:
            continue
        for value, number in zip(series.values, numbers, strict=True):
            own = {series.label: value, **labels} if series.label else labels
            if number is not None:
                metric.samples.append(Sample(series.name, own, number))
    return metric


def _step_seconds(ranks: Sequence[tuple[_Labels, Rank]]) -> Metric:
    name = "warmwatch_step_seconds"
    metric = Metric(
        name, "Length of steps: clean ones, and those with compile activity.", "histogram"
    )
    for labels, one in ranks:
        slot = one.slot
        for kind, bins, sum_ns in (
            ("clean", slot.clean_bins, slot.clean_sum_ns),
            ("compile", slot.compile_bins, slot.compile.compile_step_sum_ns),
        ):
            own = {"kind": kind, **labels}
            metric.samples.extend(_histogram(name, own, bins, sum_ns))
    return metric


def _histogram(name: str, labels: _Labels, bins: Sequence[int], sum_ns: int) -> Iterator[Sample]:
    count = start = 0
    for le, stop in zip(_LE, (*_UPTO, len(bins)), strict=True):
        count, start = count + sum(bins[start:stop]), stop
        yield Sample(f"{name}_bucket", {**labels, "le": le}, count)
    yield Sample(f"{name}_count", labels, count)
    yield Sample(f"{name}_sum", labels, sum_ns / 1e9)


def _run_info(rank: tuple[_Labels, Rank]) -> _Labels:
    labels, one = rank
    identity = one.slot.identity
    return {
        **labels,
        "torch": _text(identity.torch),
        "python": _text(identity.python),
        "agent": _text(identity.agent),
        "launcher": _text(identity.launcher),
        "host": _text(identity.host),
        "warm_steps": str(one.slot.header.warm_steps),
        "world_size": "" if identity.world_size is None else str(identity.world_size),
    }


def _rank_gpus(ranks: Sequence[tuple[_Labels, Rank]]) -> Iterator[_Labels]:
    for labels, one in ranks:
        for uuid in figures.gpu_uuids(one.view) if figures.is_living(one.view) else ():
            yield {**labels, "uuid": _text(uuid)}


def _info(name: str, help: str, labels: Iterable[_Labels]) -> Metric:
    metric = Metric(name, help, "info")
    metric.samples.extend(Sample(f"{name}_info", one, 1) for one in labels)
    return metric


def _observed(snapshot: Snapshot) -> Metric:
    """Nothing where nobody looks."""
    metric = Metric(
        "warmwatch_observed_processes",
        "Processes that look like trainings without the agent, by whether they are likely to "
        "compile, as far as it can be told from outside.",
        "gauge",
    )
    if any(health.source == "observed" and health.up for health in snapshot.sources):
        for likely, number in observed.counts(snapshot.observed):
            metric.samples.append(Sample(metric.name, {"likely_compiling": likely}, number))
    return metric


def _sources(snapshot: Snapshot) -> Iterator[Metric]:
    up = Metric("warmwatch_source_up", "Whether the source could be read.", "gauge")
    last = Metric(
        "warmwatch_source_last_success_timestamp_seconds",
        "When the source was last read without an error.",
        "gauge",
    )
    took = Metric("warmwatch_source_read_seconds", "How long the last read took.", "gauge")
    for health in snapshot.sources:
        for metric, value in (
            (up, health.up),
            (last, health.last_success),
            (took, health.read_seconds),
        ):
            if value is not None:
                metric.samples.append(Sample(metric.name, {"source": health.source}, value))
    refused = Metric("warmwatch_records_refused", "Records that cannot be read.", "gauge")
    refused.samples.append(Sample(refused.name, {}, len(snapshot.refusals)))
    yield from (up, last, took, refused)


def _text(value: str) -> str:
    """``value`` fit for UTF-8: a script's name may hold bytes that are not."""
    return value.encode("utf-8", "replace").decode()
