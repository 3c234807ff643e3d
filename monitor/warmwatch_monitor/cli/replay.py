"""``warmwatch replay``: the states that a journal tells, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from warmwatch.record import JOURNAL
from warmwatch_monitor.cli.output import plain, say
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.replay import Change
from warmwatch_monitor.replay import replay as states_of


@click.command()
@click.argument("journal", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a change.")
def replay(journal: Path, as_json: bool) -> None:
    """Show the states that a rank went through, from its JOURNAL (events.jsonl or its folder).

    The same verdict judges as in the live run; only `stalled` is not in a journal.
    """
    events = read(journal / JOURNAL if journal.is_dir() else journal)
    try:
        changes = states_of(events)
    except ValueError as error:
        raise UsageError(f"{journal}: {error}") from None
    for change in changes:
        since = (change.t - events[0]["t"]) / 1e9
        if as_json:
            line = {"seconds": since, "state": change.state.value, "event": change.event}
            say(json.dumps(line))
        else:
            why = plain(_why(change))
            say(f"{since:10.3f} s  {change.state.value:<12} {why}".rstrip())


def read(path: Path) -> list[dict[str, Any]]:
    """A journal's whole lines; torn ones are passed over, as the monitor does.

    Raises:
        UsageError: it cannot be read, or nothing in it is a line of a journal.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path}: {reason}; name a journal (events.jsonl) or its folder") from None
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("t"), int):
            events.append(event)
    if not events:
        raise UsageError(f"{path}: no line of it is a journal's; name an events.jsonl")
    return events


def _why(change: Change) -> str:
    event = change.event
    words = {
        "attach": lambda: f"run {event.get('run')}, rank {event.get('rank')}",
        "begin": lambda: f"activity {event['activity']} begins with {event.get('what')}",
        "end": lambda: f"activity {event.get('activity')} ends",
        "step": lambda: f"step {event['n']}",
        "warm": lambda: f"step {event['at']}; warm-up took {event['steps']} steps",
        "eager": lambda: f"step {event['at']}",
        "exit": lambda: str(event.get("exception") or ""),
    }
    return words.get(event["event"], str)()
