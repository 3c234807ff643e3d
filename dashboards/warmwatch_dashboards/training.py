"""Panels of one run: its steps, and its GPUs on the same time axis."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import common, units

from warmwatch_dashboards.panels import About, Query, counts, lines
from warmwatch_dashboards.queries import (
    CHOSEN,
    highest,
    least_advanced,
    lowest,
    of_gpus_of_ranks,
    per_second,
    seen,
    step_mean,
    step_quantile,
)


def at_work() -> list[timeseries.Panel]:
    """How long steps take, and how hard the GPUs work for them."""
    return [_steps(), _power(), _activity(), _memory(), _waiting(), _batches(), _limits()]


def _steps() -> timeseries.Panel:
    # A first step takes thousands of times as long as the ones that follow.
    logarithmic = build_common.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
    panel = lines(
        About(
            title="Step time",
            description="Clean steps, in which nothing compiled, are the real speed; the others "
            "are separate. Quantiles are read from buckets of 1, 2.5 and 5 in each decade; the "
            "means are exact.",
            unit=units.Seconds,
            width=12,
        ),
        Query(step_quantile(0.5), "clean, p50"),
        Query(step_quantile(0.99), "clean, p99"),
        Query(step_mean("clean"), "clean, mean"),
        Query(step_mean("compile"), "with compile activity, mean"),
        from_zero=False,
    )
    return panel.scale_distribution(logarithmic)


def _power() -> timeseries.Panel:
    return lines(
        About(
            title="Power of the ranks' GPUs",
            description="A GPU that waits for the compiler draws little.",
            unit=units.Watt,
            width=12,
        ),
        Query(of_gpus_of_ranks("warmwatch_gpu_power_watts"), "rank {{rank}}, GPU {{gpu}}"),
    )


def _activity() -> timeseries.Panel:
    return lines(
        About(
            title="Activity of the ranks' GPUs",
            description="How busy multiprocessors and tensor cores are (Hopper and later), and "
            "the share of time in which any kernel ran, however small.",
            unit=units.PercentUnit,
            width=12,
        ),
        Query(
            of_gpus_of_ranks("warmwatch_gpu_tensor_active_ratio"),
            "tensor cores, rank {{rank}}, GPU {{gpu}}",
        ),
        Query(
            of_gpus_of_ranks("warmwatch_gpu_sm_active_ratio"),
            "SM, rank {{rank}}, GPU {{gpu}}",
        ),
        Query(
            of_gpus_of_ranks("warmwatch_gpu_utilization_ratio"),
            "any kernel, rank {{rank}}, GPU {{gpu}}",
        ),
    ).max(1)


def _memory() -> timeseries.Panel:
    allocator = f'warmwatch_torch_memory_bytes{{{CHOSEN},kind=~"allocated|reserved"}}'
    return lines(
        About(
            title="Memory of the ranks' GPUs",
            description="Device memory in use by all processes on these GPUs, and what PyTorch's "
            "allocator held of it when the agent last looked, which it does at rare moments.",
            unit=units.BytesIEC,
            width=12,
        ),
        Query(
            of_gpus_of_ranks("warmwatch_gpu_memory_used_bytes"),
            "rank {{rank}}, GPU {{gpu}}",
        ),
        Query(
            least_advanced(f"max by (rank, kind) ({allocator})"),
            "PyTorch, {{kind}}, rank {{rank}}",
        ),
    )


def _waiting() -> timeseries.Panel:
    waited = per_second(f"warmwatch_data_wait_seconds_total{{{CHOSEN}}}")
    saved = per_second(f"warmwatch_checkpoint_seconds_total{{{CHOSEN}}}")
    return lines(
        About(
            title="Waiting for data, and saving",
            description="The share of its time in which a rank waited for the next batch of a "
            "DataLoader, or for a checkpoint to be written. Much waiting after the warm-up: more "
            "workers, or less work for each batch.",
            unit=units.PercentUnit,
            width=12,
        ),
        Query(highest(f"max by (rank) ({waited})", "rank"), "data, rank {{rank}}"),
        Query(highest(f"max by (rank) ({saved})", "rank"), "saving, rank {{rank}}"),
    )


def _batches() -> timeseries.Panel:
    return lines(
        About(
            title="Batches",
            description="Batches a second that DataLoaders hand out. They go on in an evaluation, "
            "in which there are no steps.",
            unit="ops",
            width=12,
        ),
        Query(
            lowest(f"max by (rank) ({per_second(f'warmwatch_batches_total{{{CHOSEN}}}')})", "rank"),
            "batches, rank {{rank}}",
        ),
        Query(
            lowest(f"max by (rank) ({per_second(f'warmwatch_steps_total{{{CHOSEN}}}')})", "rank"),
            "steps, rank {{rank}}",
        ),
    )


def _limits() -> timeseries.Panel:
    holds = seen(f"warmwatch_limited_by{{{CHOSEN}}}")
    return counts(
        About(
            title="What limits the speed",
            description="The number of warm ranks by what limits their speed: waiting for batches, "
            "gaps between kernels (host), the GPU's arithmetic or memory, collectives, and others. "
            "A rank of which that is not known is not counted.",
            width=24,
            height=6,
            none="not known",
        ),
        Query(f"sum by (limit) (max by (rank, limit) ({holds})) > 0", "{{limit}}"),
    )
