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
from warmwatch_dashboards.layout import dashboard, lay_out, limit, nodes, variable
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
from warmwatch_dashboards.queries import NODE, highest, lowest, seen

_GPU = f'{NODE},uuid=~"$gpu"'
_EACH = "cluster, instance, uuid"
# The index alone does not distinguish GPUs of two hosts, or a MIG device from its board.
_NAME = "GPU {{gpu}}, {{uuid}}"
_LIMIT = "limit of "
_LIMIT_NAME = f"{_LIMIT}{_NAME}"


def gpu() -> build.Dashboard:
    """The dashboard."""
    board = dashboard(
        "warmwatch-gpu",
        "Warmwatch: GPUs",
        "What NVML reports for each GPU, and which rank of which run uses it.",
    )
    board.with_variable(nodes())
    uuids = f"label_values(warmwatch_gpu_info{{{NODE}}}, uuid)"
    board.with_variable(variable("gpu", "GPU", uuids, several=True))
    board.with_variable(limit("lines", "GPUs in a graph", 16, 8, 32, 64))
    board.with_variable(limit("rows", "Rows of a table", 50, 25, 100, 500))
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
            width=4,
            none="no GPUs",
        ),
        Query(f"sum(warmwatch_gpu_lost{{{_GPU}}})"),
        steps=(level("green"), level("red", 1)),
    )


def _users() -> table.Panel:
    facts = f"max by (cluster, uuid, gpu, name) (warmwatch_gpu_info{{{NODE}}})"
    ranks = f"warmwatch_rank_gpu_info{{{_GPU}}}"
    panel = rows(
        About(
            title="Who uses which GPU",
            description="The living ranks that hold a CUDA context on a GPU. A GPU without a row "
            "is used by no attached training.",
            width=20,
            none="no rank holds a context",
        ),
        Query(f"topk($rows, {ranks} * on (cluster, uuid) group_left (gpu, name) {facts})"),
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
            "not how much of it. One that waits in a collective shows 100 %. Of "
            "many GPUs the lowest.",
            unit=units.PercentUnit,
            width=12,
        ),
        Query(lowest(f"warmwatch_gpu_utilization_ratio{{{_GPU}}}", _EACH), _NAME),
    ).max(1)


def _activity() -> timeseries.Panel:
    return lines(
        About(
            title="SM, tensor and memory activity",
            description="How busy multiprocessors, tensor cores and memory bandwidth were: how "
            "much of the GPU was used. Hopper and later; of many GPUs the lowest.",
            unit=units.PercentUnit,
            width=12,
            none="not reported by this GPU",
        ),
        Query(lowest(f"warmwatch_gpu_sm_active_ratio{{{_GPU}}}", _EACH), f"SM, {_NAME}"),
        Query(
            lowest(f"warmwatch_gpu_tensor_active_ratio{{{_GPU}}}", _EACH), f"tensor cores, {_NAME}"
        ),
        Query(
            lowest(f"warmwatch_gpu_dram_active_ratio{{{_GPU}}}", _EACH),
            f"memory bandwidth, {_NAME}",
        ),
    ).max(1)


def _power() -> timeseries.Panel:
    power = f"warmwatch_gpu_power_watts{{{_GPU}}}"
    panel = lines(
        About(
            title="Power and its limit",
            description="Power draw of the board; the limit that is enforced is dashed. Full "
            "utilization far below the limit is what waiting looks like. Of many GPUs the lowest.",
            unit=units.Watt,
            width=12,
        ),
        Query(lowest(power, _EACH), _NAME),
        Query(_limit_of("warmwatch_gpu_power_limit_watts", lowest(power, _EACH)), _LIMIT_NAME),
    )
    return _dashed(panel, _LIMIT)


def _memory() -> timeseries.Panel:
    used = f"warmwatch_gpu_memory_used_bytes{{{_GPU}}}"
    panel = lines(
        About(
            title="Memory",
            description="Device memory in use by all processes; what there is, is dashed. "
            "Of many GPUs the highest.",
            unit=units.BytesIEC,
            width=12,
        ),
        Query(highest(used, _EACH), _NAME),
        Query(_limit_of("warmwatch_gpu_memory_total_bytes", highest(used, _EACH)), _LIMIT_NAME),
    )
    return _dashed(panel, _LIMIT)


def _clocks() -> timeseries.Panel:
    return lines(
        About(
            title="Clocks",
            description="Clocks of the multiprocessors and of the memory; of many GPUs the lowest.",
            unit=units.Hertz,
            width=12,
        ),
        *(
            Query(
                lowest(f'warmwatch_gpu_clock_hertz{{{_GPU},domain="{domain}"}}', _EACH),
                f"{domain}, {_NAME}",
            )
            for domain in ("sm", "memory")
        ),
    )


def _temperature() -> timeseries.Panel:
    return lines(
        About(
            title="Temperature",
            description="Temperature of the GPU's die; of many GPUs the highest.",
            unit=units.Celsius,
            width=12,
        ),
        Query(highest(f"warmwatch_gpu_temperature_celsius{{{_GPU}}}", _EACH), _NAME),
    )


def _throttled() -> statetimeline.Panel:
    throttled = f"warmwatch_gpu_throttled{{{_GPU}}}"
    share = f"avg_over_time({throttled}[$__range] @ end()) > 0"
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
            "shown, of many those that did so longest. A power cap under full load is "
            "usual; heat and power brakes are not.",
            width=24,
            none="nothing held the clocks down",
        ),
        Query(
            f"{seen(throttled)} and topk($lines, {share})",
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
            width=12,
            none="this GPU has no ECC",
        ),
        *(
            Query(
                highest(f'warmwatch_gpu_ecc_errors_total{{{_GPU},kind="{kind}"}}', _EACH),
                f"{kind}, {_NAME}",
            )
            for kind in ("corrected", "uncorrected")
        ),
    )


def _xid() -> timeseries.Panel:
    return counts(
        About(
            title="XID errors",
            description="Critical errors that the driver reported since the monitor began to "
            "listen; /status has the number of the last one.",
            width=12,
            none="not reported by this driver",
        ),
        Query(highest(f"warmwatch_gpu_xid_errors_total{{{_GPU}}}", _EACH), _NAME),
    )


def _limit_of(limit: str, chosen: str) -> str:
    """The limit of each GPU that is ``chosen``."""
    return f"{limit}{{{_GPU}}} and on ({_EACH}) ({chosen})"


def _dashed(panel: timeseries.Panel, prefix: str) -> timeseries.Panel:
    """The series whose names begin with ``prefix`` as dashed lines."""
    style = DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [10, 10]})
    return panel.override_by_regexp(f"/^{prefix}.*/", [style])
