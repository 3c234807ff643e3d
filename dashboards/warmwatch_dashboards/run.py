"""One run: is it warm, where did its warm-up go, and what did the GPUs do meanwhile?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import stat, statetimeline, timeseries
from grafana_foundation_sdk.models import units

from warmwatch_dashboards import compiler, ends, states, training
from warmwatch_dashboards.annotations import Mark
from warmwatch_dashboards.layout import dashboard, lay_out, limit, nodes, variable
from warmwatch_dashboards.panels import About, Query, counts, level, number, state, timeline
from warmwatch_dashboards.queries import (
    CHOSEN,
    CLUSTER,
    NODE,
    RUN,
    highest,
    least_advanced,
    seen,
)

_GONE = "not seen"


def run() -> build.Dashboard:
    """The dashboard."""
    board = dashboard(
        "warmwatch-run",
        "Warmwatch: run",
        "One training run: its state, its compile phases, its steps and its GPUs on one time axis.",
    )
    runs = f"label_values(run:warmwatch_advancement:min{{{CLUSTER}}}, run)"
    board.with_variable(variable("run", "Run", runs, several=False))
    board.with_variable(nodes())
    ranks = f'label_values(warmwatch_warm{{{NODE},run="$run"}}, rank)'
    board.with_variable(variable("rank", "Rank", ranks, several=True))
    board.with_variable(limit("lines", "Ranks in a graph", 16, 8, 32, 64))
    board.with_variable(limit("rows", "Rows of a table", 50, 25, 100, 500))
    board.annotation(_warm_up_ended()).annotation(_reopened())
    return lay_out(
        board,
        {
            "Is this the real speed?": [*_now(), _states(), _conditions(), ends.of_ranks()],
            "Compiler": compiler.activity(),
            "Steps and GPUs": training.at_work(),
            "What compilation cost": compiler.cost(),
        },
    )


def _warm_up_ended() -> Mark:
    return Mark(
        name="Warm-up ended",
        expr=highest(
            f"1000 * max by (rank) (warmwatch_warmup_end_timestamp_seconds{{{CHOSEN}}})", "rank"
        ),
        text="rank {{rank}}: from here on this is the real speed",
        colour=states.COLOURS["warm"],
        value_is_time=True,
    )


def _reopened() -> Mark:
    # A minute back, so that a recompilation shorter than a step of the query is not missed.
    recompiling = f'warmwatch_state{{{CHOSEN},state="recompiling"}}'
    return Mark(
        name="Compiles again",
        expr=least_advanced(f"max by (rank) (max_over_time({recompiling}[1m]))"),
        text="rank {{rank}} was warm and compiles again",
        colour=states.COLOURS["recompiling"],
    )


def _now() -> list[stat.Panel]:
    return [
        state(
            About(
                title="State",
                description="The state of the run's least advanced living rank, over all hosts. "
                "Warm and eager: this is the real speed.",
                width=6,
                height=4,
                none=_GONE,
            ),
            Query(f"run:warmwatch_advancement:min{{{RUN}}}"),
            states.mapping(),
        ),
        number(
            About(
                title="Ranks",
                description="How many ranks are alive, and how many of those that the launcher "
                "announced have not been seen or are gone.",
                width=5,
                height=4,
                none=_GONE,
            ),
            Query(f"run:warmwatch_ranks:count{{{RUN}}}", "alive"),
            Query(f"run:warmwatch_ranks_missing:count{{{RUN}}}", "missing"),
        ),
        number(
            About(
                title="Compile time",
                description="Compile time so far of the chosen rank that has spent most, the "
                "activity in progress included.",
                unit=units.Seconds,
                width=4,
                height=4,
                none=_GONE,
            ),
            Query(f"max(sum by (rank) (warmwatch_compile_seconds_total{{{CHOSEN}}}))"),
        ),
        number(
            About(
                title="Latest warm-up",
                description="How long the latest warm-up of a chosen rank took, the longest of "
                "them. Nothing until it has ended, and while it is open again.",
                unit=units.Seconds,
                width=4,
                height=4,
                none="not ended",
            ),
            Query(f"max(warmwatch_warmup_seconds{{{CHOSEN}}})"),
        ),
        number(
            About(
                title="Recompiles after warm",
                description="How often a chosen rank compiled again after it had been warm.",
                width=5,
                height=4,
                none=_GONE,
            ),
            Query(f"sum(warmwatch_recompiles_after_warm_total{{{CHOSEN}}})"),
            steps=(level(states.COLOURS["warm"]), level(states.COLOURS["recompiling"], 1)),
        ),
    ]


def _states() -> statetimeline.Panel:
    return timeline(
        About(
            title="State of each rank",
            description="A band for each rank; of many ranks those that are least advanced now. "
            "Where several states fall into one step of the graph, the least advanced one is "
            "shown, so short recompilations stay visible.",
            width=24,
        ),
        Query(least_advanced(states.number_by_rank()), "rank {{rank}}"),
        states.mapping(),
    )


def _conditions() -> timeseries.Panel:
    holds = seen(f"warmwatch_condition{{{CHOSEN}}}")
    return counts(
        About(
            title="Conditions",
            description="The conditions that hold, as the number of ranks: a compilation that "
            "takes too long, thrashing, a model that was to be compiled and is not, and others.",
            width=24,
            height=6,
            none="none",
        ),
        Query(f"sum by (condition) (max by (rank, condition) ({holds})) > 0", "{{condition}}"),
    )
