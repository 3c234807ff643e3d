"""The page on security names, for each boundary, files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MONITOR = ROOT / "monitor" / "warmwatch_monitor"
_FILE = re.compile(r"`([\w/.-]+/?[\w-]+\.(?:py|mount))`((?:[:,] `[\w.]+`)*)")


def test_each_boundary_is_enforced_in_the_documented_place() -> None:
    page = (ROOT / "docs" / "explanation" / "security.md").read_text()
    table = page.partition("| boundary | enforced in |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 12
    for row in rows:
        found = _FILE.findall(row.rpartition(" | ")[2])
        assert found, row
        for file, names in found:
            path = ROOT / file if file.startswith(("agent/", "docker/")) else MONITOR / file
            code = path.read_text()
            for name in re.findall(r"`([\w.]+)`", names):
                for part in name.split("."):
                    assert re.search(rf"\b(?:def|class) {part}\b", code), f"{file}: {name}"
