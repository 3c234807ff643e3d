"""The names of a rank join with other exporters, and route its alerts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.promtool import World

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "prometheus-and-grafana.md"


def joins() -> list[str]:
    """The queries of the page's section about other exporters."""
    section = PAGE.read_text().partition("## Join with other exporters")[2].partition("\n## ")[0]
    return re.findall(r"```promql\n(.*?)```", section, re.DOTALL)


def test_the_joins_of_the_page_find_the_names_of_other_exporters() -> None:
    world = World(3)
    pod = {"namespace": "research", "pod": "gpt2-0", "node": "n1"}
    job = {"slurm_job": "42", "slurm_account": "physics"}
    world.daemon("a").rank(states=[(0, "compiling")], names=pod, gpu="GPU-1")
    world.daemon("b").rank(states=[(0, "compiling")], rank=1, names=job, gpu="GPU-2")
    world.add("kube_pod_labels", 1, namespace="research", pod="gpt2-0", label_team="vision")
    world.add("kube_pod_labels", 1, namespace="other", pod="gpt2-0", label_team="none")
    for uuid, watts in (("GPU-1", 700.0), ("GPU-2", 300.0), ("GPU-3", 100.0)):
        world.add("DCGM_FI_DEV_POWER_USAGE", watts, UUID=uuid, gpu="0", Hostname="n1")
    world.add("slurm_account_jobs_pending", 7, account="physics", job="slurm")
    world.add("slurm_account_jobs_pending", 7, account="chemistry", job="slurm")
    rank = {"run": "gpt2", "rank": "0", "namespace": "research", "pod": "gpt2-0"}
    assert world.samples(*((one, 2) for one in joins())) == [
        [({**rank, "label_team": "vision"}, 1)],
        [({"run": "gpt2"}, 1000)],
        [({"run": "gpt2", "slurm_job": "42", "account": "physics"}, 7)],
    ]


def test_an_alert_of_a_run_has_its_owner_and_namespace() -> None:
    world = World(20)
    for instance, rank in (("a", 0), ("b", 1)):
        names = {"namespace": "research", "pod": f"gpt2-{rank}"}
        world.daemon(instance).rank("gpt2", rank, [(0, "warm"), (60, "stalled")], names=names)
    ((labels, _),) = world.notified(["WarmwatchStalledLong"], 15)["WarmwatchStalledLong"]
    assert (labels["owner"], labels["namespace"]) == ("ada", "research")
    assert not {"pod", "rank", "instance"} & labels.keys()
