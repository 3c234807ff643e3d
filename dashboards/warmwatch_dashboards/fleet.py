"""All runs: who compiles, who waits for whom, what it costs, and what is wrong."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import units

from warmwatch_dashboards import ends, states
from warmwatch_dashboards.columns import CLUSTER_COLUMN, TO_GPU, TO_RUN, Column, arrange
from warmwatch_dashboards.layout import dashboard, lay_out, limit, nodes
from warmwatch_dashboards.panels import About, Query, areas, counts, level, lines, number, rows
from warmwatch_dashboards.queries import CLUSTER, NODE, highest

# The rows of the table of runs: those that are least advanced, which includes all that stall.
_ROWS = f"and on (cluster, run) bottomk($rows, run:warmwatch_advancement:min{{{CLUSTER}}})"


def fleet() -> build.Dashboard:
    """The dashboard."""
    board = dashboard(
        "warmwatch-fleet",
        "Warmwatch: fleet",
        "All training runs that report to this Prometheus, over all hosts.",
    )
    board.with_variable(nodes())
    board.with_variable(limit("lines", "Runs in a graph", 10, 5, 20, 50))
    board.with_variable(limit("rows", "Rows of a table", 50, 25, 100, 500))
    return lay_out(
        board,
        {
            "Now": [*_now(), _states(), _runs(), _alerts(), _compiling(), ends.of_runs()],
            "Skew between ranks": [_skew(), _slowest(), _slow_ranks()],
            "What compilation cost": _cost(),
        },
    )


def _now() -> list[stat.Panel]:
    return [
        number(
            About(
                title="Runs",
                description="Runs with a living rank.",
                width=6,
                height=4,
            ),
            Query(f"count(run:warmwatch_ranks:count{{{CLUSTER}}} > 0) or vector(0)"),
        ),
        number(
            About(
                title="Runs that compile",
                description="Runs in which some rank has compile activity now.",
                width=6,
                height=4,
            ),
            Query(f"sum(run:warmwatch_compiling:max{{{CLUSTER}}}) or vector(0)"),
            steps=(level("text"), level(states.COLOURS["compiling"], 1)),
        ),
        number(
            About(
                title="Runs at their real speed",
                description="Runs whose living ranks are all warm or eager.",
                width=6,
                height=4,
            ),
            Query(f"sum(run:warmwatch_warm:min{{{CLUSTER}}}) or vector(0)"),
            steps=(level("text"), level(states.COLOURS["warm"], 1)),
        ),
        number(
            About(
                title="Sources down",
                description="Sources that a monitor cannot read: records, host, NVML. A host "
                "without a GPU has no NVML.",
                width=6,
                height=4,
            ),
            Query(f"count(warmwatch_source_up{{{NODE}}} == 0) or vector(0)"),
            steps=(level("text"), level("orange", 1)),
        ),
    ]


def _states() -> timeseries.Panel:
    return areas(
        About(
            title="Runs by state",
            description="How many runs are in each state. Many that compile at the same time, "
            "after a restart or an upgrade, are a band of their own.",
            width=24,
        ),
        Query(f"sum by (state) (cluster_state:warmwatch_runs:count{{{CLUSTER}}})", "{{state}}"),
        colours=states.COLOURS,
    )


def _runs() -> table.Panel:
    panel = rows(
        About(
            title="Runs and their state",
            description="A row for each run, of many the least advanced; the run's name leads to "
            "its own dashboard. Missing: ranks that the launcher announced and that are not alive. "
            "Skew: how much longer than the fastest rank the slowest one has compiled.",
            width=24,
            none="no runs",
        ),
        *(
            Query(f"{series}{{{CLUSTER}}} {_ROWS}")
            for series in (
                "run:warmwatch_advancement:min",
                "run:warmwatch_ranks:count",
                "run:warmwatch_ranks_missing:count",
                "run:warmwatch_recent_step_seconds:median",
                "run:warmwatch_compile_seconds:max",
                "run:warmwatch_compile_seconds:skew",
                "run:warmwatch_compile_gpu_seconds:sum",
                "run:warmwatch_compile_energy_joules:sum",
            )
        ),
    )
    return arrange(
        panel,
        CLUSTER_COLUMN,
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="Value #A", heading="State", mapping=states.mapping()),
        Column(field="Value #B", heading="Ranks"),
        Column(field="Value #C", heading="Missing"),
        Column(field="Value #D", heading="Clean step, recent", unit=units.Seconds),
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
            width=12,
            none="nothing fires",
        ),
        Query(
            f'topk($rows, ALERTS{{{CLUSTER},alertname=~"Warmwatch.*",alertstate="firing"}})',
        ),
    )
    return arrange(
        panel,
        Column(field="alertname", heading="Alert"),
        Column(field="severity", heading="Severity"),
        CLUSTER_COLUMN,
        Column(field="run", heading="Run", link=TO_RUN),
        Column(field="rank", heading="Rank"),
        Column(field="uuid", heading="GPU", link=TO_GPU),
        Column(field="instance", heading="Monitor"),
    )


def _compiling() -> table.Panel:
    phase = f"warmwatch_compile_phase{{{NODE}}} == 1"
    # of the phases there is a series each, so they are read only once
    compiling = f"warmwatch_compiling{{{NODE}}} == 1"
    spent = f"rank:warmwatch_compile_seconds:sum{{{CLUSTER}}}"
    longest = f"topk($rows, {spent} and on (cluster, run, rank) {compiling})"
    panel = rows(
        About(
            title="Who compiles now",
            description="Ranks with compile activity in progress, its phase, and the compile time "
            "of the rank so far; of many those that have compiled longest.",
            width=12,
            none="no rank compiles",
        ),
        Query(
            f"max by (cluster, run, rank, phase) ({phase}) and on (cluster, run, rank) {longest}"
        ),
        Query(longest),
    )
    return arrange(
        panel,
        CLUSTER_COLUMN,
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
            "so long the others waited in a collective. Of many runs the highest.",
            unit=units.Seconds,
            width=8,
        ),
        _of_runs("run:warmwatch_compile_seconds:skew"),
    )


def _slowest() -> table.Panel:
    panel = rows(
        About(
            title="Slowest rank to compile",
            description="The rank of each run that has compiled longest.",
            width=8,
        ),
        Query(f"topk($rows, run:warmwatch_compile_seconds:slowest{{{CLUSTER}}})"),
    )
    return _of_ranks(panel, Column(field="Value", heading="Compile time", unit=units.Seconds))


def _slow_ranks() -> table.Panel:
    """Ranks that wait for each other have steps of one length, and other shares of waiting."""
    of_ranks = "max by (cluster, run, rank)"
    step = f"{of_ranks} (warmwatch_recent_step_seconds{{{NODE}}})"
    usual = f"run:warmwatch_recent_step_seconds:median{{{CLUSTER}}}"
    waits = f'warmwatch_limited_by{{{NODE},limit="communication"}} == 1'
    share = f"warmwatch_limited_share_ratio{{{NODE}}} and on (cluster, run, rank, instance) {waits}"
    waiting = f"({of_ranks} ({share}) or on (cluster, run, rank) 0 * {step})"
    of_run = "on (cluster, run) group_left ()"
    longer = f"{step} / {of_run} {usual} - 1"
    less = f"{waiting} - {of_run} quantile by (cluster, run) (0.5, {waiting})"
    panel = rows(
        About(
            title="Slowest rank to train",
            description="The rank of each run that is slower than the median rank, and by how much "
            "of a step: its step is longer, or the others wait longer in collectives than it does.",
            width=8,
        ),
        Query(f"topk($rows, topk by (cluster, run) (1, ({longer}) - ({less})))"),
    )
    return _of_ranks(panel, Column(field="Value", heading="Slower by", unit=units.PercentUnit))


def _of_ranks(panel: table.Panel, value: Column) -> table.Panel:
    """One rank a row, with ``value``."""
    run = Column(field="run", heading="Run", link=TO_RUN)
    return arrange(panel, CLUSTER_COLUMN, run, Column(field="rank", heading="Rank"), value)


def _cost() -> list[timeseries.Panel]:
    gpu_seconds = About(
        title="GPU-seconds",
        description="Compile time times the GPUs that were held meanwhile, of each run so "
        "far; of many the highest.",
        unit=units.Seconds,
        width=12,
    )
    energy = About(
        title="Energy",
        description="Energy of the GPUs while their ranks compiled, of each run so far; of "
        "many the highest.",
        unit=units.Joule,
        width=12,
    )
    return [
        counts(gpu_seconds, _of_runs("run:warmwatch_compile_gpu_seconds:sum")),
        counts(energy, _of_runs("run:warmwatch_compile_energy_joules:sum")),
    ]


def _of_runs(metric: str) -> Query:
    """A line for each run, of many the highest."""
    return Query(highest(f"{metric}{{{CLUSTER}}}", "cluster, run"), "{{run}}")
