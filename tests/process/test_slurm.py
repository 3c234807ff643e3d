"""Under a real Slurm of one node: tasks are ranks, a step is a start, and ends pass through."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import slots, slurm
from support.trainings import PRELUDE, environment

pytestmark = [
    pytest.mark.long,  # a cluster has to come up
    pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing()),
]

RUN = [sys.executable, "-m", "warmwatch_monitor"]
TRAIN = f"""
import os, sys
{PRELUDE}
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(torch.compile(model, backend="eager"), o, int(sys.argv[1]))
if len(sys.argv) > 3:  # until the other lives too
    open(sys.argv[3] + sys.argv[1], "w")
    import time
    while not os.path.exists(sys.argv[3] + sys.argv[4]): time.sleep(.05)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as env:
        yield env


@pytest.fixture
def train(records: Path) -> list[str]:
    script = records.parent / "train.py"
    script.write_text(TRAIN)
    return [sys.executable, str(script)]


def run(records: Path, cluster: dict[str, str]) -> dict[str, Any]:
    command = [*RUN, "status", "--json", "--dir", str(records)]
    done = subprocess.run(command, env=environment(records), capture_output=True, check=False)
    (only,) = json.loads(done.stdout)["runs"]
    return dict(only)


@pytest.mark.parametrize("above", [True, False])
def test_each_task_is_a_rank_and_its_exit_code_passes(
    records: Path, cluster: dict[str, str], train: list[str], above: bool
) -> None:
    srun, attach = ["srun", "--job-name=named", "-n", "2"], [*RUN, "run", "--"]
    command = [*attach, *srun, *train] if above else [*srun, *attach, *train]
    env = environment(records, **cluster)
    done = subprocess.run([*command, "4", "7"], env=env, check=False, capture_output=True)
    assert done.returncode == 7
    found = [slots.read(one) for one in slots.folders(records)]
    assert sorted(one.identity.rank for one in found) == [0, 1]
    assert {one.identity.world_size for one in found} == {2}
    (name,) = {one.identity.run for one in found}
    assert name.startswith("named-")
    assert run(records, cluster)["state"] == "failed"


def test_the_last_training_of_a_batch_script_decides_how_the_run_ended(
    records: Path, cluster: dict[str, str], train: list[str]
) -> None:
    line = " ".join([*RUN, "run", "--", "srun", "-n", "2", *train, "4", "7"])
    line += "; " + " ".join([*RUN, "run", "--", *train, "5", "0"])
    batch(records, cluster, line)
    last = run(records, cluster)
    assert (last["state"], [rank["steps"] for rank in last["ranks"]]) == ("finished", [5])


def test_two_concurrent_trainings_of_a_batch_script_are_two_launches(
    records: Path, cluster: dict[str, str], train: list[str]
) -> None:
    command = " ".join([*RUN, "run", "--", *train])
    met = f"{records.parent}/met-"
    batch(records, cluster, f"{command} 4 0 {met} 5 & {command} 5 0 {met} 4 & wait")
    found = [slots.read(one).identity for one in slots.folders(records)]
    assert len(found) == len({one.launch for one in found}) == 2


def batch(records: Path, cluster: dict[str, str], line: str) -> None:
    command = ["sbatch", "--wait", "-n", "2", "--output", f"{records.parent}/out", "--wrap", line]
    env = environment(records, **cluster)
    subprocess.run(command, env=env, check=False, capture_output=True)
