"""How states are numbered and coloured, and phases coloured, the same on every dashboard.

The numbers are those of the recording rule ``rank:warmwatch_advancement:latest``: the less
advanced, the lower. Orange waits for the compiler, green is the real speed, purple and red need
attention.
"""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import ValueMap, ValueMappingResult

from warmwatch_dashboards.queries import CHOSEN, seen

# those of the daemon's page in the dark, as Grafana is unless its user chose otherwise
COLOURS = {
    "starting": "#c9c3bd",
    "compiling": "#ffa300",
    "warming": "#dfff72",
    "recompiling": "#e54a11",
    "stalled": "#9f57ff",
    "warm": "#1f9e70",
    "eager": "#7cc4ee",
    "failed": "#b2001c",
    "lost": "#bf40bf",
    "finished": "#6d7a8c",
}
PHASES = {
    "dynamo": "#70f2ff",
    "aot_autograd": "#0f5748",
    "inductor": "#397be0",
    "kernel_compile": "#c58dd5",
    "autotune": "#5c3bdb",
    "cudagraph": "#8bc36a",
    "cache_load": "#8c2e81",
    "other": "#a8a8a8",
    "outside": "#f2d0b0",
}
NUMBERS = {state: number for number, state in enumerate(COLOURS, start=1)}


def mapping() -> ValueMap:
    """From the number to the state's name and colour."""
    results = {
        str(number): ValueMappingResult(text=state, color=COLOURS[state], index=number - 1)
        for state, number in NUMBERS.items()
    }
    return ValueMap(options=results)


def number_by_rank() -> str:
    """The number of each rank's state; of several within one step of the graph the lowest.

    A series of ``warmwatch_state`` is 1 for the state that a rank is in, and 0 for the others.
    """
    terms = []
    for state, number in NUMBERS.items():
        one_hot = f'warmwatch_state{{{CHOSEN},state="{state}"}}'
        terms.append(f"{number} * ({seen(one_hot)} > 0)")
    return "min by (rank) (\n  " + "\n  or ".join(terms) + "\n)"
