"""A stand-in for NVIDIA's library, built with the C compiler that Inductor needs anyway.

``standin.c`` lists what it can return. :class:`Standin` writes its file and gives the environment
in which a daemon loads it, so that a real process runs the real pynvml.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("standin.c")
LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "STANDIN_NVML"

# An H100 in the middle of a training, in NVML's own units and in the order of its structures.
H100 = {
    "uuid": "GPU-00000000-0000-4000-8000-000000000000",
    "name": "NVIDIA H100 80GB HBM3",
    "pci": "00000000:1B:00.0",
    "util": "98 43",
    "memory": "85520809984 77000000000",
    "power": "686000",
    "power_limit": "700000",
    "energy": "5000000",
    "temperature": "61",
    "clocks": "1980 1980 2619 1545",
    "throttle": "4",
    "ecc": "0 0",
    "gpm": "88.0 52.0 43.0",
    "processes": "",
    "xids": "0",
}

Device = Mapping[str, str]


def board(number: int, **fields: str) -> dict[str, str]:
    """An H100 with a uuid and a bus of its own, and other ``fields`` where given."""
    uuid = f"GPU-00000000-0000-4000-8000-{number:012x}"
    return {**H100, "uuid": uuid, "pci": f"00000000:{number + 0x1B:02X}:00.0", **fields}


class Standin:
    """A library in ``folder``, and the file that it reads. It has no driver before :meth:`say`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "nvml.txt"
        flags = ["-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-lpthread"]
        subprocess.run(["cc", "-Wall", "-o", folder / LIBRARY, SOURCE, *flags], check=True)
        self.remove_driver()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process loads it instead of the driver's library."""
        path = f"{self.folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        return {"LD_LIBRARY_PATH": path, VARIABLE: str(self._file)}

    def load(self) -> None:
        """Load it into this process: a lookup of the library by name then finds it."""
        ctypes.CDLL(str(self.folder / LIBRARY))
        os.environ[VARIABLE] = str(self._file)

    def remove_driver(self, code: int = 9) -> None:
        """``nvmlInit`` fails with ``code``: the driver is not loaded."""
        self._write([f"init = {code}"])

    def say(self, *devices: Device, driver: str = "580.159.04", **more: str) -> None:
        """From the next call on, report these boards. ``more``: lines that replace others."""
        lines = [f"{key} = {value}" for key, value in more.items()]
        lines += ["init = 0", f"driver = {driver}", f"count = {len(devices)}"]
        for number, fields in enumerate(devices):
            lines += [f"gpu{number}/{key} = {value}" for key, value in fields.items()]
        self._write(lines)

    def replay(self, capture: Path) -> None:
        """From the next call on, replay a real library's values (``gpu/record_nvml.py``)."""
        captured = json.loads(capture.read_text())
        devices = [{key: _raw(value) for key, value in one.items()} for one in captured["devices"]]
        self.say(*devices, driver=captured["driver"])

    def _write(self, lines: list[str]) -> None:
        replacement = self._file.with_suffix(".new")
        replacement.write_text("\n".join(lines) + "\n")
        replacement.rename(self._file)


def _raw(value: Any) -> str:
    """A recorded value: numbers, text, or ``{"error": code}``."""
    if isinstance(value, dict):
        return f"!{value['error']}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
