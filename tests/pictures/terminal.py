"""docs/pictures/terminal.svg and top.svg: the answers of a real training, as a terminal shows them.

``cd tests && python -m pictures.terminal`` runs the training of the tutorial about recompiles.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from support import sessions, trainings
from support.daemon import completed
from support.screens import Answer, screen

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "first-recompile.md"
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
TOP = PICTURE.with_name("top.svg")
WIDTH = 104  # of the longest sentence
LOOKS = 80  # of `top`, one a second: its plot shows as many
# a larger model: a step takes so long that other programs of the machine hardly change it
SMALL = "nn.Linear(128, 512), nn.GELU(),"
LARGE = "nn.Linear(128, 16384), nn.GELU(), nn.Linear(16384, 512), nn.GELU(),"
# what is waited for, and the command whose answer is shown then; only its first lines, or from a
# heading on
SHOWN = (
    ("warmwatch wait gpt --until compiling", "warmwatch status", slice(0, 3)),
    ("warmwatch wait gpt --until recompiling", "warmwatch status", slice(0, 2)),
    ("warmwatch wait gpt", "warmwatch status", slice(0, 3)),
    ("kill -INT %1; wait", "warmwatch report gpt -v", "Recompiles"),
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


def main() -> None:
    """Run the training, ask, and draw."""
    console = Console(record=True, width=WIDTH, file=sys.stdout, force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        shell, records = sessions.Shell(Path(folder)), Path(folder) / ".records"
        try:
            for name, text in sessions.files(TUTORIAL.read_text()).items():
                (Path(folder) / name).write_text(
                    text.replace("range(5)", "range(5000)").replace(SMALL, LARGE)
                )
            shell.run(f"export COLUMNS={WIDTH} FORCE_COLOR=1 WARMWATCH_RUN=gpt")
            shell.run("python train.py &")
            for wait, command, part in SHOWN:
                if wait.startswith("kill"):
                    asyncio.run(draw_top(partial(status, trainings.environment(records))))
                shell.run(f"{wait} >/dev/null 2>&1")
                console.print(Text(f"$ {command}", style="bold"))
                for line in chosen(shell.run(command), part):
                    console.print(Text.from_ansi(line))
                console.print()
        finally:
            shell.close()
    PICTURE.write_text(without_fonts(console.export_svg(title="warmwatch", theme=THEME)))
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")


def status(environment: Mapping[str, str]) -> Answer:
    """The runs, from a process of its own: the shell runs one command at a time."""
    return json.loads(completed("status", "--json", env=environment).stdout)


async def draw_top(ask: Callable[[], Answer]) -> None:
    async with screen(ask, (WIDTH, 30)) as shown:
        for _ in range(LOOKS):
            await asyncio.sleep(1)
            await shown.look()
        TOP.write_text(without_fonts(shown.app.export_screenshot(title="warmwatch top")))
    sys.stdout.write(f"{TOP.relative_to(ROOT)}\n")


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
    main()
