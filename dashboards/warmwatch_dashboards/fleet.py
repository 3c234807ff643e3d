"""All runs: who compiles, who waits for whom, what it costs, and what is wrong."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import units

from warmwatch_dashboards import ends, states
from warmwatch_dashboards.columns import TO_GPU, TO_RUN, Column, arrange
from warmwatch_dashboards.layout import dashboard, lay_out
from warmwatch_dashboards.panels import About, Query, counts, level, lines, number, rows


def fleet() -> build.Dashboard:
    """The dashboard."""
    board = dashboard(
        "warmwatch-fleet",
        "Warmwatch: fleet",
        "All training runs that report to this Prometheus, over all hosts.",
    )
    return lay_out(
        board,
        {
            "Now": [*_now(), _runs(), _alerts(), _compiling(), ends.of_runs()],
            "Skew between ranks": [_skew(), _slowest()],
            "What compilation cost": [_gpu_seconds(), _energy()],
        },
    )


def _now() -> list[stat.Panel]:
    return [
        number(
            About(
                title="Runs",
                description="Runs with a living rank.",
                unit=units.NoUnit,
                width=6,
                height=4,
            ),
            Query("count(run:warmwatch_ranks:count > 0) or vector(0)"),
        ),
        number(
            About(
                title="Runs that compile",
                description="Runs in which some rank has compile activity now.",
                unit=units.NoUnit,
                width=6,
                height=4,
            ),
            Query("sum(run:warmwatch_compiling:max) or vector(0)"),
            steps=(level("text"), level("yellow", 1)),
        ),
        number(
            About(
                title="Runs at their real speed",
                description="Runs whose living ranks are all warm or eager.",
                unit=units.NoUnit,
                width=6,
                height=4,
            ),
            Query("sum(run:warmwatch_warm:min) or vector(0)"),
            steps=(level("text"), level("green", 1)),
        ),
        number(
            About(
                title="Sources down",
                description="Sources that a monitor cannot read: records, host, NVML. A host "
                "without a GPU has no NVML.",
                unit=units.NoUnit,
                width=6,
                height=4,
            ),
            Query("count(warmwatch_source_up == 0) or vector(0)"),
            steps=(level("text"), level("orange", 1)),
        ),
    ]


def _runs() -> table.Panel:
    panel = rows(
        About(
            title="Runs and their state",
            description="A row for each run; the run's name leads to its own dashboard. Missing: "
            "ranks that the launcher announced and that are not alive. Skew: how much longer "
            "than the fastest rank the slowest one has compiled.",
            unit=units.NoUnit,
            width=24,
            none="no runs",
        ),
        Query("run:warmwatch_advancement:min"),
        Query("run:warmwatch_ranks:count"),
        Query("run:warmwatch_ranks_missing:count"),
        Query("run:warmwatch_step_seconds:p50_5m"),
        Query("run:warmwatch_compile_seconds:max"),
        Query("run:warmwatch_compile_seconds:skew"),
        Query("run:warmwatch_compile_gpu_seconds:sum"),
        Query("run:warmwatch_compile_energy_joules:sum"),
    )
    return arrange(
        panel,
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="Value #A", heading="State", mapping=states.mapping()),
        Column(field="Value #B", heading="Ranks"),
        Column(field="Value #C", heading="Missing"),
        Column(field="Value #D", heading="Clean step, median of 5 min", unit=units.Seconds),
        Column(field="Value #E", heading="Compile time, slowest rank", unit=units.Seconds),
        Column(field="Value #F", heading="Skew", unit=units.Seconds),
        Column(field="Value #G", heading="GPU-seconds", unit=units.Seconds),
        Column(field="Value #H", heading="Energy", unit=units.Joule),
    )


def _alerts() -> table.Panel:
    panel = rows(
        About(
            title="Firing alerts",
            description="Warmwatch's own alerts that fire now.",
            unit=units.NoUnit,
            width=12,
            none="nothing fires",
        ),
        Query('ALERTS{alertname=~"Warmwatch.*",alertstate="firing"}'),
    )
    return arrange(
        panel,
        Column(field="alertname", heading="Alert"),
        Column(field="severity", heading="Severity"),
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="rank", heading="Rank"),
        Column(field="uuid", heading="GPU", link=TO_GPU),
        Column(field="instance", heading="Monitor"),
    )


def _compiling() -> table.Panel:
    panel = rows(
        About(
            title="Who compiles now",
            description="Ranks with compile activity in progress, its phase, and the compile time "
            "of the rank so far.",
            unit=units.NoUnit,
            width=12,
            none="nobody compiles",
        ),
        Query("max by (run, rank, phase) (warmwatch_compile_phase == 1)"),
        Query(
            "rank:warmwatch_compile_seconds:sum "
            "and on (run, rank) max by (run, rank) (warmwatch_compile_phase == 1)"
        ),
    )
    return arrange(
        panel,
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="rank", heading="Rank"),
        Column(field="phase", heading="Phase"),
        Column(field="Value #B", heading="Compile time", unit=units.Seconds),
    )


def _skew() -> timeseries.Panel:
    return lines(
        About(
            title="Compile skew",
            description="How much longer than the fastest rank the slowest one has compiled: for "
            "so long the others waited in a collective.",
            unit=units.Seconds,
            width=16,
        ),
        Query("run:warmwatch_compile_seconds:skew", "{{run}}"),
    )


def _slowest() -> table.Panel:
    panel = rows(
        About(
            title="Slowest rank",
            description="The rank of each run that has compiled longest.",
            unit=units.NoUnit,
            width=8,
        ),
        Query("run:warmwatch_compile_seconds:slowest"),
    )
    return arrange(
        panel,
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="rank", heading="Rank"),
        Column(field="Value", heading="Compile time", unit=units.Seconds),
    )


def _gpu_seconds() -> timeseries.Panel:
    return counts(
        About(
            title="GPU-seconds",
            description="Compile time times the GPUs that were held meanwhile, of each run so far.",
            unit=units.Seconds,
            width=12,
        ),
        Query("run:warmwatch_compile_gpu_seconds:sum", "{{run}}"),
    )


def _energy() -> timeseries.Panel:
    return counts(
        About(
            title="Energy",
            description="Energy of the GPUs while their ranks compiled, of each run so far.",
            unit=units.Joule,
            width=12,
        ),
        Query("run:warmwatch_compile_energy_joules:sum", "{{run}}"),
    )
