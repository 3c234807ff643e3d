"""What PyTorch reports of this process: GPUs, process groups, versions, number of parameters.

Each value is read from objects that exist already. Nothing here imports or initializes anything.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any
from weakref import ReferenceType, ref

from warmwatch._guard import report
from warmwatch.shared.loaded import loaded
from warmwatch.shared.values import MOST_RANKS


def gpus_in_use() -> tuple[str, ...]:
    """UUIDs of the GPUs that this process uses, ``GPU-...`` or ``MIG-...``, by its device index.

    Empty until CUDA is initialized, and if this PyTorch version does not report them.
    """
    cuda, core = sys.modules.get("torch.cuda"), sys.modules.get("torch._C")
    if cuda is None or core is None or not cuda.is_initialized():
        return ()
    has_context = getattr(core, "_cuda_hasPrimaryContext", None)
    count = core._cuda_getDeviceCount()  # torch.cuda.device_count() would load NVML
    if has_context is None:
        devices = [cuda.current_device()]
    else:
        devices = [device for device in range(count) if has_context(device)]
    generator = (uuid_of(cuda.get_device_properties(device)) for device in devices)
    return tuple(uuid for uuid in generator if uuid)


def uuid_of(properties: Any) -> str:
    """UUID of a device with NVML's prefix, which CUDA leaves out; empty if there is none."""
    uuid = str(getattr(properties, "uuid", "")).lower()
    if not uuid or uuid.startswith(("gpu-", "mig-")):
        return uuid[:4].upper() + uuid[4:]
    return f"{'MIG' if ' MIG ' in properties.name else 'GPU'}-{uuid}"


_parents_group: ReferenceType[Any] | None = None  # at the time of the fork


def own_group() -> bool:
    """Whether this process, not the one that forked it, initialized a process group."""
    group = _initialized_group()
    return group is not None and (_parents_group is None or group is not _parents_group())


def inherit_group() -> None:
    """In a forked child: the group that is initialized now is the parent's."""
    global _parents_group
    group = _initialized_group()
    _parents_group = None if group is None else ref(group)


def _initialized_group() -> object:
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module.group.WORLD


def distributed() -> tuple[int, int] | None:
    """Rank and world size of the process group that this process initialized.

    ``None`` for sizes that no reader accepts, such as those of a simulated process group.
    """
    if not own_group():
        return None
    module = sys.modules["torch.distributed"]
    rank, world_size = module.get_rank(), module.get_world_size()
    return (rank, world_size) if 0 <= rank <= world_size <= MOST_RANKS else None


def has_peers() -> bool:
    """Whether it is a rank of several: it may hang in a collective before its first step."""
    member = distributed()
    return member is not None and member[1] > 1


BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl")
OTHER = "other"
_MOST_GROUPS = 64  # the default group is the first; reading thousands would take too long
_LONGEST = 1e9  # seconds; a longer timeout means never


def shortest_timeout() -> tuple[float, str] | None:
    """Shortest timeout of the process groups in seconds, and its backend; ``None`` if unknown."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not own_group():
        return None
    pairs: list[tuple[float, str]] = []
    with contextlib.suppress(AttributeError, RuntimeError, TypeError):  # private API, may differ
        for group in tuple(module._world.pg_map)[:_MOST_GROUPS]:
            pairs.extend(_timeouts(group))
    return min(pairs, default=None)


def _timeouts(group: Any) -> list[tuple[float, str]]:
    """Timeout and backend of a group for each device type; not all backends have a timeout."""
    result = []
    for device in group._device_types:
        with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError):
            backend = group._get_backend(device)
            seconds, name = backend.options._timeout.total_seconds(), str(backend.name()).lower()
            if 0 < seconds < _LONGEST:
                result.append((float(seconds), name if name in BACKENDS else OTHER))
    return result


_MOST_THREADS = 1_000_000


def versions() -> dict[str, Any]:
    """Identity fields from modules that are imported: CUDA, Triton, compile threads."""
    threads = getattr(sys.modules.get("torch._inductor.config"), "compile_threads", None)
    valid = type(threads) is int and 0 <= threads <= _MOST_THREADS
    return {
        "cuda": _text(sys.modules.get("torch.version"), "cuda"),
        "triton": _text(loaded("triton"), "__version__"),
        "compile_threads": threads if valid else None,
    }


def _text(module: object, name: str) -> str:
    value = getattr(module, name, None)
    return value if isinstance(value, str) else ""


# Types whose ``numel()`` is not the number of model parameters: sharded, packed or quantized.
_OPAQUE = frozenset({"FlatParameter", "Params4bit", "Int8Params"})
_FLATTENED = "_fsdp_flattened"  # set by FSDP1 on sharded parameters of the type ``Parameter``
_MOST_COUNTED = 1_000_000  # parameter tensors; with more, the number is unknown
# A compiled graph with more than this many times the optimizers' parameters has frozen ones.
_TIMES_COUNTED = 1.1


class Parameters:
    """Counts model parameters. The step source calls it, on the thread of the step."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        self._held = 0
        self._compiled = 0
        self._unknown = False

    def add_optimizer(self, optimizer: Any, replaces: bool = False) -> None:
        """Count an optimizer's parameters: at its first step, or for another parameter group.

        ``replaces``: its calls are the steps from now on. If it shares no parameter with the
        others, it may train another model. Then the number stays unknown.
        """
        try:
            if not self._unknown:
                self._unknown = replaces and self._is_disjoint(optimizer)
                self._count(optimizer)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            self._unknown = True
            report("parameters", error)

    def _is_disjoint(self, optimizer: Any) -> bool:
        groups = optimizer.param_groups
        return bool(self._counted) and not any(
            id(parameter) in self._counted for group in groups for parameter in group["params"]
        )

    def _count(self, optimizer: Any) -> None:
        # a tensor subclass or a mode of the program would see each call
        with sys.modules["torch"]._C.DisableTorchFunction():
            for parameter in (each for group in optimizer.param_groups for each in group["params"]):
                if id(parameter) in self._counted:
                    continue
                if _is_opaque(parameter) or len(self._counted) >= _MOST_COUNTED:
                    self._unknown = True
                    return
                self._counted.add(id(parameter))
                self._held += int(parameter.numel())

    def add_graph(self, parameters: int) -> None:
        """Note the number of parameters of a compiled graph, frozen ones included."""
        self._compiled = max(self._compiled, parameters)

    @property
    def total(self) -> int | None:
        """Number of the model's parameters; ``None`` if unknown."""
        if self._unknown or not self._held or self._compiled > _TIMES_COUNTED * self._held:
            return None
        return self._held


def _is_opaque(parameter: Any) -> bool:
    return type(parameter).__name__ in _OPAQUE or getattr(parameter, _FLATTENED, False)
