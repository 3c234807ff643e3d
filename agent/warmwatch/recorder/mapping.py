"""Maps the slot into memory, where that is safe, and keeps no descriptor open.

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
from pathlib import Path

from warmwatch._guard import pass_on

_TMPFS = 0x01021994
_STATFS_BYTES = 256  # more than any struct statfs
# Where a link may be followed in the training's own thread: nothing of a network, or of a process.
_HERE = (
    *("btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs"),
    *("squashfs", "tmpfs", "xfs", "zfs"),
)
_MOST_LINKS = 40


def in_memory(path: str | os.PathLike[str]) -> bool:
    """Whether ``path``, or the nearest directory above it that exists, is on tmpfs."""
    return kind_of(path) == "tmpfs"


def kind_of(path: str | os.PathLike[str]) -> str:
    """The kind of filesystem of ``path``, by the kernel's table of mounts; empty where unknown.

    The filesystem itself is not asked: it may be one that never answers.
    """
    try:
        kinds = _kinds(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        return _kind(kinds, _followed(kinds, os.path.abspath(path)))  # noqa: PTH100
    except OSError as error:
        pass_on(error)
        return ""


def mapped(descriptor: int, size: int) -> mmap.mmap:
    """The file as shared memory, which needs and closes no descriptor.

    Raises:
        OSError, ImportError, AttributeError: it cannot be mapped so here, or is not in memory.
    """
    if not _is_tmpfs(descriptor):
        raise OSError("the slot is not in memory")
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, trackfd=False)
    return _laid_over(descriptor, size)


def _kinds(mountinfo: str) -> dict[str, str]:
    """The kind of filesystem at each mount point; of several the last one, which covers them."""
    kinds = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode("utf-8", "surrogateescape")
        for octal, byte in (
            (b"\\040", b" "),
            (b"\\011", b"\t"),
            (b"\\012", b"\n"),
            (b"\\134", b"\\"),
        ):
            point = point.replace(octal, byte)
        kinds[os.fsdecode(point)] = after.partition(" ")[0]
    return kinds


def _kind(kinds: dict[str, str], path: str) -> str:
    while path not in kinds and path != "/":
        path = os.path.dirname(path)  # noqa: PTH120
    return kinds.get(path, "")


def _followed(kinds: dict[str, str], path: str) -> str:
    """``path`` with its links followed, as far as that asks none but a filesystem of this machine.

    It ends where another one begins, which is not in memory whatever comes below it.
    """
    found, rest, links = "/", path.split("/")[:0:-1], 0
    while rest and _kind(kinds, found) in _HERE:
        name = rest.pop()
        if name in ("", ".", ".."):
            found = os.path.dirname(found) if name == ".." else found  # noqa: PTH120
            continue
        step = os.path.join(found, name)  # noqa: PTH118
        try:
            target = "" if _kind(kinds, step) not in _HERE else os.readlink(step)  # noqa: PTH115
        except OSError as error:  # no link, or nothing there
            pass_on(error)
            target = ""
        if target and (links := links + 1) <= _MOST_LINKS:
            found = "/" if target.startswith("/") else found
            rest += target.split("/")[::-1]
        else:
            found = step
    return found


def _is_tmpfs(descriptor: int) -> bool:
    import ctypes  # here: PyTorch has it, a process that never attaches need not

    found = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    done = ctypes.CDLL(None).fstatfs(descriptor, found)
    return done == 0 and bool(found[0] == _TMPFS)


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
