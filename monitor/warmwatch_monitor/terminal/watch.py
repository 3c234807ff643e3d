"""``warmwatch status --watch``: the same view, redrawn until Ctrl-C.

A terminal is redrawn in place. A pipe or a file gets a new copy whenever a state changes, as with
``kubectl get --watch``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from warmwatch_monitor.client.answers import Answer
from warmwatch_monitor.errors import UnknownRunError, WarmwatchError
from warmwatch_monitor.output.console import (
    draw,
    has_colour,
    height,
    is_redrawn,
    note,
    plain,
    reader_left,
    width,
)

Show = Callable[[Answer | None, str], None]


def watch(
    query: Callable[[], Answer], picture: Callable[[Answer], str], seconds: float
) -> Answer | None:
    """Show the answer of ``query`` at this interval; returns the last one.

    Returns ``None`` if the requested run never appeared.

    Raises:
        WarmwatchError: the first request failed. Later failures are shown with the last answer,
        and ``watch`` retries.
    """
    answer, trouble = _first(query)
    with contextlib.suppress(KeyboardInterrupt), _shown(picture) as show:
        while True:
            show(answer, trouble)
            time.sleep(seconds)
            if reader_left():
                return answer
            try:
                answer, trouble = query(), ""
            except UnknownRunError as error:
                trouble = _waiting(error)
            except WarmwatchError as error:
                trouble = f"{plain(str(error))}; retrying"
    return answer


def _first(query: Callable[[], Answer]) -> tuple[Answer | None, str]:
    """The first answer; a run that does not exist yet is not an error, it may begin."""
    try:
        return query(), ""
    except UnknownRunError as error:
        return None, _waiting(error)


def _waiting(error: UnknownRunError) -> str:
    return f"{plain(str(error))}; waiting for it"


@contextlib.contextmanager
def _shown(picture: Callable[[Answer], str]) -> Iterator[Show]:
    if not is_redrawn():
        yield _at_changes(picture)
        return
    from rich.console import Console  # not needed for a single answer
    from rich.live import Live
    from rich.text import Text

    console = Console(width=width(), force_terminal=True, no_color=not has_colour())
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def redraw(answer: Answer | None, trouble: str) -> None:
            shown = "" if answer is None else picture(answer)
            text = "\n".join(filter(None, [trouble, shown]))
            live.update(Text.from_ansi(_that_fits(text)), refresh=True)

        yield redraw


def _at_changes(picture: Callable[[Answer], str]) -> Show:
    printed: list[object] = []

    def print_changed(answer: Answer | None, trouble: str) -> None:
        states = [(run["run"], run["state"]) for run in answer["runs"]] if answer else []
        if printed[-1:] == [(states, trouble)]:
            return
        printed[:] = [(states, trouble)]
        if trouble or answer is None:
            note(trouble)
        else:
            draw(picture(answer), end="\n\n")

    return print_changed


def _that_fits(text: str) -> str:
    """The lines of ``text`` that fit the terminal's height."""
    shown, room = text.split("\n"), height() - 1
    if len(shown) > room:
        shown = [*shown[: room - 1], f"... and {len(shown) - room + 1} lines more"]
    return "\n".join(shown)
