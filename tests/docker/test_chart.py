"""The Helm chart gives what the manifests of ``docker/kubernetes`` give, changed by its values.

Rendered by `helm` where that is installed, else by its engine as a library (``helm_python``), which
the group ``deploy`` installs on Linux.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.deployment import DOCKER, KUBERNETES

CHART = DOCKER / "helm" / "warmwatch"
RULES = DOCKER.parent / "dashboards" / "rules"


class ChartError(Exception):
    """The chart cannot be rendered with these values."""


def rendered(place: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects by their kind."""
    file = place / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    if shutil.which("helm"):
        command = ["helm", "template", "warmwatch", CHART, "--namespace", "warmwatch", "-f", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChartError(done.stderr)
        text = done.stdout
    else:
        library = pytest.importorskip("helm_python", reason="neither helm nor its library is here")
        try:
            with library.Chart.load(str(CHART)) as chart:
                found = chart.render(values=values, name="warmwatch", namespace="warmwatch")
        except library.HelmError as error:
            raise ChartError(str(error)) from None
        text = "\n---\n".join(part for name, part in found.items() if name.endswith(".yaml"))
    objects = [one for one in yaml.safe_load_all(text) if one]
    return {one["kind"]: one for one in objects}


def kustomized() -> dict[str, dict[str, Any]]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here")
    command = ["kubectl", "kustomize", KUBERNETES]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {one["kind"]: one for one in yaml.safe_load_all(shown)}


def ci_values(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return loaded


def monitor_of(daemonset: dict[str, Any]) -> dict[str, Any]:
    (monitor,) = daemonset["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = monitor
    return found


def test_the_chart_with_default_values_equals_the_output_of_kustomize(tmp_path: Path) -> None:
    ours, theirs = rendered(tmp_path, {}), kustomized()
    assert (
        ours.keys() == {"DaemonSet", "NetworkPolicy", "ConfigMap"} == theirs.keys() - {"Namespace"}
    )
    # kustomize appends a digest to the name of the ConfigMap
    (web,) = (one for one in _volumes(theirs["DaemonSet"]) if one["name"] == "web")
    assert web["configMap"]["name"].startswith("warmwatch-web-")
    web["configMap"]["name"] = "warmwatch-web"
    assert ours["DaemonSet"] == theirs["DaemonSet"]
    # a release may share its namespace, the manifests have one of their own
    labels = theirs["DaemonSet"]["spec"]["selector"]["matchLabels"]
    theirs["NetworkPolicy"]["spec"]["podSelector"] = {"matchLabels": labels}
    assert ours["NetworkPolicy"] == theirs["NetworkPolicy"]
    assert ours["ConfigMap"]["data"] == theirs["ConfigMap"]["data"]


def _volumes(daemonset: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemonset["spec"]["template"]["spec"]["volumes"]
    return found


@pytest.mark.parametrize("name", ["operator", "plain"])
def test_the_api_accepts_the_rendered_manifests(tmp_path: Path, name: str) -> None:
    manifests = rendered(tmp_path, ci_values(name))
    assert manifests
    for kind, found in manifests.items():
        if kind not in ("PodMonitor", "PrometheusRule"):  # not part of Kubernetes
            version = kubernetes_validate.latest_version()
            kubernetes_validate.validate(found, version, strict=True)


def test_without_gpus_and_token_the_chart_renders_no_part_of_them(tmp_path: Path) -> None:
    found = rendered(tmp_path, ci_values("plain"))
    assert found.keys() == {"DaemonSet", "NetworkPolicy"}
    monitor = monitor_of(found["DaemonSet"])
    assert monitor["args"][-1] == "--insecure"
    assert [mount["name"] for mount in monitor["volumeMounts"]] == ["records"]
    assert {"name": "WARMWATCH_GPU_INTERVAL", "value": "off"} in monitor["env"]
    assert "runtimeClassName" not in found["DaemonSet"]["spec"]["template"]["spec"]


def test_each_threshold_is_in_its_rule(tmp_path: Path) -> None:
    values = ci_values("operator")
    found = rendered(tmp_path, values)
    groups = found["PrometheusRule"]["spec"]["groups"]
    rules = {rule.get("alert") or rule["record"]: rule for one in groups for rule in one["rules"]}
    shipped = [
        rule.get("alert") or rule["record"]
        for name in ("warmwatch.rules.yml", "warmwatch.alerts.yml")
        for group in yaml.safe_load((RULES / name).read_text())["groups"]
        for rule in group["rules"]
    ]
    assert [*rules] == [*dict.fromkeys(shipped)]
    chosen = values["prometheusRule"]
    assert f"> {chosen['warmUpSeconds']})" in rules["WarmwatchWarmUpTooLong"]["expr"]
    recompiles = rules["WarmwatchRecompilesAfterWarm"]["expr"]
    assert recompiles.endswith(f"> {chosen['recompilesAfterWarm']}")
    assert rules["WarmwatchSlower"]["expr"].endswith(f">= {chosen['slowerRatio']}")
    assert rules["WarmwatchStalledLong"]["for"] == chosen["stalledPageAfter"]
    share = chosen["compileWaitShare"]
    assert f"> on (cluster, run) {share} * run:" in rules["WarmwatchCompileSkew"]["expr"]
    assert f"> {share} * 600" in rules["WarmwatchCompileSkew"]["expr"]
    for name, shipped_value in (
        ("WarmUpTooLong", "30 minutes"),
        ("RecompilesAfterWarm", " 3 "),
        ("Slower", "1.5"),
        ("Stalled", "10 minutes"),
        ("StalledLong", "10 minutes"),
        ("CompileSkew", "70 %"),
    ):
        assert shipped_value not in str(rules[f"Warmwatch{name}"]["annotations"])
    assert rules["warmwatch:settings"]["labels"]["grafana_url"] == chosen["grafanaUrl"]
    others = rendered(tmp_path, {"prometheusRule": {"enabled": True}})["PrometheusRule"]
    assert others["spec"]["groups"] == [
        group
        for name in ("warmwatch.rules.yml", "warmwatch.alerts.yml")
        for group in yaml.safe_load((RULES / name).read_text())["groups"]
    ]
    (endpoint,) = found["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "warmwatch-token", "key": "token"}
    assert found["PodMonitor"]["metadata"]["labels"]["release"] == "prometheus"
    assert {"name": "WARMWATCH_LONG_COMPILE", "value": "300"} in monitor_of(found["DaemonSet"])[
        "env"
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"imagee": {}},
        {"token": {"enabled": "yes"}},
        {"prometheusRule": {"slowerRatio": 1.2}},
        {"podMonitor": {"interval": "15"}},
        {"env": {"lower": "x"}},
    ],
)
def test_invalid_values_are_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(ChartError):
        rendered(tmp_path, values)
