"""Losses of a training, for ``warmwatch modes``: each scalar that is passed to ``backward()``.

Installed only if ``WARMWATCH_LOSSES`` names a folder, which only that command sets. Each process
with a rank writes one file there (``shared/record/loss_file.py``). ``Tensor.backward``
and most frameworks call ``torch.autograd.backward``, which PyTorch looks up at each call. A loss
that ``GradScaler`` has scaled is recorded as it was before.

Nothing synchronizes. The file is memory mapped. A loss on the CPU is stored there directly. One on
a CUDA device is copied to pinned memory by its stream, and stored at a later pass, once it has
arrived. So the losses outlast the process, however it ends, except for the last ones on a device.
Losses on other devices, of tensor subclasses, and those captured in a CUDA graph of the program are
not recorded. (A mapping that is registered with CUDA would need no second copy. But registering
fails for files on a disk, and CUDA then reports that error to the program's next call.)

Dynamo traces the originals (``_torchdynamo_inline``), so graphs and graph breaks stay the same.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.dynamo.guard_cost import GuardCost
from warmwatch.hooks.points import Install, Installed, Listener, Replaced, look_up, untraced
from warmwatch.shared.record.loss_file import MOST_ROWS, ROW, SIZE, STEP, UNUSED_ROW, name_of


def recording(folder: str, rank: Callable[[], int | None], steps: Callable[[], int]) -> Install:
    """The install function. ``rank``, ``steps``: of this process, and marked so far."""
    return partial(_install, folder, rank, steps)


def _install(
    folder: str,
    rank: Callable[[], int | None],
    steps: Callable[[], int],
    listener: Listener,  # noqa: ARG001 - as every install
) -> Installed:
    with look_up():
        import torch

        backward, scale = torch.autograd.backward, torch.amp.GradScaler.scale
        _ = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch
    losses = _Losses(torch, Path(folder), rank, steps)

    @functools.wraps(backward, updated=())
    def record_loss(*args: Any, **kwargs: Any) -> Any:
        untraced("hooks.losses", losses.take, args, kwargs)
        return backward(*args, **kwargs)

    @functools.wraps(scale, updated=())
    def record_scale(scaler: Any, outputs: Any) -> Any:
        result = scale(scaler, outputs)
        untraced("hooks.losses", losses.scaled, outputs, result)
        return result

    replaced = Replaced()

    def uninstall() -> None:
        losses.stop()
        replaced.undo()

    replaced.put(torch.autograd, "backward", record_loss)
    replaced.put(torch.amp.GradScaler, "scale", record_scale)
    return Installed(uninstall=uninstall)


class _Losses:
    """The file of this process; a forked child opens its own."""

    def __init__(
        self, torch: Any, folder: Path, rank: Callable[[], int | None], steps: Callable[[], int]
    ) -> None:
        self._torch, self._folder, self._rank, self._steps = torch, folder, rank, steps
        self._recording = True
        self._pid, self._known = -1, False
        self._guards: GuardCost | None = None
        self._pinned: _Pinned | None = None
        # the autograd node of a scaled loss, by its number, and a copy of the loss before
        self._unscaled: tuple[int, Any] | None = None

    def stop(self) -> None:
        self._recording = False
        if self._guards is not None:
            quietly("hooks.losses", self._guards.stop)

    @contextmanager
    def _without_modes(self) -> Iterator[None]:
        """A ``TorchDispatchMode`` of the program sees no operation of the agent."""
        with self._torch._C.DisableTorchFunction(), self._torch._C._DisableTorchDispatch():
            yield

    def scaled(self, outputs: Any, result: Any) -> None:
        """Remember the loss that ``result`` is a multiple of.

        Not by a reference, weak or strong: ``torch.utils.swap_tensors`` refuses a tensor that has a
        weak reference, and a CUDA graph's output that stays alive may make PyTorch record again.
        """
        plain = self._torch.Tensor
        if not self._recording or type(result) is not plain or type(outputs) is not plain:
            return
        self._unscaled = None
        with self._without_modes():
            if _is_loss(outputs) and result.grad_fn is not None and not self._captures(outputs):
                self._unscaled = result.grad_fn._sequence_nr(), outputs.detach().clone()

    def _captures(self, loss: Any) -> bool:
        """Whether a CUDA graph of the program is being captured, which must not contain a copy."""
        return bool(loss.device.type == "cuda" and self._torch.cuda.is_current_stream_capturing())

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the loss of a call of ``torch.autograd.backward``, if it is one scalar."""
        loss: Any = args[0] if args else kwargs.get("tensors")
        gradients = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        if isinstance(loss, (tuple, list)) and len(loss) == 1:
            (loss,) = loss
        if not self._recording or gradients is not None or type(loss) is not self._torch.Tensor:
            return
        with self._without_modes():
            self._record(loss)
        if self._guards is not None and self._pid == os.getpid():
            self._guards.passed(self._steps())

    def _record(self, loss: Any) -> None:
        if not _is_loss(loss):
            return
        unscaled, self._unscaled = self._unscaled, None
        node = loss.grad_fn
        if unscaled is not None and node is not None and unscaled[0] == node._sequence_nr():
            loss = unscaled[1]
        self._store(loss.detach())

    def _store(self, loss: Any) -> None:
        device = loss.device.type
        if device not in ("cpu", "cuda") or self._captures(loss) or not self._is_open():
            return
        row = next(self._rows)
        if row >= MOST_ROWS:
            return
        step = self._steps() + 1
        if device == "cpu":
            ROW.pack_into(self._mapping, row * ROW.size, step, loss.item())
            return
        if self._pinned is None:
            self._pinned = _Pinned(self._torch, self._mapping)
        self._pinned.copy(row, loss)
        STEP.pack_into(self._mapping, row * ROW.size, step)

    def _is_open(self) -> bool:
        """Whether this process has a file. Only ranks have one."""
        if self._pid == os.getpid():
            return self._known
        self._pid, self._known = os.getpid(), False
        self._pinned = self._guards = None
        rank = self._rank()
        if rank is None:
            return False
        path = self._folder / name_of(rank, self._pid)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)  # a full disk must not kill us later
            self._mapping = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self._mapping[:] = UNUSED_ROW * MOST_ROWS
        self._rows = itertools.count()
        self._guards = GuardCost(self._torch, self._folder, path.stem)
        self._known = True
        return True


def _is_loss(tensor: Any) -> bool:
    return bool(tensor.numel() == 1 and tensor.is_floating_point())


class _Pinned:
    """Pinned memory in which losses arrive from a device, and the rows that wait for them."""

    def __init__(self, torch: Any, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        unused = bytearray(UNUSED_ROW[STEP.size :] * MOST_ROWS)
        self._arriving = torch.frombuffer(unused, dtype=torch.float64).pin_memory()
        address = self._arriving.data_ptr()
        self._bytes = memoryview((ctypes.c_char * len(unused)).from_address(address)).cast("B")
        self._waiting: collections.deque[int] = collections.deque()

    def copy(self, row: int, loss: Any) -> None:
        """Let the stream copy ``loss``; store those that have arrived."""
        self._arriving[row].copy_(loss.reshape(()), non_blocking=True)
        self._waiting.append(row)
        empty = UNUSED_ROW[STEP.size :]
        while self._waiting:
            row = self._waiting[0]
            arrived = bytes(self._bytes[row * len(empty) : (row + 1) * len(empty)])
            if arrived == empty:
                return
            at = row * ROW.size + STEP.size
            self._mapping[at : at + len(empty)] = arrived
            self._waiting.popleft()
