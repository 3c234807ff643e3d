"""Order, colours and counts of the states, the same in every view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from warmwatch.shared.states import ENDED_STATES

# worst first, living before ended; the styles are rich's
STYLES: Mapping[str, str] = {
    "stalled": "bold red",
    "recompiling": "bold yellow",
    "compiling": "bold yellow",
    "warming": "cyan",
    "starting": "cyan",
    "warm": "bold green",
    "eager": "green",
    "failed": "bold red",
    "lost": "bold red",
    "finished": "dim",
}
# of phases: similar to the page's colours, distinct from those of states
PHASE_STYLES: Mapping[str, str] = {
    "dynamo": "bright_cyan",
    "aot_autograd": "cyan",
    "inductor": "bright_blue",
    "kernel_compile": "magenta",
    "autotune": "bright_magenta",
    "cudagraph": "green",
    "cache_load": "bright_black",
    "other": "white",
    "outside": "yellow",
}
_ORDER = {state: place for place, state in enumerate(STYLES)}
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def place(state: str) -> int:
    """The position of ``state`` in the order; an unknown state is last."""
    return _ORDER.get(state, len(_ORDER))


def painted(text: str, style: str) -> str:
    """``text`` in ``style`` for a terminal that supports ANSI."""
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


SOME_UNREAD = "some records cannot be read"


def some_unread(sources: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the records cannot be read now, by an answer's ``sources``."""
    return any(source["source"] == "records" and not source["up"] for source in sources)


def overview(answer: Mapping[str, Any]) -> str:
    """The headline above a row for each run: ``3 runs: 1 compiling, 2 warm but slower``.

    The answer's own headline if fewer than two live: that lists the runs.
    """
    living = [run for run in answer["runs"] if run["state"] not in ENDED_STATES]
    if len(living) < 2:
        return str(answer["summary"])
    ordered = sorted(living, key=lambda run: place(run["state"]))
    counts = Counter(run.get("state_words") or run["state"] for run in ordered)
    head = f"{len(living)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}"
    unread = some_unread(answer["sources"]) and SOME_UNREAD not in answer.get("details", ())
    return f"{head}; {SOME_UNREAD}" if unread else head
