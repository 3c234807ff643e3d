"""What the README says, against what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from warmwatch.process import settings as agent
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.record import CATEGORIES
from warmwatch.shared.verdict import State
from warmwatch_monitor import variables as monitor

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def test_the_table_of_settings_is_complete() -> None:
    listed = re.findall(r"^\| `(WARMWATCH_\w+)`", README, re.MULTILINE)
    assert sorted(listed) == sorted({*agent.VARIABLES, *monitor.VARIABLES})
    assert set(agent.MONITOR_VARIABLES) == set(monitor.VARIABLES) - set(agent.VARIABLES)
    assert set(monitor.AGENT_VARIABLES) == set(agent.VARIABLES) - set(monitor.VARIABLES)


def test_every_state_is_explained() -> None:
    table = README.split("## What the states mean")[1].split("##")[0]
    assert {state.value for state in State} <= set(re.findall(r"`(\w+)`", table))


@pytest.mark.parametrize("target", ["demo", "test", "benchmark"])
def test_every_make_target_that_is_named_exists(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", ["serve", "status", "wait", "check", "doctor"])
def test_every_command_that_is_shown_has_a_help(command: str) -> None:
    assert f"$ warmwatch {command}" in README
    words = [sys.executable, "-m", "warmwatch_monitor", command, "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"Usage: warmwatch {command}")


def test_every_category_of_a_recompile_is_explained_with_its_remedy() -> None:
    text = (ROOT / "docs" / "recompiles.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .+? \| (.+) \|$", text, re.MULTILINE)
    unknown = "none known: read the reason"
    assert rows == [(category, ADVICE.get(category, unknown)) for category in CATEGORIES]
