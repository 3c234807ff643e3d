"""The timeouts of a process's collectives: read if there are any, without starting a group."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.trainings import environment

GROUPS = """
import json, sys
from datetime import timedelta
from warmwatch.process.torch_state import shortest_timeout
found = [shortest_timeout()]
assert "torch" not in sys.modules
import torch.distributed as dist
found.append(shortest_timeout())
dist.init_process_group(
    "gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=321)
)
found.append(shortest_timeout())
group = dist.new_group([0], timeout=timedelta(seconds=77.5))
found.append(shortest_timeout())
dist.distributed_c10d._set_pg_timeout(timedelta(seconds=55))
found.append(shortest_timeout())
class Unknown:
    @property
    def options(self): raise AttributeError("another PyTorch keeps it elsewhere")
for one in dist.distributed_c10d._world.pg_map:
    type(one)._get_backend = lambda *_: Unknown()
found.append(shortest_timeout())
dist.destroy_process_group()
found.append(shortest_timeout())
print(json.dumps(found))
"""


def reported(tmp_path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GROUPS],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # gloo of 2.8 prints, too


@pytest.mark.slow
def test_the_shortest_timeout_of_the_groups_is_reported(tmp_path: Path) -> None:
    one, both, later = [321.0, "gloo"], [77.5, "gloo"], [55.0, "gloo"]
    assert reported(tmp_path) == [None, None, one, both, later, None, None]
