"""Every broad ``except``: few, each with a reason, and no error is lost."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for part in ("agent/warmwatch", "monitor/warmwatch_monitor", "dashboards/warmwatch_dashboards")
    for path in (ROOT / part).rglob("*.py")
)
Catches = list[tuple[Path, ast.ExceptHandler]]
BROAD = {"Exception", "BaseException"}
DOCUMENT = ROOT / "docs/design/broad-catches.md"
LISTED = re.compile(r"`([a-z_/]+\.py)` \((\d+)\)")
# the sink, by the names under which it is called
SINKS = {"report", "_report", "failed", "_failed"}


def broad(path: Path) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler) and _names(node.type) & BROAD:
            last = node.body[-1]
            if not (isinstance(last, ast.Raise) and last.exc is None):  # it goes on as it came
                yield node


def _names(caught: ast.expr | None) -> set[str]:
    """What a handler, or ``suppress``, catches; everything where it names nothing."""
    if caught is None:
        return {"BaseException"}
    return {node.id for node in ast.walk(caught) if isinstance(node, ast.Name)}


def _calls(node: ast.AST) -> set[str]:
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}


def _where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix().partition("/")[2].partition("/")[2]


@pytest.fixture(scope="module")
def catches() -> Catches:
    return [(path, node) for path in SOURCES for node in broad(path)]


def test_a_broad_catch_has_a_reason_and_catches_no_interrupt(catches: Catches) -> None:
    for path, node in catches:
        line = path.read_text().splitlines()[node.lineno - 1]
        where = f"{path}:{node.lineno}: {line}"
        assert _names(node.type) == {"Exception"}, where
        assert re.search(r"# noqa: BLE001 - \w+|^    except Exception:$", line), where


def test_the_agents_broad_catches_call_the_sink_except_for_the_documented_ones(
    catches: Catches,
) -> None:
    loose = {
        _where(path)
        for path, node in catches
        if "agent" in path.relative_to(ROOT).parts and not _calls(node) & SINKS
    }
    assert loose == {
        "process/settings.py",
        "_boot/sitecustomize.py",
        "recorder/disk_flusher.py",
        "_guard.py",
        "testing/hook_check.py",
    }


def test_the_document_names_every_file_with_one_and_how_many_there_are(
    catches: Catches,
) -> None:
    listed = {name: int(count) for name, count in LISTED.findall(DOCUMENT.read_text())}
    assert listed == Counter(_where(path) for path, _ in catches)


@pytest.mark.slow
def test_no_suppress_catches_every_exception() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and "suppress" in _calls(node):
                assert not set().union(*map(_names, node.args)) & BROAD, f"{path}:{node.lineno}"
