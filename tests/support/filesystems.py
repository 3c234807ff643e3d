"""Real filesystems of a test's own, and what can befall them. It takes root and loop devices."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# where files are in memory; None: wherever temporary ones are
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
_MIB = {"ext4": 64, "xfs": 320, "btrfs": 160}
_MAKE = {"ext4": ["-q"], "xfs": ["-q"], "btrfs": ["-q"]}
KINDS = (*_MIB, "overlay", "tmpfs")
_SHUTDOWN = 0x8004587D  # XFS_IOC_GOINGDOWN, which ext4 supports too
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10


class NotHereError(Exception):
    """This machine, or this filesystem, cannot do it."""


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """A filesystem. ``below``: the one whose disk it is: itself, unless it is an overlay."""

    kind: str
    place: Path
    below: Path


@contextmanager
def mounted(kind: str) -> Iterator[Mounted]:
    """A filesystem of this kind, empty and small.

    Raises:
        NotHereError: it cannot be had here.
    """
    if os.geteuid() != 0:
        raise NotHereError("only root can mount")
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        top = Path(made)
        top.chmod(0o755)
        if kind == "overlay":
            below = _mount(stack, top / "below", *_disk(top, "ext4"))
            for name in ("lower", "upper", "work"):
                (below / name).mkdir()
            parts = ",".join(
                f"{option}={below / name}"
                for option, name in (
                    ("lowerdir", "lower"),
                    ("upperdir", "upper"),
                    ("workdir", "work"),
                )
            )
            place = _mount(stack, top / "place", "-t", "overlay", "-o", parts, "overlay")
        elif kind == "tmpfs":
            place = below = _mount(stack, top / "place", "-t", "tmpfs", "-o", "size=64m", "tmpfs")
        else:
            place = below = _mount(stack, top / "place", *_disk(top, kind))
        records = place / "records"
        records.mkdir()
        records.chmod(0o1777)
        yield Mounted(kind=kind, place=place, below=below)


def _disk(top: Path, kind: str) -> tuple[str, ...]:
    if shutil.which(f"mkfs.{kind}") is None:
        raise NotHereError(f"no mkfs.{kind}")
    image = top / "image"
    with image.open("wb") as file:
        file.truncate(_MIB[kind] << 20)
    subprocess.run([f"mkfs.{kind}", *_MAKE[kind], image], check=True, capture_output=True)
    return ("-t", kind, "-o", "loop", str(image))


def _mount(stack: contextlib.ExitStack, place: Path, *arguments: str) -> Path:
    place.mkdir()
    done = subprocess.run(["mount", *arguments, place], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotHereError(done.stderr.strip())
    stack.callback(subprocess.run, ["umount", "--lazy", place], check=False)
    return place


# What befalls it, by name: each a context, at whose end it is over, where that is possible.


@contextmanager
def full(disk: Mounted, _slot: Path) -> Iterator[None]:
    """Not a block is left."""
    filler = disk.below / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(os.urandom(size))
                        if size == 1 << 12:
                            os.fsync(file.fileno())
        yield
    finally:
        filler.unlink()


@contextmanager
def frozen(disk: Mounted, _slot: Path) -> Iterator[None]:
    """Freeze it as for a snapshot: writers wait."""
    done = subprocess.run(["fsfreeze", "-f", disk.below], check=False, capture_output=True)
    if done.returncode:
        raise NotHereError(f"{disk.kind} cannot be frozen")
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", disk.below], check=True)


@contextmanager
def shut_down(disk: Mounted, _slot: Path) -> Iterator[None]:
    """As after an error of the disk; that is for good."""
    directory = os.open(disk.below, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, _SHUTDOWN, struct.pack("I", 2))
    except OSError as error:
        raise NotHereError(f"{disk.kind} cannot be shut down") from error
    finally:
        os.close(directory)
    yield


@contextmanager
def truncated(disk: Mounted, slot: Path) -> Iterator[None]:
    """By root, or by accident with force."""
    if disk.kind == "tmpfs":
        raise NotHereError("a mapped file that root truncates kills who stores into it")
    os.truncate(slot, 0)
    yield


@contextmanager
def immutable(_disk: Mounted, slot: Path) -> Iterator[None]:
    """``chattr +i``."""
    descriptor = os.open(slot, os.O_RDONLY)  # of another process: closing it frees no lock
    flags = bytearray(8)
    try:
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        found = int.from_bytes(flags, "little")
        fcntl.ioctl(descriptor, _SET_FLAGS, (found | _IMMUTABLE).to_bytes(8, "little"))
    except OSError as error:
        os.close(descriptor)
        raise NotHereError("this filesystem has no immutable files") from error
    try:
        yield
    finally:
        fcntl.ioctl(descriptor, _SET_FLAGS, found.to_bytes(8, "little"))
        os.close(descriptor)


@contextmanager
def removed(_disk: Mounted, slot: Path) -> Iterator[None]:
    """With its folder, as by a cleaner of temporary files."""
    shutil.rmtree(slot.parent)
    yield


FAULTS: dict[str, Callable[[Mounted, Path], contextlib.AbstractContextManager[None]]] = {
    "full": full,
    "frozen": frozen,
    "shut down": shut_down,
    "truncated": truncated,
    "immutable": immutable,
    "removed": removed,
}
FOR_GOOD = ("shut down", "removed")
