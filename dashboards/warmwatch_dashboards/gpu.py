"""The GPUs: how hard they work, what holds them back, what is wrong, and whose they are."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import (
    DynamicConfigValue,
    ValueMap,
    ValueMappingResult,
)

from warmwatch_dashboards.columns import TO_RUN, Column, arrange
from warmwatch_dashboards.layout import dashboard, lay_out, variable
from warmwatch_dashboards.panels import (
    About,
    Query,
    counts,
    level,
    lines,
    number,
    rows,
    timeline,
)
from warmwatch_dashboards.queries import seen

_GPU = 'uuid=~"$gpu"'
# The index alone would not tell apart GPUs of two hosts, nor a MIG device from its board.
_NAME = "GPU {{gpu}}, {{uuid}}"
_LIMIT = "limit of "


def gpu() -> build.Dashboard:
    """The dashboard."""
    board = dashboard(
        "warmwatch-gpu",
        "Warmwatch: GPUs",
        "What NVML says of each GPU, and which rank of which run uses it.",
    )
    uuids = "label_values(warmwatch_gpu_info, uuid)"
    board.with_variable(variable("gpu", "GPU", uuids, several=True))
    return lay_out(
        board,
        {
            "Whose": [_lost(), _users()],
            "How hard they work": [_utilization(), _activity(), _power(), _memory()],
            "What holds them back": [_clocks(), _temperature(), _throttled()],
            "Errors": [_ecc(), _xid()],
        },
    )


def _lost() -> stat.Panel:
    return number(
        About(
            title="Lost GPUs",
            description="GPUs that the driver has lost: nothing else is known of them.",
            unit=units.NoUnit,
            width=4,
            none="no GPUs",
        ),
        Query(f"sum(warmwatch_gpu_lost{{{_GPU}}})"),
        steps=(level("green"), level("red", 1)),
    )


def _users() -> table.Panel:
    facts = "max by (uuid, gpu, name) (warmwatch_gpu_info)"
    panel = rows(
        About(
            title="Who uses which GPU",
            description="The living ranks that hold a CUDA context on a GPU. A GPU without a row "
            "is used by none that Warmwatch knows.",
            unit=units.NoUnit,
            width=20,
            none="no rank holds a context",
        ),
        Query(f"warmwatch_rank_gpu_info{{{_GPU}}} * on (uuid) group_left (gpu, name) {facts}"),
    )
    return arrange(
        panel,
        Column(field="gpu", heading="GPU"),
        Column(field="name", heading="Model"),
        Column(field="uuid", heading="UUID"),
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="rank", heading="Rank"),
        Column(field="instance", heading="Monitor"),
    )


def _utilization() -> timeseries.Panel:
    return lines(
        About(
            title="Utilization",
            description="The share of time in which any kernel ran: how often the GPU was used, "
            "not how much of it. One that waits in a collective shows 100 %.",
            unit=units.PercentUnit,
            width=12,
        ),
        Query(f"warmwatch_gpu_utilization_ratio{{{_GPU}}}", _NAME),
    ).max(1)


def _activity() -> timeseries.Panel:
    return lines(
        About(
            title="SM, tensor and memory activity",
            description="How busy multiprocessors, tensor cores and memory bandwidth were: how "
            "much of the GPU was used. Hopper and later.",
            unit=units.PercentUnit,
            width=12,
            none="not told by this GPU",
        ),
        Query(f"warmwatch_gpu_sm_active_ratio{{{_GPU}}}", f"SM, {_NAME}"),
        Query(f"warmwatch_gpu_tensor_active_ratio{{{_GPU}}}", f"tensor cores, {_NAME}"),
        Query(f"warmwatch_gpu_dram_active_ratio{{{_GPU}}}", f"memory bandwidth, {_NAME}"),
    ).max(1)


def _power() -> timeseries.Panel:
    panel = lines(
        About(
            title="Power and its limit",
            description="Power draw of the board; the limit that is enforced is dashed. Full "
            "utilization far below the limit is what waiting looks like.",
            unit=units.Watt,
            width=12,
        ),
        Query(f"warmwatch_gpu_power_watts{{{_GPU}}}", _NAME),
        Query(f"warmwatch_gpu_power_limit_watts{{{_GPU}}}", f"{_LIMIT}{_NAME}"),
    )
    return _dashed(panel, _LIMIT)


def _memory() -> timeseries.Panel:
    panel = lines(
        About(
            title="Memory",
            description="Device memory in use by all processes; what there is, is dashed.",
            unit=units.BytesIEC,
            width=12,
        ),
        Query(f"warmwatch_gpu_memory_used_bytes{{{_GPU}}}", _NAME),
        Query(f"warmwatch_gpu_memory_total_bytes{{{_GPU}}}", f"{_LIMIT}{_NAME}"),
    )
    return _dashed(panel, _LIMIT)


def _clocks() -> timeseries.Panel:
    return lines(
        About(
            title="Clocks",
            description="Clocks of the multiprocessors and of the memory.",
            unit=units.Hertz,
            width=12,
        ),
        Query(
            f'warmwatch_gpu_clock_hertz{{{_GPU},domain=~"sm|memory"}}', f"{{{{domain}}}}, {_NAME}"
        ),
    )


def _temperature() -> timeseries.Panel:
    return lines(
        About(
            title="Temperature",
            description="Temperature of the GPU's die.",
            unit=units.Celsius,
            width=12,
        ),
        Query(f"warmwatch_gpu_temperature_celsius{{{_GPU}}}", _NAME),
    )


def _throttled() -> statetimeline.Panel:
    throttled = f"warmwatch_gpu_throttled{{{_GPU}}}"
    held = ValueMap(
        options={
            "0": ValueMappingResult(text="free", color="green", index=0),
            "1": ValueMappingResult(text="held down", color="orange", index=1),
        }
    )
    return timeline(
        About(
            title="What holds the clocks down",
            description="A band for each reason that has held a GPU's clocks down within the time "
            "shown. A power cap under full load is usual; heat and power brakes are not.",
            unit=units.NoUnit,
            width=24,
            none="nothing held the clocks down",
        ),
        Query(
            f"{seen(throttled)} and max_over_time({throttled}[$__range] @ end()) > 0",
            f"{{{{reason}}}}, {_NAME}",
        ),
        held,
    )


def _ecc() -> timeseries.Panel:
    return counts(
        About(
            title="ECC errors",
            description="Memory errors since the driver was loaded. Uncorrected ones end what runs "
            "on the GPU.",
            unit=units.NoUnit,
            width=12,
            none="this GPU has no ECC",
        ),
        Query(f"warmwatch_gpu_ecc_errors_total{{{_GPU}}}", f"{{{{kind}}}}, {_NAME}"),
    )


def _xid() -> timeseries.Panel:
    return counts(
        About(
            title="XID errors",
            description="Critical errors that the driver reported since the monitor began to "
            "listen; /status has the number of the last one.",
            unit=units.NoUnit,
            width=12,
            none="not told by this driver",
        ),
        Query(f"warmwatch_gpu_xid_errors_total{{{_GPU}}}", _NAME),
    )


def _dashed(panel: timeseries.Panel, prefix: str) -> timeseries.Panel:
    """The series whose names begin with ``prefix`` as dashed lines."""
    style = DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [10, 10]})
    return panel.override_by_regexp(f"/^{prefix}.*/", [style])
