"""Every recording rule and alert, in promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from support import golden
from support.promtool import RULES, World
from warmwatch.shared.states import State

pytestmark = pytest.mark.slow

CASES = Path(__file__).parent / "rules"
STATES = "cluster_state:warmwatch_runs:count"  # a rule for each state; the cases have a few of them


def promtool(*words: str) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    files = [yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def everything() -> World:
    """A cluster in which every alert fires, but that no daemon reports; and what must not fire."""
    world = World(20)
    one, two = world.daemon("a"), world.daemon("b", pod="w-b")
    over = [(0.0, "warm"), (60.0, "finished")]

    one.rank("slow-start", states=[(0, "compiling")], attached=-1500)
    two.rank("warm", attached=-1500)

    held = set(re.findall(r'condition="(\w+)"', (RULES / "warmwatch.alerts.yml").read_text()))
    for name in sorted(held):
        one.rank(name, conditions={name: (120, 9999)})
        one.rank(name, 1, states=[(0, "starting"), (30, "warm")])
    kept = dict.fromkeys(held, (120.0, 9999.0))
    one.rank("over", states=over, conditions=kept, end={"end": "finished"})
    for run, cause in (("fallback", "recompile_limit"), ("unfused", "flex_attention")):
        one.rank(run)
        name = "warmwatch_compile_fallbacks_total"
        for known in ("recompile_limit", "flex_attention", "disable"):
            count = 2.0 * (known == cause)
            one.add(name, lambda at, n=count: n * (at >= 120), run=run, rank="0", cause=known)
    one.rank("long-compile", states=[(0, "compiling")], conditions={"long_compile": (120, 9999)})

    for run, count in (("recompiles", 8), ("calm", 1)):
        one.rank(run)
        name = "warmwatch_recompiles_after_warm_total"
        one.add(name, lambda at, n=count: n * (at >= 270), run=run, rank="0")
    for run, until in (("slower", 9999), ("slower-for-minutes", 450)):
        one.rank(run)
        name = "warmwatch_slower_ratio"
        one.add(name, lambda at, u=until: 2.5 if 300 <= at < u else None, run=run, rank="0")

    stalled = [(0.0, "warm"), (60.0, "stalled")]
    one.rank("o'stalled & co", states=stalled)
    one.rank("held", states=stalled, timeout=1800)  # by a peer that compiles
    two.rank("held", 1, states=[(0, "warm"), (55, "recompiling")], timeout=1800)
    one.rank("recovered", states=[*stalled, (120, "warm")])

    raised = {"end": "failed", "exception": "RuntimeError", "exit_code": "1"}
    one.rank("lost", states=[(0, "warm"), (60, "failed")], end=raised)
    two.rank("lost", 1)
    unseen: dict[str, Any] = {"end": {"end": "lost"}, "is_end_known": lambda _: False}
    one.rank("unknown-end", states=[(8, "warm"), (60, "lost")], **unseen)
    two.rank("unknown-end", 1)
    one.rank("moved", states=[(0, "warm"), (60, "lost")])
    two.rank("moved", states=[(90, "warm")], attached=90)
    one.rank("one-completed", states=over, end={"end": "finished"})
    two.rank("one-completed", 1)

    # over: by an exception, for want of memory, one long after another; cancelled; completed
    one.rank("raised", states=[(0, "warm"), (100, "failed")], end=raised)
    two.rank("raised", 1, states=[(0, "warm"), (103, "lost")], end={"end": "lost"})
    one.rank("restarts", states=[(0, "warm"), (100, "failed")], end=raised, restarts=True)
    one.rank("large", states=[(0, "warm"), (100, "lost")], end={"end": "lost"}, oom=True)
    for run, apart in (("apart", 50), ("cancelled", 4)):
        one.rank(run, states=[(0, "warm"), (100, "lost")], end={"end": "lost"})
        two.rank(run, 1, states=[(0, "warm"), (100 + apart, "lost")], end={"end": "lost"})
    one.rank("completed", states=over)
    two.rank("completed", 1, states=[(0, "warm"), (190, "finished")])
    one.rank("ended-sometime", states=[(0, "warm"), (60, "lost")], **unseen)

    for run, timeout in (("waits", None), ("waits-little", 120), ("patient", 1800)):
        one.rank(run, states=[(0, "warming")], timeout=timeout)
        two.rank(run, 1, states=[(0, "compiling")], timeout=timeout)

    one.rank("missing", world_size=4)
    one.rank("ended-early", states=over, world_size=4)
    one.rank("namesakes")
    two.rank("namesakes", attached=50)

    hosts(world)
    return world


def hosts(world: World) -> None:
    """Daemons with one fault each, and one without."""
    world.daemon("c", host="shared")
    world.daemon("d", host="shared")
    down = world.daemon("down", down=lambda at: at >= 120)
    down.rank("host-lost", world_size=2)
    raised = {"end": "failed", "exception": "RuntimeError", "exit_code": "1"}
    world.daemon("up").rank("host-lost", 1, [(0, "warm"), (120, "failed")], end=raised)
    world.daemon("late", clock=lambda _: -480.0)
    world.daemon("flaky", down=lambda at: at % 120 < 30)
    restarts = world.daemon("restarts", down=lambda at: at % 180 < 15)
    restarts.add("process_start_time_seconds", lambda at: at // 180)
    restarts.add("process_resident_memory_bytes", 2**30)
    for instance, bad in (("bad", True), ("good", False)):
        daemon = world.daemon(instance)

        def add(name: str, worse: float, better: float, daemon=daemon, bad=bad, **labels: str):
            daemon.add(name, lambda at: worse if bad and at >= 120 else better, **labels)

        add("warmwatch_source_up", 0, 1, source="records")
        daemon.add("warmwatch_source_up", 0, source="nvml")
        daemon.add("warmwatch_host_pci_gpus", 8 * bad)
        daemon.add("warmwatch_source_up", 1, source="host")
        name = "warmwatch_source_last_success_timestamp_seconds"
        daemon.add(name, lambda at, bad=bad: 60 if bad else at, source="host")
        add("warmwatch_records_refused", 2, 0)
        add("warmwatch_record_directory_free_bytes", 2**20, 2**28, directory="/run/warmwatch")
        add("warmwatch_record_directory_free_inodes", 150, 9000, directory="/run/warmwatch")
        add("warmwatch_export_up", 0, 1, export="otlp")
        gpu = {"uuid": f"GPU-{instance}", "gpu": "1"}
        daemon.add("warmwatch_gpu_info", 1, **gpu)
        add("warmwatch_gpu_throttled", 1, 0, reason="hw_thermal_slowdown", **gpu)
        daemon.add("warmwatch_gpu_throttled", 1, reason="sw_power_cap", **gpu)
        add("warmwatch_gpu_xid_errors_total", 1, 0, **gpu)
        ecc = "warmwatch_gpu_ecc_errors_total"
        daemon.add(ecc, lambda at: 9.0 * (at >= 300), kind="corrected", **gpu)
    name = "kube_daemonset_status_number_unavailable"
    for daemonset in ("warmwatch", "fluentd"):
        labels = {"daemonset": daemonset, "namespace": "monitoring", "instance": "ksm"}
        world.add(name, lambda at: 2.0 * (at >= 120), None, **labels)


# by alert: what it is about, and its first and last minute; nothing else fires
FIRE: dict[str, dict[str, tuple[float, float]]] = {
    "WarmwatchWarmUpTooLong": {"slow-start": (5.5, 20.0)},
    "WarmwatchThrashing": {"thrashing": (4.0, 20.0)},
    "WarmwatchRecompilesAfterWarm": {"recompiles": (4.5, 19.25)},
    "WarmwatchEagerFallback": {"fallback": (2.0, 20.0), "unfused": (2.0, 20.0)},
    "WarmwatchNothingCaptured": {"nothing_captured": (4.0, 20.0)},
    "WarmwatchNeverCompiled": {"never_compiled": (4.0, 20.0)},
    "WarmwatchSlowerThanBefore": {"slower_than_before": (2.0, 20.0)},
    "WarmwatchSlower": {"slower": (10.0, 20.0)},
    "WarmwatchStalled": {"o'stalled & co": (2.25, 20.0)},
    "WarmwatchStalledLong": {"o'stalled & co": (11.5, 20.0)},
    "WarmwatchRankLost": {"unknown-end": (1.0, 20.0), "lost": (2.0, 20.0)},
    "WarmwatchHostLost": {"host-lost": (2.75, 20.0)},
    "WarmwatchRunFailed": {
        "raised": (2.25, 20.0),
        "large": (2.25, 20.0),
        "restarts": (3.0, 20.0),
        "apart": (3.25, 20.0),
    },
    "WarmwatchRunEnded": {"ended-sometime": (1.5, 20.0), "cancelled": (3.0, 20.0)},
    "WarmwatchCompileSkew": {"waits-little": (1.75, 20.0), "waits": (7.5, 20.0)},
    "WarmwatchLongCompile": {"long-compile": (2.0, 20.0)},
    "WarmwatchRanksMissing": {"missing": (5.5, 20.0)},
    "WarmwatchNameCollision": {"namesakes": (6.25, 20.0)},
    "WarmwatchTwoDaemons": {"shared": (3.0, 20.0)},
    "WarmwatchSourceDown": {"nvml": (2.0, 20.0), "records": (4.0, 20.0)},
    "WarmwatchRecordsRefused": {"bad": (4.0, 20.0)},
    "WarmwatchRecordDirectoryFull": {"bad": (4.0, 20.0)},
    "WarmwatchSourceStale": {"host": (3.25, 20.0)},
    "WarmwatchClockOff": {"late": (2.25, 20.0)},
    "WarmwatchDaemonDown": {"down": (4.0, 20.0)},
    "WarmwatchDaemonRestarts": {"restarts": (9.25, 20.0)},
    "WarmwatchScrapesFail": {"flaky": (4.0, 20.0)},
    "WarmwatchPodMissing": {"warmwatch": (17.0, 20.0)},
    "WarmwatchExportDown": {"bad": (17.0, 20.0)},
    "WarmwatchGpuThrottled": {"GPU-bad": (4.0, 20.0)},
    "WarmwatchGpuError": {"GPU-bad": (2.25, 17.0)},
}


def subject(labels: dict[str, str]) -> str:
    names = ("run", "uuid", "directory_id", "daemonset", "source", "instance")
    return next(labels[name] for name in names if name in labels)


@pytest.mark.first
def test_each_alert_fires_from_its_moment_on_with_the_reviewed_texts(tmp_path: Path) -> None:
    """And no other does. An alert may be evaluated before or after the recording rules: a step."""
    world = everything()
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name, labels, times in world.history():
        assert subject(labels) not in found.setdefault(name, {}), labels  # one set of labels
        assert len(times) == 1, (name, labels, times)
        found[name][subject(labels)] = times[0]
    assert {name: of.keys() for name, of in found.items()} == {
        name: of.keys() for name, of in FIRE.items()
    }
    for name, of in FIRE.items():
        for about, times in of.items():
            assert found[name][about] == pytest.approx(times, abs=0.26), (name, about)
    text = ""  # as a receiver gets them: each alone must do
    for name, alerts in world.notified([*FIRE], 20).items():
        for labels, texts in sorted(alerts, key=str):
            lines = [f"{key}: {value}" for key, value in sorted(texts.items()) if value]
            text += "\n".join([f"{name} {labels}", *lines, "", ""])
    # a step more or less, by the order of evaluation
    golden.check("alerts.txt", re.sub(r"\d+m \d+s", "20m 0s", text), tmp_path)


@pytest.mark.parametrize("path", sorted(RULES.glob("*.yml")), ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    promtool("check", "rules", "--lint-fatal", str(path))


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yml")), ids=lambda path: path.stem)
def test_promtool_accepts_every_case_of_the_rules(path: Path) -> None:
    promtool("test", "rules", str(path))


def test_every_rule_has_a_case() -> None:
    texts = str(rules()) + "".join(path.read_text() for path in CASES.glob("*.yml"))
    names = {rule["record"] for rule in rules() if "record" in rule}
    assert {name for name in names if texts.count(name) < 2} == set()
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert alerts == FIRE.keys() | {"WarmwatchNoDaemon"}  # test_incidents.py


def test_a_run_can_be_in_each_of_the_states() -> None:
    reported = [rule["labels"]["state"] for rule in rules() if rule.get("record") == STATES]
    assert sorted(reported) == sorted(state.value for state in State)


def test_each_alert_has_a_description_a_command_and_a_link() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}
            annotations = rule["annotations"]
            texts = {"summary", "description", "command", "dashboard_url", "runbook_url"}
            assert annotations.keys() - {"first_rank"} == texts
            link = f"/how-to/alerts.md#{rule['alert'].lower()}{{{{ end }}}}"
            assert annotations["runbook_url"].endswith(link)


def test_no_duration_waits_for_an_evaluation_without_a_gap() -> None:
    """Every blip would begin it again: durations are in the expressions."""
    waits = {rule["alert"] for rule in rules() if {"for", "keep_firing_for"} & rule.keys()}
    assert waits == {"WarmwatchNoDaemon"}


def test_links_lead_to_the_documentation_of_the_project() -> None:
    project = tomllib.loads((RULES.parents[1] / "pyproject.toml").read_text())["project"]
    (settings,) = (rule for rule in rules() if rule.get("record") == "warmwatch:settings")
    home = project["urls"]["Documentation"].removesuffix("/README.md")
    assert settings["labels"] == {"docs_url": home, "grafana_url": ""}


def test_each_alert_has_a_section_with_its_remedy() -> None:
    """Under the anchor that its ``runbook_url`` has: the heading in lower case."""
    page = (RULES.parents[1] / "docs" / "how-to" / "alerts.md").read_text()
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings == [rule["alert"] for rule in rules() if "alert" in rule]


def test_the_cluster_survives_every_rule() -> None:
    for rule in rules():
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert labels.startswith("cluster"), rule
