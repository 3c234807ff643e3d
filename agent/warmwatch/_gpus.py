"""Which GPUs this process uses: the uuids of the devices on which it holds a context.

Asked at rare moments only, and only of what is there already: CUDA is never brought up, no context
is made on a device that has none, and nothing is synchronized.
"""

from __future__ import annotations

import sys
from typing import Any


def used() -> tuple[str, ...]:
    """The uuids, as ``GPU-...`` or ``MIG-...``, in the order of the process's own indices.

    Empty until CUDA is up, and where this PyTorch cannot say.
    """
    cuda, core = sys.modules.get("torch.cuda"), sys.modules.get("torch._C")
    if cuda is None or core is None or not cuda.is_initialized():
        return ()
    has_context = getattr(core, "_cuda_hasPrimaryContext", None)
    count = core._cuda_getDeviceCount()  # the module's own would load NVML first
    if has_context is None:
        devices = [cuda.current_device()]
    else:
        devices = [device for device in range(count) if has_context(device)]
    found = (spelled(cuda.get_device_properties(device)) for device in devices)
    return tuple(uuid for uuid in found if uuid)


def spelled(properties: Any) -> str:
    """A device's uuid with NVML's prefix, which CUDA leaves out; empty where there is none."""
    uuid = str(getattr(properties, "uuid", "")).lower()
    if not uuid or uuid.startswith(("gpu-", "mig-")):
        return uuid[:4].upper() + uuid[4:]
    return f"{'MIG' if ' MIG ' in properties.name else 'GPU'}-{uuid}"
