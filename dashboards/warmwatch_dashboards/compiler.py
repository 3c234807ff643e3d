"""Panels of one run: what the compiler does, and what it costs."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import units

from warmwatch_dashboards import states
from warmwatch_dashboards.panels import About, Query, areas, counts, lines
from warmwatch_dashboards.queries import CHOSEN, highest, least_advanced, per_second


def activity() -> list[timeseries.Panel]:
    """Where the compile time goes, and why there is any."""
    return [_in_progress(), _how_far(), _phases(), _recompiles(), _graphs(), _workers()]


def cost() -> list[timeseries.Panel]:
    """What the GPUs spent meanwhile."""
    gpu_seconds = About(
        title="GPU-seconds",
        description="Compile time times the GPUs that were held meanwhile, for each rank, "
        "the highest of many.",
        unit=units.Seconds,
        width=8,
    )
    energy = About(
        title="Energy",
        description="Energy of the ranks' GPUs while they compiled, since the monitor first "
        "saw the rank.",
        unit=units.Joule,
        width=8,
    )
    by_step = About(
        title="Energy of a clean step",
        description="The mean since the monitor first saw the rank: compare it with what the "
        "warm-up took.",
        unit=units.Joule,
        width=8,
    )
    return [
        _of_ranks(counts, gpu_seconds, "warmwatch_compile_gpu_seconds_total"),
        _of_ranks(counts, energy, "warmwatch_compile_energy_joules_total"),
        _of_ranks(lines, by_step, "warmwatch_clean_step_energy_joules"),
    ]


def _in_progress() -> timeseries.Panel:
    began = f"rank:warmwatch_compile_seconds:age{{{CHOSEN}}}"
    limit = f"warmwatch_compile_limit_seconds{{{CHOSEN}}} and on (cluster, run, rank) {began}"
    return lines(
        About(
            title="The compilation in progress",
            description="How long it has been going on, beside the limit from which on it counts "
            "as too long (docs/how-to/debug-a-hang.md), and the timeout after which the "
            "collectives give up in which other ranks wait for it.",
            unit=units.Seconds,
            width=12,
            none="no compile activity",
        ),
        Query(least_advanced(f"max by (rank) ({began})"), "so far, rank {{rank}}"),
        Query(least_advanced(f"max by (rank) ({limit})"), "too long, rank {{rank}}"),
        Query(
            f"min(warmwatch_collective_timeout_seconds{{{CHOSEN}}}) and on () {began}",
            "collectives give up",
        ),
    )


def _how_far() -> timeseries.Panel:
    done, planned = (
        f"max by (rank, of) (warmwatch_compile_progress_{word}{{{CHOSEN}}})"
        for word in ("done", "planned")
    )
    return lines(
        About(
            title="How far it is",
            description="Of the kernels that Inductor waits for, or of the choices that it "
            "measures for one, those that are done. The count starts again with each graph and "
            "kernel; there is none while it traces and lowers.",
            unit=units.PercentUnit,
            width=12,
            none="nothing is counted",
        ),
        Query(least_advanced(f"{done} / {planned}"), "{{of}}, rank {{rank}}"),
    ).max(1)


def _phases() -> timeseries.Panel:
    spent = per_second(f"warmwatch_compile_seconds_total{{{CHOSEN}}}")
    return areas(
        About(
            title="Compile phases",
            description="The share of their time that the chosen ranks spend in each compile "
            "phase, on average. Phases are exclusive: 100 % is nothing but compiling.",
            unit=units.PercentUnit,
            width=12,
        ),
        Query(f"avg by (phase) (sum by (rank, phase) ({spent})) > 0", "{{phase}}"),
        colours=states.PHASES,
    )


def _recompiles() -> timeseries.Panel:
    return counts(
        About(
            title="Recompiles by reason",
            description="Recompiles of the chosen ranks so far, by the category of their reason. "
            "docs/how-to/recompiles.md has the remedy for each.",
            width=12,
            none="no recompiles",
        ),
        Query(f"sum by (category) (warmwatch_recompiles_total{{{CHOSEN}}}) > 0", "{{category}}"),
    )


def _graphs() -> timeseries.Panel:
    return counts(
        About(
            title="Graphs and graph breaks",
            description="What Dynamo captured, where it had to break a graph, which compilations "
            "failed, and of which functions calls run eagerly, by cause.",
            width=12,
        ),
        Query(f"sum(warmwatch_graphs_total{{{CHOSEN}}})", "graphs"),
        Query(f"sum(warmwatch_graph_breaks_total{{{CHOSEN}}})", "graph breaks"),
        Query(f"sum(warmwatch_compile_failures_total{{{CHOSEN}}})", "failures"),
        Query(
            f"sum by (cause) (warmwatch_compile_fallbacks_total{{{CHOSEN}}}) > 0",
            "left to run eagerly: {{cause}}",
        ),
    )


def _workers() -> timeseries.Panel:
    return areas(
        About(
            title="Compile workers",
            description="Processes of the compile worker pools. Idle ones while the state is "
            "compiling: the work is in the training processes themselves. A pool lives on after "
            "its last job, so its presence alone is no sign of work.",
            width=12,
        ),
        Query(f"sum by (state) (warmwatch_compile_workers{{{CHOSEN}}})", "{{state}}"),
    )


def _of_ranks(kind: Callable[..., timeseries.Panel], about: About, metric: str) -> timeseries.Panel:
    """A line for each rank, of many the highest."""
    query = highest(f"max by (rank) ({metric}{{{CHOSEN}}})", "rank")
    return kind(about, Query(query, "rank {{rank}}"))
