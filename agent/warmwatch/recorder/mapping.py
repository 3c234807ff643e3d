"""Maps the slot into memory if that is safe, without an open descriptor.

A store into a file mapped from a disk can kill the process (SIGBUS) or block it: the disk is full,
shut down after an error or frozen for a snapshot, or the file is truncated or immutable. So the
slot is mapped on tmpfs only, where its blocks are allocated memory.

Before Python 3.13 ``mmap.mmap`` duplicates the descriptor and closes that number at the end, which
may be a file of the training by then.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

from warmwatch._guard import pass_on

_TMPFS = 0x01021994
_STATFS_BYTES = 256  # more than any struct statfs
# Filesystems on which a link may be followed on the training's thread: no network, no FUSE.
_SAFE = (
    *("btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs"),
    *("squashfs", "tmpfs", "xfs", "zfs"),
)
_MOST_LINKS = 40


def in_memory(path: str | os.PathLike[str]) -> bool:
    """Whether ``path``, or the nearest directory above it that exists, is on tmpfs."""
    return kind_of(path) == "tmpfs"


def kind_of(path: str | os.PathLike[str]) -> str:
    """The type of filesystem of ``path``, from the kernel's mount table; empty if unknown.

    Does not access the filesystem itself, which may hang.
    """
    try:
        kinds = _kinds(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
        return _kind(kinds, _followed(kinds, os.path.abspath(path)))  # noqa: PTH100
    except OSError as error:
        pass_on(error)
        return ""


def mapped(descriptor: int, size: int) -> mmap.mmap:
    """The file as shared memory, independent of its descriptor.

    Raises:
        OSError, ImportError, AttributeError: it cannot be mapped like this, or is not on tmpfs.
    """
    if not _is_tmpfs(descriptor):
        raise OSError("the slot is not in memory")
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, trackfd=False)
    return _mapped_over(descriptor, size)


def _kinds(mountinfo: str) -> dict[str, str]:
    """The type of filesystem at each mount point; the last mount covers earlier ones."""
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
    """``path`` with its links followed, as far as it stays on safe filesystems.

    It stops at the first other one, which is not tmpfs in any case.
    """
    text, rest, links = "/", path.split("/")[:0:-1], 0
    while rest and _kind(kinds, text) in _SAFE:
        name = rest.pop()
        if name in ("", ".", ".."):
            text = os.path.dirname(text) if name == ".." else text  # noqa: PTH120
            continue
        step = os.path.join(text, name)  # noqa: PTH118
        try:
            target = "" if _kind(kinds, step) not in _SAFE else os.readlink(step)  # noqa: PTH115
        except OSError as error:  # no link, or nothing there
            pass_on(error)
            target = ""
        if target and (links := links + 1) <= _MOST_LINKS:
            text = "/" if target.startswith("/") else text
            rest += target.split("/")[::-1]
        else:
            text = step
    return text


def _is_tmpfs(descriptor: int) -> bool:
    array = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    done = ctypes.CDLL(None).fstatfs(descriptor, array)
    return done == 0 and bool(array[0] == _TMPFS)


def _mapped_over(descriptor: int, size: int) -> mmap.mmap:
    """An anonymous ``mmap`` object with the file mapped over its memory; Python unmaps both."""
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
    value = call(address, size, access, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    if value != address:
        raise OSError(ctypes.get_errno(), "the slot cannot be mapped")
    return memory


_MAP_FIXED = 0x10  # of Linux, on every processor that PyTorch runs on
