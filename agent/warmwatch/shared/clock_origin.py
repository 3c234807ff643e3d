"""The origin of monotonic times: the boot and the time namespace.

The agent writes both into its record, and a reader compares them with its own.
"""

from __future__ import annotations


def boot_id() -> str:
    """The kernel's id of this boot; empty if the kernel does not report it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def clock_offset_ns() -> int | None:
    """Offset of this process's time namespace to the monotonic clock; ``None`` if unknown."""
    try:
        with open("/proc/self/timens_offsets") as file:
            fields = next(line.split() for line in file if line.startswith("monotonic"))
        return int(fields[1]) * 10**9 + int(fields[2])
    except (OSError, ValueError, IndexError, StopIteration):
        return None
