"""What the dashboards' JSON holds, as Grafana would read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

FOLDER = Path(__file__).parent.parent.parent / "dashboards"
BOARDS: Mapping[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((FOLDER / "json").glob("*.json"))
}
RULES = sorted((FOLDER / "rules").glob("*.rules.yml"))

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NO_METRIC = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|group_left|without|ignoring) *\([^)]*\)")
_NAME = re.compile(r"(?<![\w$])[a-zA-Z_:][a-zA-Z0-9_:]*(?! *\()\b")
_OPERATORS = {"or", "and", "unless", "bool"}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a dashboard, and where it stands; ``instant``: queried at one moment."""

    where: str
    expr: str
    instant: bool = True

    @property
    def metrics(self) -> set[str]:
        """The metrics it reads: names that are not functions, operators or labels."""
        bare = _NO_METRIC.sub("", _STRING.sub('""', self.expr))
        return set(_NAME.findall(bare)) - _OPERATORS

    def filled(self, **variables: str) -> str:
        """With Grafana's variables replaced; one that is not given is an error."""
        return Template(self.expr).substitute(variables)


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The panels of a dashboard, without the headings of its rows."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel


def queries() -> Iterator[Query]:
    """Every query of every panel and annotation."""
    for name, board in BOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                where, instant = f"{name}: {panel['title']} {target['refId']}", target["instant"]
                yield Query(where, target["expr"], instant)
        for mark in board["annotations"].get("list", []):
            yield Query(f"{name}: {mark['name']}", mark["expr"])


def label_queries() -> Iterator[tuple[Query, str]]:
    """The series that each variable takes its choices from, and the label."""
    for name, board in BOARDS.items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
                assert found, variable["query"]
                yield Query(f"{name}: ${variable['name']}", found[1]), found[2]
