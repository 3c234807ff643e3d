"""The files that deploy Warmwatch, read as the programs read them that use them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"
CHART = DOCKER / "helm" / "warmwatch"


class ChartError(Exception):
    """The chart cannot be rendered with these values."""


def rendered(values: dict[str, Any], release: str = "warmwatch") -> dict[str, dict[str, Any]]:
    """The objects of the chart by their kind.

    Rendered by `helm` where that is installed, else by its engine as a library, which the group
    ``deploy`` installs on Linux.
    """
    if shutil.which("helm"):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(yaml.safe_dump(values))
            file.flush()
            command = ["helm", "template", release, CHART, "--namespace", "warmwatch"]
            done = subprocess.run(
                [*command, "-f", file.name], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise ChartError(done.stderr)
        text = done.stdout
    else:
        library = pytest.importorskip("helm_python", reason="neither helm nor its library is here")
        try:
            with library.Chart.load(str(CHART)) as chart:
                found = chart.render(values=values, name=release, namespace="warmwatch")
        except library.HelmError as error:
            raise ChartError(str(error)) from None
        text = "\n---\n".join(part for name, part in found.items() if name.endswith(".yaml"))
    objects = [one for one in yaml.safe_load_all(text) if one]
    return {one["kind"]: one for one in objects}


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
