"""What a shell completes: names of runs, states, modes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from warmwatch.shared.states import FINISHED_SO, State
from warmwatch_monitor.base.errors import WarmwatchError
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.client.answers import answer_source
from warmwatch_monitor.status.goals import GOALS

_MOST = 50  # earlier runs


def run_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The runs that ``status`` shows, then earlier ones."""
    names: dict[str, None] = {}
    try:
        names.update((str(run["run"]), None) for run in answer_source(None)()["runs"])
        names.update((name, None) for name in _earlier_names(os.environ))
    except WarmwatchError:  # a shell shows no message while it completes
        pass
    return [name for name in names if name.startswith(incomplete)]


def states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """States, and the two ends that are shown instead of one."""
    names = (*(state.value for state in State), *FINISHED_SO)
    return [name for name in names if name.startswith(incomplete)]


def goal_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Goals of a wait; of several with commas between, the last one."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in GOALS if name.startswith(last)]


MODES = (
    *("eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    *("regional", "dynamic", "static"),
)


def modes_of_torch(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in MODES if name.startswith(incomplete)]


def _earlier_names(environ: Mapping[str, str]) -> list[str]:
    settings = load_history_settings(environ)
    if not settings.able or settings.directory is None:
        return []
    from warmwatch_monitor.history import listing, store  # SQLite: only a completion needs it

    listed = store.Store(settings).listed(listing.RunQuery(limit=_MOST))
    return [entry.run for entry in listed]
