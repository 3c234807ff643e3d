"""Metrics of the host and of the monitor itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from warmwatch_monitor.metrics.families import Family, Labels, Series, series_of
from warmwatch_monitor.model import ExportHealth, Host, RecordRoom, Snapshot, SourceHealth
from warmwatch_monitor.model.budgets import LEFT_OUT


def _itself(value: Any) -> Any:
    return value


HOST_SERIES: tuple[Series[Host], ...] = tuple(series_of(Host, _itself))
SOURCE_SERIES: tuple[Series[SourceHealth], ...] = tuple(series_of(SourceHealth, _itself))
ROOM_SERIES: tuple[Series[RecordRoom], ...] = tuple(series_of(RecordRoom, _itself))
EXPORT_SERIES: tuple[Series[ExportHealth], ...] = tuple(series_of(ExportHealth, _itself))


def host_families(host: Host | None) -> Iterator[Family]:
    """Every family of ``host``, those without a sample too."""
    hosts = [] if host is None else [(Labels({}), host)]
    for series in HOST_SERIES:
        yield series.family(hosts)


_LIKELY = {"true": True, "false": False, "unknown": None}


def health_families(snapshot: Snapshot, version: str | None) -> Iterator[Family]:
    """Every family, those without a sample too; no build without a ``version``."""
    yield _observed(snapshot)
    sources = [(Labels({"source": health.source}), health) for health in snapshot.sources]
    for of_source in SOURCE_SERIES:
        yield of_source.family(sources)
    rooms = [(Labels({"directory": room.directory}), room) for room in snapshot.rooms]
    for of_room in ROOM_SERIES:
        yield of_room.family(rooms)
    identities = Family(
        name="warmwatch_record_directory",
        help="A record directory that was read; directory_id is the same for all daemons that read "
        "this one.",
        type="info",
    )
    for labels, room in rooms:
        # hashed: the boot's id, a part of it, is not for everybody who reads /metrics
        hashed = hashlib.blake2b(room.identity.encode(), digest_size=6).hexdigest()
        identities.add(Labels({**labels.values, "directory_id": hashed}), 1)
    yield identities
    refused = Family(
        name="warmwatch_records_refused", help="Records that cannot be read.", type="gauge"
    )
    refused.add(Labels({}), len(snapshot.refusals) + snapshot.more_refusals)
    yield refused
    left_out = Family(
        name="warmwatch_left_out",
        help="What was left out because it is beyond a budget, or a GPU that NVML does not know.",
        type="counter",
        label="what",
        columns=LEFT_OUT,
    )
    if snapshot.left_out_total:
        left_out.rows.append((Labels({}), [snapshot.left_out_total.get(k) for k in LEFT_OUT]))
    yield left_out
    exports = [(Labels({"export": health.export}), health) for health in snapshot.exports]
    for of_export in EXPORT_SERIES:
        yield of_export.family(exports)
    build = Family(name="warmwatch_build", help="The version of the monitor.", type="info")
    if version:
        build.add(Labels({"version": version}), 1)
    yield build


def _observed(snapshot: Snapshot) -> Family:
    """Unattached trainings; no samples if detection is off."""
    family = Family(
        name="warmwatch_observed_processes",
        help="Processes that look like trainings without the agent, by whether they are likely to "
        "compile, as far as that shows from outside.",
        type="gauge",
        label="likely_compiling",
        columns=tuple(_LIKELY),
    )
    if any(health.source == "observed" and health.up for health in snapshot.sources):
        likely = [training.likely_compiling for training in snapshot.observed]
        family.rows.append((Labels({}), [likely.count(value) for value in _LIKELY.values()]))
    return family
