"""What CI makes of an audit: only a vulnerability that was found fails it. Programs stand in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "audit.sh"
FOUND = 'echo "Found 2 known vulnerabilities in 1 package" >&2; exit 1'
UNREACHABLE = 'echo "ERROR:pip_audit._cli:Failed to connect" >&2; exit 1'


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("installs", "audits", "strict", "where_possible"),
    [
        ("exit 0", "exit 0", 0, 0),
        ("exit 0", FOUND, 1, 1),
        ("exit 0", UNREACHABLE, 2, 0),
        ("exit 1", "exit 0", 2, 0),
    ],
)
def test_a_finding_fails_and_an_unanswered_query_is_reported(
    tmp_path: Path, installs: str, audits: str, strict: int, where_possible: int
) -> None:
    program(tmp_path / "pip", installs)
    program(tmp_path / "pip-audit", audits)
    for requested, expected in (([], strict), (["--where-possible"], where_possible)):
        done = subprocess.run(
            [SCRIPT, tmp_path, *requested], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == expected
        assert ("Nothing was audited" in done.stderr) == (strict == 2)
