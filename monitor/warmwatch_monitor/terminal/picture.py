"""One ``/status`` document as a rich renderable. Pure."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warmwatch_monitor.model import PHASES
from warmwatch_monitor.output.states import STYLES
from warmwatch_monitor.output.wording import a_step, duration, step_length

_BAR = 40


def picture(answer: dict[str, Any]) -> RenderableType:
    """The sentence, then for each rank its state and numbers, and where its compile time went."""
    parts: list[RenderableType] = [Text(answer["summary"], style="bold")]
    parts += [Text(f"  {words}") for words in answer.get("details", ())]
    parts.append(Text())
    for run in answer["runs"]:
        for rank in run["ranks"]:
            parts += [_state(run, rank), _phases(rank["compile"]["phase_seconds"]), Text()]
    return Group(*parts)


def _state(run: dict[str, Any], rank: dict[str, Any]) -> Text:
    compile, step = rank["compile"], a_step(rank)
    line = Text(f"{run['run']} rank {rank['rank']}  ")
    line.append(rank["state"], style=STYLES.get(rank["state"], ""))
    if compile["phase"]:
        line.append(f" ({compile['phase']})")
    line.append(f"   steps {rank['steps']}, clean {rank['clean_steps']}")
    if step is not None:
        line.append(f"   {step_length(step)} a step")
    line.append(f"   compiled {duration(compile['seconds'])}, recompiles {compile['recompiles']}")
    return line


def _phases(seconds: dict[str, float]) -> Table:
    """A bar for each phase that took time, in proportion to the longest."""
    table = Table.grid(padding=(0, 1))
    longest = max(seconds.values(), default=0.0)
    for phase in PHASES:
        if taken := seconds.get(phase):
            bar = Text("█" * max(1, round(_BAR * taken / longest)), style="yellow")
            table.add_row(f"  {phase}", Text(duration(taken), justify="right"), bar)
    return table
