"""What PyTorch reports about this process: GPUs in use, collective timeouts, number of
parameters.

Each value is read from objects that exist already. Nothing here imports or initializes anything.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from warmwatch._guard import report
from warmwatch.process.process_tree import own_group


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


BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl")
OTHER = "other"
_MOST_GROUPS = 64  # the default one is the first; thousands would cost too much to ask
_LONGEST = 1e9  # seconds: beyond it, never


def shortest_timeout() -> tuple[float, str] | None:
    """The shortest of its groups' in seconds, and of which backend; ``None`` where none is told."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not own_group():
        return None
    found: list[tuple[float, str]] = []
    with contextlib.suppress(AttributeError, RuntimeError, TypeError):  # another PyTorch's
        for group in tuple(module._world.pg_map)[:_MOST_GROUPS]:
            found.extend(_of(group))
    return min(found, default=None)


def _of(group: Any) -> list[tuple[float, str]]:
    """One for each kind of device; a backend that keeps no timeout tells none."""
    found = []
    for device in group._device_types:
        with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError):
            backend = group._get_backend(device)
            seconds, name = backend.options._timeout.total_seconds(), str(backend.name()).lower()
            if 0 < seconds < _LONGEST:
                found.append((float(seconds), name if name in BACKENDS else OTHER))
    return found


_TELL_NOTHING = frozenset({"FlatParameter", "Params4bit", "Int8Params"})
_FLATTENED = "_fsdp_flattened"  # FSDP1 marks with it what it shards: their type is ``Parameter``
_MOST = 1_000_000  # parameters looked at
_ABOVE = 1.1


class Parameters:
    """Adds up what it is shown. Used where a step is decided about, on the thread of the step."""

    def __init__(self) -> None:
        self._met: set[int] = set()
        self._held = 0
        self._compiled = 0
        self._untold = False

    def met(self, optimizer: Any, replaces: bool = False) -> None:
        """An optimizer is seen for the first time, or steps another group of its parameters.

        ``replaces``: it leads from now on. If it shares no parameter with the others, it may train
        another model, so the size is unknown from here on.
        """
        try:
            if not self._untold:
                self._untold = replaces and self._is_disjoint(optimizer)
                self._add(optimizer)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            self._untold = True
            report("parameters", error)

    def _is_disjoint(self, optimizer: Any) -> bool:
        groups = optimizer.param_groups
        return bool(self._met) and not any(
            id(parameter) in self._met for group in groups for parameter in group["params"]
        )

    def _add(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._met:
                    continue
                if _tells_nothing(parameter) or len(self._met) >= _MOST:
                    self._untold = True
                    return
                self._met.add(id(parameter))
                self._held += int(parameter.numel())

    def compiled(self, parameters: int) -> None:
        """A compiled graph has so many of them, frozen ones included."""
        self._compiled = max(self._compiled, parameters)

    @property
    def seen(self) -> int | None:
        """The model's parameters; ``None`` where that is not known."""
        if self._untold or not self._held or self._compiled > _ABOVE * self._held:
            return None
        return self._held


def _tells_nothing(parameter: Any) -> bool:
    return type(parameter).__name__ in _TELL_NOTHING or getattr(parameter, _FLATTENED, False)
