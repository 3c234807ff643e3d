"""The manifests, rendered from the chart or written for trainings, against the API's schemas."""

from __future__ import annotations

import json
from typing import Any

import kubernetes_validate
import pytest

from support.deployment import KUBERNETES, documents, instructions, rendered
from warmwatch.shared.deployment import LABELS as LABEL_OF

CHART = rendered({"podMonitor": {"enabled": True}})
DAEMONSET, POLICY = CHART["DaemonSet"], CHART["NetworkPolicy"]
SIDECAR, SIDECAR_POLICY = documents(KUBERNETES / "sidecar.yaml")
(TRAINING,) = documents(KUBERNETES / "training.yaml")
RUN = "WARMWATCH_RUN"
LABELS = {"app.kubernetes.io/name": "warmwatch"}


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def containers(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = pod(manifest)
    return {one["name"]: one for one in (*spec.get("initContainers", ()), *spec["containers"])}


def validate(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("manifest", [SIDECAR, SIDECAR_POLICY, TRAINING])
def test_the_api_accepts_each_manifest(manifest: dict[str, Any]) -> None:
    validate(manifest)


def test_a_manifest_with_a_misspelt_field_would_be_refused() -> None:
    wrong = json.loads(json.dumps(TRAINING).replace("backoffLimit", "backofLimit"))
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong)


def test_the_podmonitor_finds_the_daemonset_by_label_and_the_port_by_name() -> None:
    monitor = CHART["PodMonitor"]
    assert monitor["spec"]["selector"]["matchLabels"] == LABELS
    selector = DAEMONSET["spec"]["selector"]["matchLabels"]
    assert selector == {**LABELS, "app.kubernetes.io/instance": "warmwatch"}
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
    records = {"name": "records", "mountPath": "/run/warmwatch", "readOnly": True}
    assert any(records.items() <= mount.items() for mount in mounts)
    assert [mount["name"] for mount in mounts if not mount.get("readOnly")] == ["socket"]
    place = next(one["mountPath"] for one in mounts if one["name"] == "socket")
    environment = {one["name"]: one.get("value") for one in monitor["env"]}
    assert environment["WARMWATCH_SOCKET"] == f"{place}/socket"
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
    made = pod(DAEMONSET)["volumes"][0]
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
    (job,) = documents(KUBERNETES / "pytorchjob.yaml")
    (jobset,) = documents(KUBERNETES / "jobset.yaml")
    runtime, trainjob = documents(KUBERNETES / "trainjob.yaml")
    reference = trainjob["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == (runtime["kind"], runtime["metadata"]["name"])
    sets = [jobset["spec"], runtime["spec"]["template"]["spec"]]
    pods = [
        *(one["template"]["spec"] for one in job["spec"]["pytorchReplicaSpecs"].values()),
        *(pod(one["template"]) for jobs in sets for one in jobs["replicatedJobs"]),
    ]
    assert len(pods) == 4
    for spec in pods:
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
        assert spec["volumes"] == pod(TRAINING)["volumes"]
        (training,) = spec["containers"]
        assert training["volumeMounts"] == containers(TRAINING)["training"]["volumeMounts"]
        assert {"name": "WARMWATCH_DIR", "value": "/run/warmwatch"} in training["env"]
        assert {one["name"] for one in training["env"]} >= {"POD_NAMESPACE", "POD_NAME"}
        assert {one["name"] for one in training["env"]} <= {*LABEL_OF, "WARMWATCH_DIR", RUN}


@pytest.mark.parametrize("manifest", [DAEMONSET, SIDECAR], ids=["daemonset", "sidecar"])
def test_a_policy_limits_who_reaches_the_monitor(manifest: dict[str, Any]) -> None:
    policy = POLICY if manifest is DAEMONSET else SIDECAR_POLICY
    monitor = containers(manifest)["monitor"]
    assert monitor["args"][:3] == ["serve", "--address", "0.0.0.0:10464"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [monitor["ports"][0]["name"]]
    assert all("namespaceSelector" in one for one in rule["from"])
    assert policy["spec"]["podSelector"]["matchLabels"].items() >= LABELS.items()


@pytest.mark.parametrize("manifest", [DAEMONSET, SIDECAR], ids=["daemonset", "sidecar"])
def test_requests_require_a_token_that_the_monitor_can_read(manifest: dict[str, Any]) -> None:
    monitor = containers(manifest)["monitor"]
    assert "--insecure" not in monitor["args"]
    mounts = {one["name"]: one["mountPath"] for one in monitor["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(manifest)["volumes"]}
    assert monitor["args"][-2:] == ["--token-file", f"{mounts['token']}/token"]
    assert volumes["token"]["secret"]["defaultMode"] == 0o444
