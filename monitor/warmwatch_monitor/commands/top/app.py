"""The Textual application of ``top``: widgets, keys, help. ``polling.py`` has the threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from rich.traceback import Traceback
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from warmwatch.shared.phrases import duration
from warmwatch_monitor.commands.terminal.table import wrapped
from warmwatch_monitor.commands.top.chart import Window, spark
from warmwatch_monitor.commands.top.detail import PANES, Shown, detail
from warmwatch_monitor.commands.top.history import History
from warmwatch_monitor.commands.top.listing import (
    ORDERS,
    Entry,
    Key,
    Listing,
    at,
    fill,
    listing,
    room,
)
from warmwatch_monitor.commands.top.polling import Answer, Polling
from warmwatch_monitor.output.summary import overview

KEYS = (
    ("up, down, pgup, pgdn", "choose a row"),
    ("enter", "open the chosen rank; enter or esc: back"),
    ("1 to 5", "plots, recompiles, functions, GPUs, evidence"),
    ("w", "plots over 2 min, 10 min, 1 h"),
    ("s", "sort by state, run, longest in its state, slowest step,"),
    ("", "compile time, recompiles, steps"),
    ("r", "reverse the order"),
    ("/", "filter by run, state, phase or host"),
    ("", "enter keeps the filter, esc clears it"),
    ("e", "a row for each rank, or for ranks with equal values"),
    ("p, space", "pause: no requests meanwhile"),
    ("q, ctrl-c", "quit"),
)


class Help(ModalScreen[None]):
    """The help screen. It covers the keys of ``Top``, so it quits by itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,h,space", "dismiss", show=False),
        Binding("q", "app.quit", show=False),
    ]

    def compose(self) -> ComposeResult:
        parts = Text("Keys\n\n", style="bold")
        for keys, does in KEYS:
            parts.append(f"{keys:<21}", style="bold cyan").append(f"{does}\n", style="not bold")
        parts.append(
            "\n░: compile activity. The plots begin with the daemon; without one, with top.\n"
            "What was not measured is blank.",
            style="not bold dim",
        )
        yield Static(parts, id="help")


WINDOWS = (120.0, 600.0, 3600.0)
_MOST_DETAIL_LINES = 3
_ROWS_BEFORE_DETAILS = 24  # a screen of so many has the headline alone


