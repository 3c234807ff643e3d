"""The manifests, against the API's own schemas and against each other.

`kubectl kustomize` renders them where kubectl is; a PodMonitor is not part of Kubernetes, so of it
only what it must have in common with the others is checked.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.deployment import KUBERNETES, documents, instructions
from warmwatch_monitor.server.protection import ProtectionFiles

NATIVE = [
    KUBERNETES / "base" / "namespace.yaml",
    KUBERNETES / "base" / "daemonset.yaml",
    KUBERNETES / "base" / "networkpolicy.yaml",
    KUBERNETES / "examples" / "training.yaml",
    KUBERNETES / "examples" / "sidecar.yaml",
]
(DAEMONSET,) = documents(KUBERNETES / "base" / "daemonset.yaml")
SIDECAR, SIDECAR_WEB, SIDECAR_POLICY = documents(KUBERNETES / "examples" / "sidecar.yaml")
(POLICY,) = documents(KUBERNETES / "base" / "networkpolicy.yaml")
(TRAINING,) = documents(KUBERNETES / "examples" / "training.yaml")
(BASE,) = documents(KUBERNETES / "base" / "kustomization.yaml")
(LABELS,) = [one["pairs"] for one in BASE["labels"] if one["includeSelectors"]]


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def containers(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = pod(manifest)
    return {one["name"]: one for one in (*spec.get("initContainers", ()), *spec["containers"])}


def validate(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def rendered(folder: Path) -> list[dict[str, Any]]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not here")
    shown = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    return list(yaml.safe_load_all(shown.stdout))


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_the_api_accepts_each_manifest(path: Path) -> None:
    manifests = list(documents(path))
    assert manifests
    for manifest in manifests:
        # kustomize adds the selector, which the schema requires
        if manifest["kind"] == "DaemonSet":
            manifest["spec"]["selector"] = {"matchLabels": LABELS}
            manifest["spec"]["template"]["metadata"] = {"labels": LABELS}
        validate(manifest)


def test_a_manifest_with_a_misspelt_field_would_be_refused() -> None:
    wrong = json.loads(json.dumps(TRAINING).replace("backoffLimit", "backofLimit"))
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong)


def test_kustomize_puts_labels_image_and_runtime_class_into_the_daemonset() -> None:
    kinds = {one["kind"]: one for one in rendered(KUBERNETES)}
    assert kinds.keys() == {"Namespace", "DaemonSet", "NetworkPolicy", "ConfigMap"}
    assert "--insecure" not in containers(kinds["DaemonSet"])["monitor"]["args"]
    found = kinds["DaemonSet"]
    validate(found)
    assert found["metadata"]["namespace"] == kinds["Namespace"]["metadata"]["name"]
    assert found["spec"]["selector"]["matchLabels"] == LABELS
    assert pod(found)["runtimeClassName"] == "nvidia"
    interval = {"name": "WARMWATCH_GPU_INTERVAL", "value": "1"}
    assert containers(found)["monitor"]["env"] == [interval]
    assert {one["image"] for one in containers(found).values()} == {"warmwatch:0.1.0"}


def test_every_folder_of_a_kustomization_exists_and_every_file_is_named() -> None:
    for kustomization in KUBERNETES.rglob("kustomization.yaml"):
        (config,) = documents(kustomization)
        parts = {*config.get("resources", ()), *config.get("components", ())}
        for generator in config.get("configMapGenerator", ()):
            parts |= {*generator["files"]}
        assert all((kustomization.parent / part).exists() for part in parts)
        here = {path.name for path in kustomization.parent.glob("*.y*ml")}
        assert here - {"kustomization.yaml"} <= parts


def test_the_podmonitor_finds_the_daemonset_by_label_and_the_port_by_name() -> None:
    (monitor,) = documents(KUBERNETES / "podmonitor" / "podmonitor.yaml")
    assert monitor["spec"]["selector"]["matchLabels"] == LABELS
    assert monitor["metadata"]["namespace"] == BASE["namespace"]
    assert SIDECAR["spec"]["template"]["metadata"]["labels"] == LABELS
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "warmwatch-token", "key": "token"}
    assert "annotations" not in DAEMONSET["spec"]["template"].get("metadata", {}), "scraped twice"
    for manifest in (DAEMONSET, SIDECAR):
        (port,) = containers(manifest)["monitor"]["ports"]
        assert port["name"] == endpoint["port"]
        assert [str(port["containerPort"])] == instructions("monitor", "EXPOSE")


@pytest.mark.parametrize("manifest", [DAEMONSET, SIDECAR], ids=["daemonset", "sidecar"])
def test_the_monitor_requests_no_gpu_reads_only_and_has_no_privileges(
    manifest: dict[str, Any],
) -> None:
    monitor = containers(manifest)["monitor"]
    named = {*monitor["resources"]["requests"], *monitor["resources"]["limits"]}
    assert named == {"cpu", "memory"}
    mounts = monitor["volumeMounts"]
    assert {"name": "records", "mountPath": "/run/warmwatch", "readOnly": True} in mounts
    assert all(mount["readOnly"] for mount in mounts)
    rights = {**pod(manifest).get("securityContext", {}), **monitor["securityContext"]}
    assert rights["runAsNonRoot"] is True
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    # a Service named warmwatch would set WARMWATCH_PORT, which the daemon refuses as unknown
    assert pod(manifest)["enableServiceLinks"] is False


def test_the_daemonset_runs_on_every_node_and_is_evicted_last() -> None:
    tolerated = {(one["operator"], one["effect"]) for one in pod(DAEMONSET)["tolerations"]}
    assert tolerated == {("Exists", "NoSchedule"), ("Exists", "NoExecute")}
    assert pod(DAEMONSET)["priorityClassName"] == "system-node-critical"


def test_the_daemonset_runs_as_the_user_of_the_image() -> None:
    rights = containers(DAEMONSET)["monitor"]["securityContext"]
    assert instructions("monitor", "USER") == [f"{rights['runAsUser']}:{rights['runAsGroup']}"]


def test_a_training_shares_the_directory_of_the_daemonset() -> None:
    (made,) = pod(DAEMONSET)["volumes"]
    (used,) = pod(TRAINING)["volumes"]
    assert made["hostPath"] == {"path": "/run/warmwatch", "type": "DirectoryOrCreate"}
    assert used["hostPath"] == {"path": "/run/warmwatch", "type": "Directory"}
    made_by = containers(DAEMONSET)["records"]
    group = containers(DAEMONSET)["monitor"]["securityContext"]["runAsGroup"]
    command = f"chgrp {group} /run/warmwatch && chmod 3777 /run/warmwatch"
    assert made_by["command"] == ["sh", "-c", command]
    assert made_by["securityContext"]["runAsGroup"] == group  # or it would need a capability
    assert pod(SIDECAR)["securityContext"]["fsGroup"] == group
    for manifest in (TRAINING, SIDECAR):
        environment = containers(manifest)["training"]["env"]
        assert {"name": "WARMWATCH_DIR", "value": "/run/warmwatch"} in environment


def test_the_pods_of_an_operator_s_job_share_the_directory_too() -> None:
    """The job is a resource of the operator; its pods are Kubernetes' own."""
    (job,) = documents(KUBERNETES / "examples" / "pytorchjob.yaml")
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        spec = {**replica["template"]["spec"], "restartPolicy": replica["restartPolicy"]}
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
        assert spec["volumes"] == pod(TRAINING)["volumes"]
        (training,) = spec["containers"]
        assert training["volumeMounts"] == containers(TRAINING)["training"]["volumeMounts"]
        assert {"name": "WARMWATCH_DIR", "value": "/run/warmwatch"} in training["env"]


