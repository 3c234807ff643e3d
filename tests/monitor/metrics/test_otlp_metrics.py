"""A Snapshot as OTLP: the series of /metrics, the units, and when each began to count."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client.parser import text_string_to_metric_families

from support import builders as b
from support import otlp
from support.values import replace
from warmwatch_monitor.figures.machine import ExportHealth, Host
from warmwatch_monitor.metrics import RANK_SERIES, render
from warmwatch_monitor.metrics.otlp import ATTACHED, NOT_SINCE_ATTACHING, Converter
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.snapshot import Snapshot, Spending

PROCESS = ProcessReading(
    pid=4711, cpu_seconds=180.25, resident_bytes=3 * 10**9, workers_busy=1, workers_idle=3
)
GPU = b.gpu(
    energy_joules=1.5e6,
    temperature_celsius=61.0,
    memory_used_bytes=7 * 10**10,
    memory_total_bytes=8 * 10**10,
    clocks_hertz=(("sm", 1.98e9),),
)


def everything() -> Snapshot:
    odd = replace(b.RECOMPILING, identity=replace(b.RECOMPILING.identity, run='a"b\\c\nd, {e="f"}'))
    spent = Spending(compile_joules=900.0, compile_seconds=3.0, clean_joules=8.0, clean_steps=2.0)
    return b.snapshot(
        b.view(b.as_rank(b.WARM, 0, 2), process=PROCESS, gpus=(GPU,), spending=spent),
        b.view(b.as_rank(b.COMPILING, 1, 2)),
        b.view(odd),
        gpus=(GPU,),
        host=Host(memory_total_bytes=10**11, memory_available_bytes=10**10, cpus=16, load_1m=0.5),
        exports=(ExportHealth(export="otlp", up=True, last_success=b.EPOCH - 60),),
    )


def converted(snapshot: Snapshot, by: Converter | None = None) -> ExportMetricsServiceRequest:
    """As it goes over the wire."""
    data = (by or Converter("0.1.0", "node7:10464")).convert(snapshot)
    return ExportMetricsServiceRequest.FromString(encode_metrics(data).SerializeToString())


def test_the_series_equal_those_of_metrics_with_type_value_and_help() -> None:
    body, _ = render(everything(), None, version="0.1.0")
    families = list(text_string_to_metric_families(body.decode()))
    request = converted(everything())
    assert otlp.series(request) == {
        (family.type, sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    helps = {metric.name.removesuffix("_total"): metric.description for metric in _all(request)}
    assert helps == {family.name: family.documentation for family in families}


class _Points:
    """A metric and its points."""

    def __init__(self, metric: Any) -> None:
        self.name, self.unit, self.description = metric.name, metric.unit, metric.description
        self.kind = metric.WhichOneof("data")
        self.points = list(getattr(metric, self.kind).data_points)

    def __iter__(self) -> Any:
        return iter(self.points)


def _all(request: ExportMetricsServiceRequest) -> list[_Points]:
    return [_Points(metric) for metric in otlp.metrics(request).values()]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("warmwatch_compile_seconds_total", "s"),
        ("warmwatch_step_seconds", "s"),
        ("warmwatch_warmup_end_timestamp_seconds", "s"),
        ("warmwatch_process_resident_memory_bytes", "By"),
        ("warmwatch_gpu_energy_joules_total", "J"),
        ("warmwatch_gpu_power_watts", "W"),
        ("warmwatch_gpu_clock_hertz", "Hz"),
        ("warmwatch_gpu_temperature_celsius", "Cel"),
        ("warmwatch_gpu_utilization_ratio", "1"),
        ("warmwatch_steps_total", ""),
        ("warmwatch_warm", ""),
        ("warmwatch_run_info", ""),
        ("warmwatch_host_load1", ""),
    ],
)
def test_the_unit_matches_the_name(name: str, unit: str) -> None:
    assert otlp.metrics(converted(everything()))[name].unit == unit


def test_the_series_that_give_start_times_exist() -> None:
    assert {ATTACHED, *NOT_SINCE_ATTACHING} <= {series.name for series in RANK_SERIES}


def test_without_the_option_the_monitor_imports_no_otlp_module() -> None:
    code = (
        "import sys, warmwatch_monitor.server.command, warmwatch_monitor.server.api.app, uvicorn\n"
        "print([n for n in sys.modules if n.startswith(('opentelemetry.sdk',"
        " 'opentelemetry.exporter', 'opentelemetry.proto', 'warmwatch_monitor.metrics.otlp'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
