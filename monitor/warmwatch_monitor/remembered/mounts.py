"""On which filesystem a directory lies, as the kernel's table of mounts tells."""

from __future__ import annotations

from pathlib import Path

# where all who open a file are on this machine, and see one memory of it: SQLite's log ahead of
# writing needs that, and a home directory may be on a server
_TABLE = Path("/proc/self/mountinfo")
_LOCAL = frozenset(
    {
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs"),
        *("tmpfs", "ramfs", "overlay"),
    }
)


def shares_memory(directory: Path) -> bool:
    """Whether files there may be mapped by several processes; a kind that is not known may not."""
    try:
        table = _TABLE.read_text("utf-8", "surrogateescape")
        return kind_of(str(directory.resolve()), table) in _LOCAL
    except OSError:
        return False


def kind_of(path: str, mountinfo: str) -> str:
    """Of the last mount whose point is nearest above ``path``."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        point = _plain(fields[4]) if len(fields) > 4 else ""
        above = point == "/" or path == point or path.startswith(f"{point}/")
        if point and above and len(point) >= best:
            best, kind = len(point), after.partition(" ")[0]
    return kind


def _plain(point: str) -> str:
    for octal, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, sign)
    return point
