"""The files that deploy Warmwatch, read as the programs read them that use them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"


def compose() -> dict[str, Any]:
    """compose.yaml, its anchors resolved."""
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def dockerfile() -> Iterator[tuple[str, str, str]]:
    """Each instruction as its stage, its verb and the rest, comments and line breaks gone."""
    text = re.sub(r"^ *#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    stage = ""
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        if not line:
            continue
        verb, _, rest = line.partition(" ")
        if verb == "FROM":
            stage = rest.rpartition(" AS ")[2]
        yield stage, verb, rest


def instructions(stage: str, verb: str) -> list[str]:
    """What ``verb`` is given in a stage of the Dockerfile."""
    return [rest for its, word, rest in dockerfile() if (its, word) == (stage, verb)]
