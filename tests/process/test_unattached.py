"""A real training without the agent, found by a real daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.daemon import daemon_process
from support.records import wait_until
from support.trainings import training

# PyTorch's own pool, as a GPU's kernels are compiled in it, with work for one of its two workers
# until the test has seen enough: on a CPU, Inductor starts its compilers from the main process.
TRAIN = """
import math
from pathlib import Path
from torch._inductor.async_compile import AsyncCompile

pool = AsyncCompile.process_pool()
while not Path("enough").exists():
    pool.submit(math.factorial, 60_000).result()
gate("compiled")
"""


def counted(url: str) -> float:
    """The number of processes in /metrics that are likely to compile."""
    with urlopen(f"{url}/metrics", timeout=60) as reply:
        text = reply.read().decode()
    _, _, rest = text.partition('warmwatch_observed_processes{likely_compiling="true"} ')
    return float(rest.split("\n")[0])


def observed(url: str) -> list[dict[str, Any]]:
    with urlopen(f"{url}/status", timeout=60) as reply:
        return list(json.load(reply)["observed"])


@pytest.mark.long
def test_a_training_without_the_agent_is_reported_while_its_workers_compile(tmp_path: Path) -> None:
    """Likely to compile while they do; no longer when they are idle; never among the runs."""
    records = tmp_path / "records"
    records.mkdir()
    env = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
        "TORCHINDUCTOR_WORKER_START": "subprocess",
    }
    options = ("--dir", str(records), "--gpu-interval", "off")
    with (
        daemon_process(*options, WARMWATCH_OBSERVE="on") as (_, url),
        training(records, TRAIN, attach=False, env=env, fresh=True) as run,
    ):

        def seen() -> dict[str, Any]:
            return next((one for one in observed(url) if one["pid"] == run.pid), {})

        looks: list[dict[str, Any]] = []

        def likely() -> bool:
            looks.append(seen())
            return looks[-1].get("likely_compiling") is True

        wait_until(likely)
        assert looks[-1]["workers"]["busy"] > 0
        (tmp_path / "enough").touch()
        run.reach("compiled")
        wait_until(lambda: seen().get("likely_compiling") is None)
        with urlopen(f"{url}/status", timeout=60) as reply:
            assert json.load(reply)["runs"] == []
        # others may train on this machine: what is counted is what /status lists
        wait_until(lambda: counted(url) == len([o for o in observed(url) if o["likely_compiling"]]))
