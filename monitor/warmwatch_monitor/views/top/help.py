"""The keys of ``top``, on a screen of their own."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = (
    ("up, down, pgup, pgdn", "choose a row"),
    ("enter", "open the chosen rank; enter or esc: back"),
    ("1 to 5", "plots, recompiles, functions, GPUs, evidence"),
    ("w", "plots over 2 min, 10 min, 1 h"),
    ("s", "sort by state, run, longest in its state, slowest step,"),
    ("", "compile time, recompiles, steps"),
    ("r", "turn the order round"),
    ("/", "filter by run, state, phase or host"),
    ("", "enter keeps the filter, esc clears it"),
    ("e", "a row for each rank, or for ranks that say the same"),
    ("p, space", "pause; nothing is asked meanwhile"),
    ("q, ctrl-c", "quit"),
)


class Help(ModalScreen[None]):
    """Any key leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,h,space", "dismiss", show=False)
    ]

    def compose(self) -> ComposeResult:
        words = Text("Keys\n\n", style="bold")
        for keys, does in KEYS:
            words.append(f"{keys:<21}", style="bold cyan").append(f"{does}\n", style="not bold")
        words.append(
            "\n░: compile activity. The plots begin with the daemon, or else with this.\n"
            "What was not measured is blank.",
            style="not bold dim",
        )
        yield Static(words, id="help")
