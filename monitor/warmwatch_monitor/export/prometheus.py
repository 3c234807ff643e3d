"""The ``/metrics`` answer: one Snapshot in the Prometheus text format, or in OpenMetrics.

Built anew for each scrape from one Snapshot, so all series are of one moment; nothing is
registered and nothing is kept. A Snapshot holds each (run, rank) once, so no series appears twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from warmwatch.record import BOUNDS_NS
from warmwatch_monitor.export import export_series, figures, gpu_series, host_series, observed
from warmwatch_monitor.export.exposition import Family, encode, label_text, line
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
    return encode(families(snapshot, version), accept)


def families(snapshot: Snapshot, version: str | None) -> Iterator[Family]:
    """Every family, those without a sample too."""
    ranks = [
        (_labels(run.run, view.rank), rank(view, snapshot.now_ns))
        for run in snapshot.runs
        for view in run.ranks
    ]
    told = [(label_text(labels), one) for labels, one in ranks]
    for series in RANK_SERIES:
        yield _family(series, told)
    yield _step_seconds(told)
    yield _info("warmwatch_run", "What the rank runs on.", map(_run_info, ranks))
    yield _info("warmwatch_rank_gpu", "Which GPU is whose.", _rank_gpus(ranks))
    yield from gpu_series.families(snapshot.gpus)
    yield from host_series.families(snapshot.host)
    yield _observed(snapshot)
    yield from _sources(snapshot)
    yield from export_series.families(snapshot.exports)
    build = [{"version": version}] if version else []
    yield _info("warmwatch_build", "The version of the monitor.", build)


def _labels(run: str, rank: int) -> _Labels:
    return {"rank": str(rank), "run": _text(run)}


def _family(series: Series, ranks: Sequence[tuple[str, Rank]]) -> Family:
    family = Family(series.name.removesuffix("_total"), series.help, series.type)
    own = [_own(series.label, value) for value in series.values]
    for labels, one in ranks:
        if series.seam and not tells(one.slot, series.seam):
            continue
        numbers = series.read(one)
        if numbers is None:
            continue
        for (before, after), number in zip(own, numbers, strict=True):
            if number is not None:
                family.lines.append(line(series.name, f"{before}{labels}{after}", number))
    return family


def _own(label: str | None, value: str) -> tuple[str, str]:
    """A series' own label as it stands before or after ``rank`` and ``run``: labels are sorted."""
    if label is None:
        return "", ""
    text = label_text({label: value})
    return (f"{text},", "") if label < "rank" else ("", f",{text}")


def _step_seconds(ranks: Sequence[tuple[str, Rank]]) -> Family:
    name = "warmwatch_step_seconds"
    family = Family(
        name, "Length of steps: clean ones, and those with compile activity.", "histogram"
    )
    for labels, one in ranks:
        slot = one.slot
        for kind, bins, sum_ns in (
            ("clean", slot.clean_bins, slot.clean_sum_ns),
            ("compile", slot.compile_bins, slot.compile.compile_step_sum_ns),
        ):
            family.lines.extend(_histogram(name, kind, labels, bins, sum_ns))
    return family


def _histogram(
    name: str, kind: str, labels: str, bins: Sequence[int], sum_ns: int
) -> Iterator[str]:
    count = start = 0
    for le, stop in zip(_LE, (*_UPTO, len(bins)), strict=True):
        count, start = count + sum(bins[start:stop]), stop
        yield line(f"{name}_bucket", f'kind="{kind}",le="{le}",{labels}', count)
    yield line(f"{name}_count", f'kind="{kind}",{labels}', count)
    yield line(f"{name}_sum", f'kind="{kind}",{labels}', sum_ns / 1e9)


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


def _info(name: str, help: str, labels: Iterable[_Labels]) -> Family:
    family = Family(name, help, "info")
    for one in labels:
        family.add(f"{name}_info", one, 1)
    return family


def _observed(snapshot: Snapshot) -> Family:
    """Nothing where nobody looks."""
    family = Family(
        "warmwatch_observed_processes",
        "Processes that look like trainings without the agent, by whether they are likely to "
        "compile, as far as it can be told from outside.",
        "gauge",
    )
    if any(health.source == "observed" and health.up for health in snapshot.sources):
        for likely, number in observed.counts(snapshot.observed):
            family.add(family.name, {"likely_compiling": likely}, number)
    return family


def _sources(snapshot: Snapshot) -> Iterator[Family]:
    up = Family("warmwatch_source_up", "Whether the source could be read.", "gauge")
    last = Family(
        "warmwatch_source_last_success_timestamp_seconds",
        "When the source was last read without an error.",
        "gauge",
    )
    took = Family("warmwatch_source_read_seconds", "How long the last read took.", "gauge")
    for health in snapshot.sources:
        for family, value in (
            (up, health.up),
            (last, health.last_success),
            (took, health.read_seconds),
        ):
            if value is not None:
                family.add(family.name, {"source": health.source}, value)
    refused = Family("warmwatch_records_refused", "Records that cannot be read.", "gauge")
    refused.add(refused.name, {}, len(snapshot.refusals) + snapshot.more_refusals)
    yield from (up, last, took, refused)


def _text(value: str) -> str:
    """``value`` fit for UTF-8: a script's name may hold bytes that are not."""
    return value.encode("utf-8", "replace").decode()
