"""A scenario of several ranks: each is a process with a GPU, a record and a truth of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support import scenarios
from support.case import Case
from support.scenarios import Scenario
from support.values import replace


def run(scenario: Scenario, folder: Path) -> list[Case]:
    """Run all ranks together, with the agent and without it; return their results in order."""
    with ThreadPoolExecutor(scenario.ranks) as pool:
        return list(pool.map(lambda rank: _run(scenario, folder, rank), range(scenario.ranks)))


def _run(scenario: Scenario, folder: Path, rank: int) -> Case:
    env = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(scenario.ranks),
        "SCENARIO_MEETING": str(folder / "meeting"),
    }
    one = scenario if scenario.ranks == 1 else replace(scenario, env={**scenario.env, **env})
    return Case(one, *scenarios.run(one, folder / f"rank{rank}"))
