"""The slot as memory: where that is safe, and without a descriptor.

A store into a mapped file can kill the process (SIGBUS) or stop it where the file is on a disk: the
disk is full, shut down after an error, frozen for a snapshot, the file truncated or immutable. So a
slot is mapped on tmpfs only, where its blocks are memory that it has already.

The interpreter's ``mmap`` keeps a copy of the descriptor and closes that number in the end, which
by then may be a file of the training's own.
"""

from __future__ import annotations

import mmap
import os
import sys

_TMPFS = 0x01021994
_STATFS_BYTES = 256  # more than any struct statfs


def in_memory(path: str | os.PathLike[str]) -> bool:
    """Whether ``path``, or the nearest directory above it that exists, is on tmpfs."""
    return kind_of(path) == _TMPFS


def kind_of(path: str | os.PathLike[str]) -> int | None:
    """The filesystem's number in ``statfs``, of ``path`` or what exists above it; else ``None``."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # here: PyTorch has it, a process that never attaches need not

        found = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
        if ctypes.CDLL(None).statfs(os.fsencode(_existing(path)), found) != 0:
            return None
    except (ImportError, AttributeError, OSError):
        return None
    return int(found[0])


def mapped(descriptor: int, size: int) -> mmap.mmap:
    """The file as shared memory, which needs and closes no descriptor.

    Raises:
        OSError, ImportError, AttributeError: it cannot be mapped so here.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, trackfd=False)
    return _laid_over(descriptor, size)


def _laid_over(descriptor: int, size: int) -> mmap.mmap:
    """Memory of the interpreter's, with the file laid over it: it unmaps it as its own."""
    import ctypes

    memory = mmap.mmap(-1, size)
    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    access = mmap.PROT_READ | mmap.PROT_WRITE
    found = call(address, size, access, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    if found != address:
        raise OSError(ctypes.get_errno(), "the slot cannot be mapped")
    return memory


_MAP_FIXED = 0x10  # of Linux, on every processor that PyTorch runs on


def _existing(path: str | os.PathLike[str]) -> str:
    found = os.path.abspath(path)  # noqa: PTH100 - a link stays one
    while not os.path.lexists(found) and found != os.path.dirname(found):  # noqa: PTH120
        found = os.path.dirname(found)  # noqa: PTH120
    return found
