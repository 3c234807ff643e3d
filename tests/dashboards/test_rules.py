"""The recording rules and alerts, each driven by promtool with series made for it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from warmwatch.shared.states import State

pytestmark = pytest.mark.slow

RULES = Path(__file__).parents[2] / "dashboards" / "rules"
CASES = Path(__file__).parent / "rules"
STATES = "cluster_state:warmwatch_runs:count"  # a rule for each state; the cases have a few of them


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    files = [yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", sorted(RULES.glob("*.yml")), ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    promtool("check", "rules", "--lint-fatal", str(path))


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yml")), ids=lambda path: path.stem)
def test_promtool_accepts_every_case_of_the_rules(path: Path) -> None:
    promtool("test", "rules", str(path))


def test_every_rule_has_a_case() -> None:
    cases = "".join(path.read_text() for path in CASES.glob("*.yml"))
    names = {rule.get("record") or rule["alert"] for rule in rules()}
    assert {name for name in names if name not in cases} == set()


def test_every_alert_that_fires_in_a_case_is_also_tested_when_silent() -> None:
    """A second series that must not fire is enough."""
    cases = yaml.safe_load((CASES / "alerts.yml").read_text())["tests"]
    for rule in rules():
        if "alert" not in rule:
            continue
        name = rule["alert"]
        looks = [(c, a) for c in cases for a in c["alert_rule_test"] if a["alertname"] == name]
        fires = sum(len(look.get("exp_alerts") or ()) for _, look in looks)
        silent = sum(not look.get("exp_alerts") for _, look in looks)
        offered = max(len(case["input_series"]) for case, _ in looks)
        assert fires, name
        assert silent or offered > 1, name


def test_a_run_can_be_in_each_of_the_states() -> None:
    reported = [rule["labels"]["state"] for rule in rules() if rule.get("record") == STATES]
    assert sorted(reported) == sorted(state.value for state in State)


def test_each_alert_has_a_description_and_a_link() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}
            annotations = rule["annotations"]
            assert annotations.keys() == {"summary", "description", "dashboard_url", "runbook_url"}
            assert annotations["runbook_url"].endswith(f"/how-to/alerts.md#{rule['alert'].lower()}")
            assert "On " in annotations["description"] or " host" in annotations["description"]
            for url in (annotations["dashboard_url"], annotations["runbook_url"]):
                assert url.startswith('{{ with query "warmwatch:settings" }}')


def test_each_alert_has_a_section_with_its_remedy() -> None:
    """Under the anchor that its ``runbook_url`` has: the heading in lower case."""
    page = (RULES.parents[1] / "docs" / "how-to" / "alerts.md").read_text()
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings == [rule["alert"] for rule in rules() if "alert" in rule]


def test_alerts_of_a_run_outlast_a_restart_of_the_daemon() -> None:
    without = {r["alert"] for r in rules() if "alert" in r and "keep_firing_for" not in r}
    assert without == {"WarmwatchDaemonDown", "WarmwatchNoDaemon"}


def test_the_cluster_survives_every_rule() -> None:
    for rule in rules():
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert labels.startswith("cluster"), rule
