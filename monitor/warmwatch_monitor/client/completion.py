"""What a shell completes: names of runs, states, modes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
)

from warmwatch.shared.states import State
from warmwatch_monitor.client.answers import answer_source
from warmwatch_monitor.config import apply
from warmwatch_monitor.errors import WarmwatchError
from warmwatch_monitor.settings import load_history_settings

_MOST = 50  # earlier runs


@add_completion_class
class _Bash(BashComplete):
    """Bash inserts a value as it is: a run's name, which another user chose, could be a command.

    Click's script drops each backslash.
    """

    source_template = BashComplete.source_template.replace("read type", "read -r type")

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{shlex.quote(item.value)}"


@add_completion_class
class _Fish(FishComplete):
    """Click's script cuts a value at its first comma: ``--until warm,failed``."""

    source_template = FishComplete.source_template.replace("split ", "split --max 1 ")


def run_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The runs that ``status`` shows, then earlier ones."""
    names: dict[str, None] = {}
    try:
        apply(os.environ)  # a shell that completes runs no command, which would do so
        names.update((str(run["run"]), None) for run in answer_source(None)()["runs"])
        names.update((name, None) for name in _earlier_names(os.environ))
    except WarmwatchError:  # a shell shows no message while it completes
        pass
    return [name for name in names if name.startswith(incomplete)]


def states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """States; of several with commas between, the last one."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{one.value}" for one in State if one.value.startswith(last)]


MODES = (
    *("eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
    *("regional", "dynamic", "static"),
)


def modes_of_torch(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [one for one in MODES if one.startswith(incomplete)]


def _earlier_names(environ: Mapping[str, str]) -> list[str]:
    settings = load_history_settings(environ)
    if not settings.able or settings.directory is None:
        return []
    from warmwatch_monitor.history.listing import Wanted
    from warmwatch_monitor.history.store import Store

    return [one.run for one in Store(settings).listed(Wanted(limit=_MOST))]
