"""docs/pictures/terminal.svg and top.svg: answers about a real training, as a terminal shows them.

``cd tests && python -m pictures.terminal FOLDER`` trains ``gpt2.py`` for six minutes, and writes
the pictures and the whole answers to FOLDER. It needs a GPU with 80 GB of memory.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from support.screens import screen
from warmwatch_monitor.commands.top.polling import Feed

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
TRAINING = Path(__file__).with_name("gpt2.py")
WIDTH = 118  # of the longest line


class Moment(NamedTuple):
    """What is waited for, the command that is shown then, and which part of its answer."""

    state: str
    seconds: float  # after the state is reached
    command: str
    part: slice | str  # lines, or a section with its heading


SHOWN = (
    Moment("compiling", 43, "status", slice(0, 4)),
    Moment("warm", 20, "status", slice(0, 5)),
    Moment("recompiling", 20, "status", slice(0, 2)),
    Moment("warm", 20, "status", slice(0, 1)),
    Moment("warm", 0, "report gpt2 -v", "Recompiles"),
)
THEME = TerminalTheme(
    (24, 26, 31),
    (216, 218, 224),
    [
        (70, 74, 84),
        (224, 108, 117),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (216, 218, 224),
    ],
)


def main(folder: Path) -> None:
    """Train, ask, and draw."""
    folder.mkdir(exist_ok=True)
    # the compile workers may still write into their cache
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        environ = environment(Path(place))
        daemon = subprocess.Popen(
            program("serve", "--address", "127.0.0.1:0"),
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert daemon.stdout
        found = re.search(r"http://([^/\s]+)", daemon.stdout.readline())
        assert found
        environ["WARMWATCH_ADDRESS"] = address = found[1]
        log = (folder / "training.txt").open("w")
        training = subprocess.Popen([sys.executable, str(TRAINING)], env=environ, stdout=log)
        try:
            for number, moment in enumerate(SHOWN):
                answer("wait", "gpt2", "--until", moment.state, environ=environ)
                time.sleep(moment.seconds)
                shown = answer(*moment.command.split(), environ=environ)
                (folder / f"{number}.txt").write_text(shown)
            top = asyncio.run(draw_top(address))
        finally:
            training.send_signal(signal.SIGINT)
            training.wait()
            daemon.terminate()
    (folder / "top.svg").write_text(without_fonts(top))
    draw_terminal(folder)


def draw_terminal(folder: Path) -> None:
    """The picture of the answers in ``folder``."""
    console = Console(record=True, width=WIDTH, file=sys.stdout, force_terminal=True)
    for number, moment in enumerate(SHOWN):
        console.print(Text(f"$ warmwatch {moment.command}", style="bold"))
        shown = (folder / f"{number}.txt").read_text()
        for line in chosen(shown.splitlines(), moment.part):
            console.print(Text.from_ansi(line))
        console.print()
    picture = console.export_svg(title="warmwatch", theme=THEME)
    (folder / "terminal.svg").write_text(without_fonts(picture))


def environment(place: Path) -> dict[str, str]:
    """Records, history and compile caches of its own; this checkout's code; colours."""
    roots = (ROOT, ROOT / "agent", ROOT / "monitor", os.environ.get("PYTHONPATH", ""))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, map(str, roots))),
        "WARMWATCH_DIR": str(place / "records"),
        "WARMWATCH_STATE": str(place / "state"),
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
        "TRITON_CACHE_DIR": str(place / "triton"),
        "COLUMNS": str(WIDTH),
        "FORCE_COLOR": "1",
    }


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "warmwatch_monitor", *words]


def answer(*words: str, environ: Mapping[str, str]) -> str:
    """What the command prints to its standard output."""
    return subprocess.run(
        program(*words), env=environ, stdout=subprocess.PIPE, text=True, check=False
    ).stdout


async def draw_top(address: str) -> str:
    """The picture of ``warmwatch top`` with what the daemon has seen so far."""
    feed = Feed(None, address=address)
    async with screen(feed.answer, (WIDTH, 30), feed.past) as shown:
        for _ in range(10):
            await asyncio.sleep(1)
            await shown.look()
        return shown.app.export_screenshot(title="warmwatch top")


def chosen(lines: list[str], part: slice | str) -> list[str]:
    """Some lines, or a section with its heading."""
    if isinstance(part, slice):
        return lines[part]
    plain = [Text.from_ansi(line).plain for line in lines]
    start = plain.index(part)
    return lines[start : plain.index("", start)]


def without_fonts(svg: str) -> str:
    """A picture that loads nothing: the viewer's monospaced font instead of one from the web."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "monospace")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
