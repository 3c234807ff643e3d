"""A GPU that is none: the real Triton compiles for it, down to machine code, and launches nothing.

Imported by a training (``from support import gpu_driver``) before its first kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

# what Triton's own returns for a loaded kernel: 3.2 takes four numbers of it, others five
_LOADED = (0, 0, 16, 0) if triton.__version__ < "3.3" else (0, 0, 16, 0, 1024)


class _Utils:
    def load_binary(self, *_: Any) -> tuple[int, ...]:
        return _LOADED

    def unload_module(self, *_: Any) -> None:
        pass

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {"max_shared_mem": 1 << 20, "max_num_regs": 1 << 16, "warpSize": 32}


class _Launcher:
    def __init__(self, *_: Any) -> None:
        pass

    def __call__(self, *_: Any) -> None:
        pass


class _Driver:
    utils, launcher_cls = _Utils(), _Launcher

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 80, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        def bench(call: Any, **_: Any) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return bench


driver.set_active(_Driver())
