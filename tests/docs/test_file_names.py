"""Every Python file that a docstring, a comment or a page for contributors names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`([a-z_/]+\.py)`")
CODE = ("agent", "monitor")
OF_A_USER = {"train.py"}
PAGES = ("*.md", "docs/design/*.md")


def files(*patterns: str) -> list[Path]:
    return [path for pattern in patterns for path in ROOT.glob(pattern)]


@pytest.mark.parametrize(
    ("texts", "folders"),
    [
        (files(*PAGES), (*CODE, "tests", "docs", "benchmarks", "dashboards", "docker")),
        (files(*(f"{folder}/**/*.py" for folder in CODE)), CODE),
    ],
    ids=["pages", "code"],
)
def test_every_file_that_a_text_names_exists(texts: list[Path], folders: tuple[str, ...]) -> None:
    known = [path.as_posix() for path in files(*(f"{folder}/**/*.py" for folder in folders))]
    named = [
        (path.name, name)
        for path in texts
        for name in NAMED.findall(path.read_text())
        if name not in OF_A_USER
    ]
    assert len(named) > 10
    missing = [one for one in named if not any(path.endswith(f"/{one[1]}") for path in known)]
    assert missing == []


def test_every_promise_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "design" / "promises.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    tests = ROOT / "tests"
    for row in rows:
        proofs = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row.rpartition(" | ")[2])
        assert proofs, row
        for path, name in proofs:
            assert (tests / path).is_file(), path
            assert not name or f"def {name}(" in (tests / path).read_text(), f"{path}::{name}"
