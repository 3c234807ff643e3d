"""The Helm chart, against the API's own schemas and changed by its values."""

from __future__ import annotations

import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.deployment import CHART, DOCKER, ChartError, rendered

RULES = DOCKER.parent / "dashboards" / "rules"


def ci_values(name: str) -> dict[str, Any]:
    if name == "default":
        return {}
    loaded: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return loaded


def monitor_of(daemonset: dict[str, Any]) -> dict[str, Any]:
    (monitor,) = daemonset["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = monitor
    return found


@pytest.mark.parametrize("name", ["operator", "plain", "default", "full"])
def test_the_api_accepts_the_rendered_manifests(name: str) -> None:
    manifests = rendered(ci_values(name))
    assert manifests
    for kind, found in manifests.items():
        if kind not in ("PodMonitor", "PrometheusRule"):  # not part of Kubernetes
            version = kubernetes_validate.latest_version()
            kubernetes_validate.validate(found, version, strict=True)


def test_values_that_charts_usually_have_arrive_in_the_pod() -> None:
    found = rendered(ci_values("full"))
    daemonset, monitor = found["DaemonSet"], monitor_of(found["DaemonSet"])
    pod = daemonset["spec"]["template"]
    assert monitor["image"].startswith("registry.example.com/warmwatch@sha256:67a1")
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true", "pool": "training"}
    assert pod["spec"]["affinity"]["nodeAffinity"]
    assert daemonset["metadata"]["annotations"] == {"example.com/owner": "platform"}
    assert pod["metadata"]["annotations"] == {"example.com/revision": "7"}
    assert monitor["args"][-2:] == ["--interval", "1"]
    assert {"name": "history", "mountPath": "/var/lib/warmwatch"} in monitor["volumeMounts"]
    assert {"name": "history", "emptyDir": {"sizeLimit": "512Mi"}} in pod["spec"]["volumes"]


def test_a_dra_claim_has_admin_access_and_replaces_the_runtime_class() -> None:
    found = rendered(ci_values("full"))
    spec, monitor = found["DaemonSet"]["spec"]["template"]["spec"], monitor_of(found["DaemonSet"])
    (claim,) = spec["resourceClaims"]
    template = found["ResourceClaimTemplate"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert monitor["resources"]["claims"] == [{"name": claim["name"]}]
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["adminAccess"] is True
    assert request["exactly"]["allocationMode"] == "All"
    assert "runtimeClassName" not in spec


def test_a_tmpfs_is_mounted_on_the_node_once_and_with_limits() -> None:
    spec = rendered(ci_values("full"))["DaemonSet"]["spec"]["template"]["spec"]
    tmpfs, records = spec["initContainers"]
    assert (tmpfs["name"], records["name"]) == ("tmpfs", "records")
    command = tmpfs["command"][-1]
    assert command.startswith("mountpoint -q /host/run/warmwatch || ")
    assert "size=256m,nr_inodes=32k,nosuid,nodev,noexec" in command
    assert tmpfs["volumeMounts"][0]["mountPropagation"] == "Bidirectional"
    subprocess.run(["sh", "-n", "-c", command], check=True)
    for one in (records, spec["containers"][0]):
        mount = next(each for each in one["volumeMounts"] if each["name"] == "records")
        assert mount["mountPropagation"] == "HostToContainer"


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("warmwatch", {}, "warmwatch"),
        ("east", {}, "east-warmwatch"),
        ("warmwatch-east", {}, "warmwatch-east"),
        ("east", {"fullnameOverride": "ww"}, "ww"),
    ],
)
def test_objects_have_the_name_of_the_release(
    release: str, values: dict[str, Any], name: str
) -> None:
    enabled = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    found = rendered({**values, **enabled}, release)
    assert {one["metadata"]["name"] for one in found.values()} == {name}
    selector = found["DaemonSet"]["spec"]["selector"]["matchLabels"]
    assert selector["app.kubernetes.io/instance"] == release
    labels = found["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()


def test_the_instance_of_a_scrape_is_the_node() -> None:
    """Of the DaemonSet's pods: several sidecars may share a node."""
    (endpoint,) = rendered({"podMonitor": {"enabled": True}})["PodMonitor"]["spec"][
        "podMetricsEndpoints"
    ]
    dropped = [one["regex"] for one in endpoint["relabelings"] if one.get("action") == "labeldrop"]
    assert dropped == ["namespace|pod|container"]  # of the monitor's pod, which may be replaced
    relabelled = {one.get("targetLabel"): one for one in endpoint["relabelings"]}
    assert relabelled["instance"]["sourceLabels"] == [
        "__meta_kubernetes_pod_controller_kind",
        "__meta_kubernetes_pod_node_name",
    ]
    assert relabelled["instance"]["regex"] == "DaemonSet;(.+)"


def test_without_gpus_and_token_the_chart_renders_no_part_of_them() -> None:
    found = rendered(ci_values("plain"))
    assert found.keys() == {"DaemonSet", "NetworkPolicy"}
    monitor = monitor_of(found["DaemonSet"])
    assert monitor["args"][-1] == "--insecure"
    assert [mount["name"] for mount in monitor["volumeMounts"]] == ["records", "socket"]
    assert {"name": "WARMWATCH_GPU_INTERVAL", "value": "off"} in monitor["env"]
    assert "runtimeClassName" not in found["DaemonSet"]["spec"]["template"]["spec"]


def test_each_threshold_is_in_its_rule() -> None:
    values = ci_values("operator")
    found = rendered(values)
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
    assert f"> {chosen['recompilesAfterWarm']}\n" in recompiles
    assert f">= {chosen['slowerRatio']}\n" in rules["WarmwatchSlower"]["expr"]
    stalled = rules["WarmwatchStalledLong"]["expr"]
    assert f"seconds:max > {chosen['stalledPageSeconds']}\n" in stalled
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
    others = rendered({"prometheusRule": {"enabled": True}})["PrometheusRule"]
    assert others["spec"]["groups"] == [
        {"interval": "5s", **group}
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
        {"image": {"digest": "latest"}},
        {"records": {"tmpfs": {"size": "512M; reboot"}}},
    ],
)
def test_invalid_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ChartError):
        rendered(values)
