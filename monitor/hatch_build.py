"""Puts the charting library into each wheel, sdist and editable install.

The repository holds only what was written for it, and installing the wheel needs no JavaScript
tools: uPlot is taken from a package that contains it, and is verified by its digest. The sdist
contains it too: a distribution such as conda-forge builds the wheel from it without that package.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "uplot-python"
PLACE = Path("monitor/warmwatch_monitor/page/library")
# name: the file in the package, and its SHA-256
FILES = {
    "uPlot.js": (
        "uplot/static/uPlot.iife.js",
        "655bc8aa33781e8721c5af6b59f1699c03c9bda951aa74a6ab518ac20cc4326d",
    ),
    "uPlot.css": (
        "uplot/static/uPlot.min.css",
        "3f121cd4a997b634e07a887658850018e475c26f0bddd874109a8d382c19de87",
    ),
}


class ChartsHook(BuildHookInterface[Any]):
    """Called by hatchling before it collects the files."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Put the files where the package has them."""
        put(Path(self.root) / PLACE)
        build_data["artifacts"] += [f"/{PLACE}/{name}" for name in FILES]


def put(place: Path) -> None:
    """Copy the library to ``place``; what is there and right needs no package.

    Raises:
        ValueError: the package holds another file than the one that is known.
    """
    place.mkdir(parents=True, exist_ok=True)
    for name, (path, digest) in FILES.items():
        there = place / name
        if there.exists() and hashlib.sha256(there.read_bytes()).hexdigest() == digest:
            continue
        content = _packaged(path)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{PACKAGE} holds another {path} than the one that is known")
        there.write_bytes(content)


def _packaged(path: str) -> bytes:
    try:
        return Path(str(distribution(PACKAGE).locate_file(path))).read_bytes()
    except PackageNotFoundError:
        raise ValueError(
            f"{PACKAGE} is not here, which carries the charts of the page: build with isolation, "
            "or install what build-system.requires names"
        ) from None
