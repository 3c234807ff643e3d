"""Every scenario with and without the agent, compared with PyTorch's own records."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import accuracy, features, scenarios
from support.case import Case
from support.comparison import findings
from support.scenarios import Scenario

RUN = [
    pytest.param(one, marks=pytest.mark.long if one.long else pytest.mark.first)
    for one in scenarios.every()
]


@pytest.mark.parametrize("scenario", RUN, ids=lambda scenario: scenario.name)
def test_the_verdict_agrees_with_the_truth(scenario: Scenario, tmp_path: Path) -> None:
    """Never warm too early or too late; every count, time and reason is PyTorch's own."""
    if scenario.lacks:
        pytest.skip(scenario.lacks)
    case = Case(scenario, *scenarios.run(scenario, tmp_path))
    assert findings(case) == []


@pytest.mark.parametrize("scenario", scenarios.every(), ids=lambda scenario: scenario.name)
def test_a_scenario_that_allows_a_difference_names_it(scenario: Scenario) -> None:
    """No check is made laxer in silence: the words stand in docs/explanation/accuracy.md."""
    laxer = (
        scenario.unseen_steps,
        any(scenario.late_steps),
        scenario.uncounted_breaks,
        scenario.uncompiled_graphs,
    )
    assert bool(scenario.limits) is any(laxer)


def test_the_table_of_features_names_proofs_that_exist_and_each_scenario() -> None:
    names = {one.name for one in scenarios.every()}
    proofs = {name for row in features.features() for name in row.proof}
    assert proofs - names - {*features.proofs()} == set()
    assert names - proofs == set()
    assert "\n".join(features.listing()) in accuracy.DOCUMENT.read_text()


def test_the_accuracy_table_lists_the_scenarios_that_exist() -> None:
    """Written by the suite, once for each change of a scenario."""
    listed = accuracy.listed(accuracy.DOCUMENT.read_text())
    assert listed == {one.name for one in scenarios.every()}
