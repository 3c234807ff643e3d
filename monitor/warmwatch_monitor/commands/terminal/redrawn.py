"""Text that is drawn again in its place on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from warmwatch_monitor.output.console import has_colour, height, width


@contextlib.contextmanager
def redrawn() -> Iterator[Callable[[str], None]]:
    """Yields the function that draws a text in place of the last one."""
    console = Console(width=width(), force_terminal=True, no_color=not has_colour())
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda text: live.update(Text.from_ansi(_that_fits(text)), refresh=True)


def _that_fits(text: str) -> str:
    """The lines of ``text`` that fit the terminal's height."""
    shown, room = text.split("\n"), height() - 1
    if len(shown) > room:
        shown = [*shown[: room - 1], f"... and {len(shown) - room + 1} lines more"]
    return "\n".join(shown)
