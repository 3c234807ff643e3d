"""``warmwatch top`` without a terminal: its input, and its screen."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from warmwatch_monitor.commands.top.app import Top

Answer = dict[str, Any]

_TEXT = re.compile(r'<text [^>]*? x="([\d.]+)"[^>]*line-(\d+)\)">([^<]*)</text>')
_PLACE = 12.2  # of one character, in the picture that Textual exports
_NEVER = 86400.0


class Screen:
    """A ``top`` that polls on request."""

    def __init__(self, app: Top, pilot: Pilot[str]) -> None:
        self.app, self._pilot = app, pilot

    async def look(self) -> None:
        """Make it poll once, and wait until it has drawn the answer."""
        self.app.poll()
        await self.settle()

    async def settle(self) -> None:
        """Wait until the requested answer is drawn."""
        while self.app.polling.in_progress:
            await self._pilot.pause()
        await self._pilot.pause()

    async def draw(self) -> None:
        """Wait until what has come is drawn, whether or not an answer is still missing."""
        await self._pilot.pause()

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self._pilot.pause()

    @property
    def closed(self) -> bool:
        """Whether the user has quit."""
        return self.app._exit

    @property
    def text(self) -> str:
        """The screen, line by line."""
        width, height = self.app.size
        lines = [[" "] * width for _ in range(height)]
        for x, line, words in _TEXT.findall(self.app.export_screenshot()):
            first = round(float(x) / _PLACE)
            for place, sign in enumerate(html.unescape(words).replace("\xa0", " ").rstrip("\n")):
                lines[int(line)][first + place] = sign
        return "\n".join("".join(line).rstrip() for line in lines) + "\n"


def second_of(answer: Answer, at: float | None = None) -> dict[str, Any]:
    """What ``/history`` has of the second in which ``answer`` was made."""
    at = answer["at"] if at is None else at
    ranks = [
        {
            "run": run["run"],
            "rank": rank["rank"],
            "steps": [rank["steps"]],
            "step_seconds": [rank["step_seconds"]["last_second"]],
            "phases": [[at, rank["compile"]["phase"]]],
        }
        for run in answer["runs"]
        for rank in run["ranks"]
    ]
    figures = ("power_watts", "utilization_ratio")
    gpus = [
        {"uuid": gpu["uuid"], **{name: [gpu[name]] for name in figures}} for gpu in answer["gpus"]
    ]
    return {"at": [at], "ranks": ranks, "gpus": gpus}


@asynccontextmanager
async def screen(
    ask: Callable[[], Answer],
    size: tuple[int, int],
    past: Callable[[int], Answer | None] = lambda _: None,
    *,
    seconds: float = _NEVER,
) -> AsyncIterator[Screen]:
    """A ``top`` on a screen of ``size``, after its first poll."""
    app = Top(ask, seconds, past)
    async with app.run_test(size=size) as pilot:
        shown = Screen(app, pilot)
        await shown.settle()
        yield shown