@pytest.mark.parametrize("manifest", [DAEMONSET, SIDECAR], ids=["daemonset", "sidecar"])
def test_a_policy_limits_who_reaches_the_monitor(manifest: dict[str, Any]) -> None:
    policy = POLICY if manifest is DAEMONSET else SIDECAR_POLICY
    monitor = containers(manifest)["monitor"]
    assert monitor["args"][:3] == ["serve", "--address", "0.0.0.0:10464"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [monitor["ports"][0]["name"]]
    assert all("namespaceSelector" in one for one in rule["from"])
    chosen = policy["spec"]["podSelector"].get("matchLabels", LABELS)
    assert chosen == LABELS  # kustomize adds them to the DaemonSet's


def with_token() -> tuple[dict[str, Any], str, str]:
    """What the component token makes of the DaemonSet; name and text of its configuration."""
    (component,) = documents(KUBERNETES / "token" / "kustomization.yaml")
    (patch,) = (yaml.safe_load(one["patch"]) for one in component["patches"])
    (generated,) = component["configMapGenerator"]
    return patch, generated["name"], (KUBERNETES / "token" / "web.yml").read_text()


@pytest.mark.parametrize(
    ("manifest", "name", "text"),
    [
        with_token(),
        (SIDECAR, SIDECAR_WEB["metadata"]["name"], SIDECAR_WEB["data"]["web.yml"]),
    ],
    ids=["daemonset", "sidecar"],
)
def test_requests_require_a_token_that_the_monitor_can_read(
    manifest: dict[str, Any], name: str, text: str, tmp_path: Path
) -> None:
    monitor = containers(manifest)["monitor"]
    assert "--insecure" not in monitor["args"]
    mounts = {one["name"]: one["mountPath"] for one in monitor["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(manifest)["volumes"]}
    assert {"web", "token"} <= mounts.keys() & volumes.keys()
    assert monitor["args"][-1] == f"{mounts['web']}/web.yml"
    assert volumes["token"]["secret"]["defaultMode"] == 0o444
    assert volumes["web"]["configMap"]["name"] == name
    (tmp_path / "token").write_text("0123456789abcdef")
    config = tmp_path / "web.yml"
    config.write_text(text.replace(mounts["token"], str(tmp_path)))
    assert ProtectionFiles(str(config), print).current.authenticates
    assert mounts["token"] in text
