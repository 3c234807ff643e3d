"""Order, colours and counts of the states, the same in every view."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
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
_RECORDS = "records"
_QUALIFIED = r": ((?:warm|runs eagerly),? but [^:;,]+)"  # behind the name, which may be shortened


def overview(answer: Mapping[str, Any]) -> str:
    """The headline above a row for each run: ``3 runs: 1 compiling, 2 warm``.

    The answer's own headline, which lists the runs, if fewer than two live. In any case it says if
    there may be more runs.
    """
    head = _overview(answer)
    shown = head, *answer.get("details", ())
    lost = any(one["source"] == _RECORDS and not one["up"] for one in answer.get("sources", ()))
    missing = answer["runs"] and lost and not any(SOME_UNREAD in words for words in shown)
    return f"{head}; {SOME_UNREAD}" if missing else head


def _overview(answer: Mapping[str, Any]) -> str:
    living = [run for run in answer["runs"] if run["state"] not in ENDED_STATES]
    if len(living) < 2:
        return str(answer["summary"])
    ordered = sorted(living, key=lambda run: place(run["state"]))
    counts = Counter(_qualified(run) for run in ordered)
    return f"{len(living)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}"


def _qualified(run: Mapping[str, Any]) -> str:
    """Its state; ``warm but slower`` if its sentence begins so."""
    found = re.search(_QUALIFIED, str(run["summary"]))
    return re.sub("^runs eagerly,?", "eager", found[1]) if found else str(run["state"])
