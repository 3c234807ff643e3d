"""A memory cgroup of one's own, v2 or v1, whose limit the kernel enforces for real."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


def _files(limit: int) -> tuple[Path, dict[str, str]] | None:
    if (_V1 / "memory.limit_in_bytes").exists():
        return _V1, {"memory.limit_in_bytes": str(limit), "memory.swappiness": "0"}
    if "memory" in _words(_V2 / "cgroup.subtree_control"):
        return _V2, {"memory.max": str(limit), "memory.swap.max": "0"}
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def possible() -> bool:
    """Whether one can be made here."""
    try:
        with limited(2**30):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def limited(limit: int) -> Iterator[Path]:
    """A group of at most ``limit`` bytes. Raises OSError where there can be none."""
    known = _files(limit)
    if known is None:
        raise OSError("no memory controller that one may use")
    root, files = known
    group = root / f"warmwatch-test-{os.getpid()}-{secrets.token_hex(3)}"
    group.mkdir()
    try:
        for name, value in files.items():
            with contextlib.suppress(FileNotFoundError):  # no swap is accounted here
                (group / name).write_text(value)
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


def enter(group: Path) -> None:
    """Put this process into it."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