class Top(App[str]):
    """The screen. ``run`` returns the error that ended it, or ``None``.

    Args:
        ask: returns the answer, with printable texts only; raises WarmwatchError.
        past: returns the columns of so many last seconds; ``None`` if there are none.
        seconds: poll interval.
    """

    TITLE = "warmwatch top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "top.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit", key_display="q"),
        Binding("ctrl+c", "quit", show=False, priority=True),  # also in the help and the filter
        Binding("enter", "open", "Open", key_display="enter", priority=True),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("e", "each", "Each rank"),
        Binding("w", "window", "Time"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("escape", "leave", show=False),
        Binding("r", "turn", show=False),
        *(Binding(str(n), f"pane('{name}')", show=False) for n, name in enumerate(PANES, 1)),
    ]

    def __init__(
        self,
        ask: Callable[[], Answer],
        seconds: float,
        past: Callable[[int], Answer | None] = lambda _: None,
    ) -> None:
        super().__init__(ansi_color=True)  # without it, NO_COLOR would be black on black
        self.theme = "ansi-dark"  # the terminal's own colours, and few bytes for each
        self.animation_level = "none"
        self.polling, self._seconds = Polling(self, ask, past), seconds
        self._answer: Answer | None = None
        self._trouble = ""
        self._history = History()
        self._listing = Listing([], {})
        self._key: Key | None = None
        self._order, self._turned, self._needle, self._every_rank = "state", False, "", False
        self._pane, self._window, self._opened = next(iter(PANES)), 0, False

    def compose(self) -> ComposeResult:
        yield Static(id="sentence")
        yield Static(id="line")
        yield DataTable[Text](
            id="list",
            cursor_type="row",
            cursor_foreground_priority="renderable",
            cell_padding=0,
        )
        with _Place(self._draw_detail):
            yield Static(id="words")
        yield Input(id="filter", placeholder="run, state, phase or host", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.query_one(DataTable).focus()
        self.set_interval(self._seconds, self.polling.poll)
        self.polling.poll()

    def panic(self, *renderables: RenderableType) -> None:
        """End with an error; Textual's thread that reads keys calls it with its traceback."""
        traces = [
            renderable.trace for renderable in renderables if isinstance(renderable, Traceback)
        ]
        if any(trace.stacks[0].exc_type == UnicodeDecodeError.__name__ for trace in traces):
            self.exit("a typed character is not UTF-8; set the terminal's encoding to UTF-8", 1)
        else:
            super().panic(*renderables)

    # incoming answers

    def poll(self) -> None:
        """Request an answer, unless a request is in progress."""
        self.polling.poll()

    def missing(self, answer: Answer) -> int:
        """The number of seconds before ``answer`` that the plots lack."""
        return self._history.missing(_made_at(answer))

    def take(self, answer: Answer | None, past: Answer | None, trouble: str) -> None:
        """Draw the answer or the error."""
        self._trouble = trouble
        if answer is not None:
            self._answer = answer
            self._history.add(answer, _made_at(answer))
        with suppress(LookupError, TypeError, ValueError):  # of another release
            self._history.join(past or {"at": ()})
        self.draw()

    # drawing

    def draw(self) -> None:
        """Draw everything from the last answer, unless the screen has closed."""
        if not self.is_running:
            return
        self.query_one("#line", Static).update(self._line())
        if self._answer is None:
            self.query_one("#sentence", Static).update(Text(self._trouble or "connecting ..."))
            return
        self.query_one("#sentence", Static).update(self._words(self._answer))
        table = self.query_one("#list", DataTable)
        self._listing = listing(
            self._answer,
            _made_at(self._answer),
            self.size.width,
            order=self._order,
            turned=self._turned,
            needle=self._needle,
            every_rank=self._every_rank,
        )
        cursor = at(self._listing.entries, self._key)
        with self.prevent(DataTable.RowHighlighted):
            fill(table, self._listing, cursor, self._sparks())
        self._draw_detail()

    def _draw_detail(self) -> None:
        self.query_one("#line", Static).update(self._line())
        entry, place = self._chosen(), self.query_one("#detail")
        text = Text("No run found" if not self._needle else "No run matches the filter")
        if entry is not None and self._answer is not None:
            window = Window(_made_at(self._answer), WINDOWS[self._window])
            width, height = place.size.width - 1, place.size.height  # one column for the scroll bar
            above = overview(self._answer), *self._details(self._answer)
            shown = Shown(
                self._answer, entry, self._history, window, width, height, above, self._opened
            )
            text = Text("\n").join(detail(shown, self._pane))
        self.query_one("#words", Static).update(text)

    def _sparks(self) -> list[Text]:
        """Step times of the first rank of each row, if there is room to the right of the list."""
        columns = room(self._listing, self.size.width)
        if not columns or self._answer is None:
            return []
        window = Window(_made_at(self._answer), WINDOWS[self._window])
        since, lines = window.until - window.seconds, []
        for entry in self._listing.entries:
            whose = entry.run["run"], entry.ranks[0]["rank"]
            points = self._history.steps(whose, since)
            lines.append(spark(points, self._history.compiling(whose, since), window, columns))
        return lines

    def _chosen(self) -> Entry | None:
        entries = self._listing.entries
        return entries[at(entries, self._key)] if entries else None

    def _words(self, answer: Answer) -> Text:
        """The headline, and the details that fit below it."""
        lines = [Text(overview(answer), style="bold")]
        lines += map(Text, self._wrapped(self._details(answer)))
        return Text("\n").join(lines)

    def _wrapped(self, details: Iterable[str]) -> list[str]:
        width = self.size.width
        return [line for text in details for line in wrapped(text, width, "  ", "    ")]

    def _details(self, answer: Answer) -> Sequence[str]:
        """The details above the list, and how many more there are."""
        room = max(0, min(_MOST_DETAIL_LINES, (self.size.height - _ROWS_BEFORE_DETAILS) // 2))
        rows = {run["summary"] for run in answer["runs"]}  # the chosen one has its sentence below
        details = [text for text in answer.get("details", ()) if text not in rows]
        for shown in range(len(details), 0, -1):
            more = [f"and {len(details) - shown} more"] if shown < len(details) and room > 1 else []
            if len(self._wrapped(lines := [*details[:shown], *more])) <= room:
                return lines
        return []

    def _line(self) -> Text:
        """The status line: row number, order, age of the answer, and errors."""
        entries = self._listing.entries
        parts = [f"row {at(entries, self._key) + 1} of {len(entries)}"] if entries else []
        parts.append(f"by {self._order}{', reversed' if self._turned else ''}")
        parts += [f"filter: {self._needle}"] if self._needle else []
        line = Text("  ".join(parts), style="dim")
        if self.polling.paused:
            line.append("  paused", style="not dim bold yellow")
        if self._trouble and self._answer is not None:
            age = max(0.0, time.time() - _made_at(self._answer))
            line.append(f"  {duration(age)} old: {self._trouble}", style="not dim bold red")
        return line

    # keys

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if self._listing.entries and event.cursor_row < len(self._listing.entries):
            self._key = self._listing.entries[event.cursor_row].key
            self._draw_detail()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._needle = event.value.strip()
        self.draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def action_open(self) -> None:
        """Show the chosen rank on the whole screen; in the filter, finish typing."""
        if self.query_one(Input).has_focus:
            self._end_filter()
        elif len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self._show_opened(not self._opened)

    def action_leave(self) -> None:
        if self.query_one(Input).has_focus:
            self.query_one(Input).value = ""
            self._end_filter()
        else:
            self._show_opened(False)

    def _show_opened(self, opened: bool) -> None:
        self._opened = opened
        self.screen.set_class(opened, "opened")
        place = self.query_one("#detail", VerticalScroll)
        place.can_focus = opened
        (place if opened else self.query_one(DataTable)).focus()

    def action_filter(self) -> None:
        """Focus immediately, before the next key: on a slow line several keys arrive together."""
        typed = self.query_one(Input)
        if typed.has_focus:
            typed.insert_text_at_cursor("/")
        elif len(self.screen_stack) == 1:
            typed.display = True
            self.screen.set_focus(typed)

    def _end_filter(self) -> None:
        self.query_one(Input).display = False
        self.screen.set_focus(self.query_one("#detail" if self._opened else DataTable))

    def action_sort(self) -> None:
        orders = list(ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self.draw()

    def action_turn(self) -> None:
        self._turned = not self._turned
        self.draw()

    def action_each(self) -> None:
        self._every_rank = not self._every_rank
        self.draw()

    def action_pause(self) -> None:
        self.polling.paused = not self.polling.paused
        self.poll()
        self.draw()

    def action_window(self) -> None:
        self._window = (self._window + 1) % len(WINDOWS)
        self.draw()

    def action_pane(self, name: str) -> None:
        self._pane = name
        self.query_one("#detail", VerticalScroll).scroll_home(animate=False)
        self._draw_detail()

    def action_help(self) -> None:
        self.push_screen(Help())


class _Place(VerticalScroll):
    """The place of the chosen row; its height is what the list leaves."""

    def __init__(self, resized: Callable[[], None]) -> None:
        super().__init__(id="detail", can_focus=False)
        self._resized = resized

    def on_resize(self) -> None:
        self._resized()


def _made_at(answer: Answer) -> float:
    """When the answer was made, by its maker's clock."""
    return float(answer.get("at") or time.time())
