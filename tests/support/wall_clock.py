"""A process's wall clock, set back and forth while it runs; see ``wall_clock.c``."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class WallClock:
    """A clock for the processes that are started with ``environment``."""

    def __init__(self, folder: Path) -> None:
        self._library, self._file = folder / "wall_clock.so", folder / "wall_clock.txt"
        command = ["cc", "-Wall", "-O2", "-shared", "-fPIC", "-o", self._library, SOURCE]
        subprocess.run(command, check=True)
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "WALL_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """So far ahead of the machine's, or behind it, from now on."""
        replacement = self._file.with_suffix(".new")
        replacement.write_text(str(seconds))
        replacement.rename(self._file)
