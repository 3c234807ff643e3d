"""Metrics of the host and of the monitor itself."""

from __future__ import annotations

from collections.abc import Iterator

from warmwatch_monitor.metrics.families import Family, Labels, Series, gauge
from warmwatch_monitor.model import ExportHealth, Host, RecordRoom, Snapshot, SourceHealth
from warmwatch_monitor.model.budgets import LEFT_OUT

HOST_SERIES: tuple[Series[Host], ...] = (
    gauge(
        "warmwatch_host_memory_total_bytes",
        "Memory of the host.",
        lambda host: host.memory_total_bytes,
    ),
    gauge(
        "warmwatch_host_memory_available_bytes",
        "Memory of the host that programs can still allocate.",
        lambda host: host.memory_available_bytes,
    ),
    gauge(
        "warmwatch_host_load1",
        "The host's load average over a minute.",
        lambda host: host.load_1m,
    ),
    gauge("warmwatch_host_cpus", "Logical CPUs of the host.", lambda host: host.cpus),
    gauge(
        "warmwatch_host_pci_gpus",
        "NVIDIA GPUs on the host's PCI bus, whether or not their driver works.",
        lambda host: host.pci_gpus,
    ),
)


def host_families(host: Host | None) -> Iterator[Family]:
    """Every family of ``host``, those without a sample too."""
    hosts = [] if host is None else [(Labels({}), host)]
    for series in HOST_SERIES:
        yield series.family(hosts)


SOURCE_SERIES: tuple[Series[SourceHealth], ...] = (
    gauge("warmwatch_source_up", "Whether the source could be read.", lambda health: health.up),
    gauge(
        "warmwatch_source_last_success_timestamp_seconds",
        "When the source was last read without an error.",
        lambda health: health.last_success,
    ),
    gauge(
        "warmwatch_source_read_seconds",
        "How long the last read took.",
        lambda health: health.read_seconds,
    ),
)
ROOM_SERIES: tuple[Series[RecordRoom], ...] = (
    gauge(
        "warmwatch_record_directory_free_bytes",
        "What is free for records in a record directory.",
        lambda room: room.free_bytes,
    ),
    gauge(
        "warmwatch_record_directory_free_inodes",
        "How many more files a record directory takes; a record has up to five.",
        lambda room: room.free_inodes,
    ),
)
EXPORT_SERIES: tuple[Series[ExportHealth], ...] = (
    gauge(
        "warmwatch_export_up",
        "Whether the receiver accepted the last export.",
        lambda health: health.up,
    ),
    gauge(
        "warmwatch_export_last_success_timestamp_seconds",
        "When the receiver last accepted an export.",
        lambda health: health.last_success,
    ),
)
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
