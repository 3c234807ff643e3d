"""GPUs, process groups and versions from PyTorch. `tests/gpu/own_gpus.py` tests real GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from warmwatch.process import torch_state
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
