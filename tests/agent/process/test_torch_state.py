"""GPUs, process groups and versions from PyTorch. `tests/gpu/own_gpus.py` tests real GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.trainings import environment
from warmwatch import _guard
from warmwatch.process import torch_state
from warmwatch.process.torch_state import Parameters
from warmwatch.shared.values import MOST_RANKS

BARE = ("71d7ab00-0000-4000-8000-000000000000", "71D7AB00-0000-4000-8000-000000000001")


class Cuda:
    """Two devices; asking anything that would bring CUDA up fails the test."""

    def __init__(self, *, up: bool, contexts: set[int], names: tuple[str, str]) -> None:
        self._up, self.contexts, self._names = up, contexts, names

    def is_initialized(self) -> bool:
        return self._up

    def current_device(self) -> int:
        assert self._up, "this would bring CUDA up"
        return 1

    def get_device_properties(self, device: int) -> Any:
        assert self._up, "this would bring CUDA up"
        return SimpleNamespace(uuid=BARE[device], name=self._names[device])


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put such a torch in the place of the real one."""

    def put(
        *,
        up: bool = True,
        contexts: set[int] | None = None,
        names: tuple[str, str] = ("NVIDIA H100", "NVIDIA H100"),
        knows_contexts: bool = True,
    ) -> None:
        cuda = Cuda(up=up, contexts={0} if contexts is None else contexts, names=names)
        core = SimpleNamespace(_cuda_getDeviceCount=lambda: 2)
        if knows_contexts:
            core._cuda_hasPrimaryContext = lambda device: device in cuda.contexts
        monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
        monkeypatch.setitem(sys.modules, "torch._C", core)

    return put


def test_no_device_is_read_before_cuda_is_initialized(put: Any) -> None:
    put(up=False)
    assert torch_state.gpus_in_use() == ()


def test_without_readable_contexts_it_is_the_current_device(put: Any) -> None:
    put(knows_contexts=False)
    assert torch_state.gpus_in_use() == ("GPU-71d7ab00-0000-4000-8000-000000000001",)


def test_a_mig_device_is_spelled_as_nvml_does(put: Any) -> None:
    put(names=("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H100"))
    assert torch_state.gpus_in_use() == ("MIG-71d7ab00-0000-4000-8000-000000000000",)


def test_a_uuid_with_a_prefix_retains_it() -> None:
    one = SimpleNamespace(uuid="GPU-ABC", name="NVIDIA H100")
    assert torch_state.uuid_of(one) == "GPU-abc"
    assert torch_state.uuid_of(SimpleNamespace(name="an older PyTorch's")) == ""


def test_a_process_group_above_the_readers_limit_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"rank": 3, "size": MOST_RANKS}
    group = SimpleNamespace(get_rank=lambda: sizes["rank"], get_world_size=lambda: sizes["size"])
    monkeypatch.setattr(torch_state, "own_group", lambda: True)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert torch_state.distributed() == (3, MOST_RANKS)
    sizes["size"] = MOST_RANKS + 1
    assert torch_state.distributed() is None


# The timeouts of a process's collectives: read if there are any, without starting a group


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


# The size of the model, from the parameters that its optimizers hold


def sgd(*sizes: int) -> object:
    import torch  # here and below: by the worker that runs these, not by each that collects them

    return torch.optim.SGD([torch.nn.Parameter(torch.ones(size)) for size in sizes])


def counted(*optimizers: object, compiled: Iterable[int] = ()) -> int | None:
    parameters = Parameters()
    for optimizer in optimizers:
        parameters.add_optimizer(optimizer)
    for number in compiled:
        parameters.add_graph(number)
    return parameters.total


def test_parameters_of_all_optimizers_are_added_and_each_counts_once() -> None:
    first, second = sgd(3, 4), sgd(5)
    assert counted(first) == 7
    assert counted(first, second, first) == 12
    assert counted() is None


def test_a_count_below_that_of_the_compiled_graph_is_unknown() -> None:
    """With LoRA, the adapters alone are a hundredth of the model."""
    assert counted(sgd(10), compiled=[1000]) is None
    assert counted(sgd(10), compiled=[4, 10]) == 10  # compiled in parts


def test_a_sharded_parameter_makes_the_count_unknown() -> None:
    import torch

    class FlatParameter(torch.nn.Parameter):
        """As FSDP1 has them: this process's part."""

    assert counted(torch.optim.SGD([FlatParameter(torch.ones(3))])) is None


def test_an_unreadable_optimizer_is_a_counted_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(_guard, "_sink", lambda where, _error: reported.append(where))
    strange = type("Strange", (), {"param_groups": [{"params": [object()]}]})()
    assert counted(sgd(3), strange) is None
    assert reported == ["parameters"]
