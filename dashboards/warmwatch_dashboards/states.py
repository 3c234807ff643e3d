"""How the states of a rank are numbered and coloured, the same on every dashboard.

The numbers are those of the recording rule ``rank:warmwatch_advancement:latest``: the less
advanced, the lower. Yellow waits for the compiler, green is the real speed, red needs attention.
"""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import ValueMap, ValueMappingResult

from warmwatch_dashboards.queries import CHOSEN, seen

COLOURS = {
    "starting": "light-blue",
    "compiling": "yellow",
    "warming": "light-yellow",
    "recompiling": "orange",
    "stalled": "red",
    "warm": "green",
    "eager": "light-green",
    "failed": "dark-red",
    "lost": "purple",
    "finished": "#8e8e8e",
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
