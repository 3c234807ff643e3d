"""``warmwatch status --watch``: the same picture, redrawn until Ctrl-C.

On a terminal it is drawn over itself. Into a pipe or a file it is printed whenever a state has
changed, as ``kubectl get --watch`` does.
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
    ask: Callable[[], Answer], picture: Callable[[Answer], str], seconds: float
) -> Answer | None:
    """Show what ``ask`` says every so many seconds; the last answer, ``None`` where the run that
    was asked for never came.

    Raises:
        WarmwatchError: there was no answer at the first look. Later that is shown beside the last
        answer, and asked again.
    """
    answer, trouble = _first(ask)
    with contextlib.suppress(KeyboardInterrupt), _shown(picture) as show:
        while True:
            show(answer, trouble)
            time.sleep(seconds)
            if reader_left():
                return answer
            try:
                answer, trouble = ask(), ""
            except UnknownRunError as error:
                trouble = _waiting(error)
            except WarmwatchError as error:
                trouble = f"{plain(str(error))}; asking again"
    return answer


def _first(ask: Callable[[], Answer]) -> tuple[Answer | None, str]:
    """A run that is not there yet is what one may want to see come."""
    try:
        return ask(), ""
    except UnknownRunError as error:
        return None, _waiting(error)


def _waiting(error: UnknownRunError) -> str:
    return f"{plain(str(error))}; waiting for it"


@contextlib.contextmanager
def _shown(picture: Callable[[Answer], str]) -> Iterator[Show]:
    if not is_redrawn():
        yield _at_changes(picture)
        return
    from rich.console import Console  # what is printed once does without
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
    told: list[object] = []

    def tell(answer: Answer | None, trouble: str) -> None:
        states = [(run["run"], run["state"]) for run in answer["runs"]] if answer else []
        if told[-1:] == [(states, trouble)]:
            return
        told[:] = [(states, trouble)]
        if trouble or answer is None:
            note(trouble)
        else:
            draw(picture(answer), end="\n\n")

    return tell


def _that_fits(text: str) -> str:
    """As many of its lines as the terminal has."""
    said, room = text.split("\n"), height() - 1
    if len(said) > room:
        said = [*said[: room - 1], f"... and {len(said) - room + 1} lines more"]
    return "\n".join(said)
