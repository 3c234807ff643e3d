"""Whether a cgroup freezes a process, as ``docker pause`` and some schedulers do. See cgroups(7).

A frozen process is in no state of its own in ``/proc``: it seems to sleep.
"""

from __future__ import annotations

import contextlib

from warmwatch_monitor.sources import proc
from warmwatch_monitor.sources.proc import CGROUPS

# by version of cgroups: the file that shows the state of a group, with those of its parents, and
# what it has if frozen; the file with the group's own state, and what writes it
_V2 = "cgroup.events", "frozen 1", "cgroup.freeze", "1", "0 > {}/cgroup.freeze"
_V1 = "freezer.state", "FROZEN", "freezer.self_freezing", "1", "THAWED > {}/freezer.state"


def thaw(pid: int, root: str = proc.PROC, cgroups: str = CGROUPS) -> str | None:
    """What thaws the frozen cgroup of ``pid``, for ``echo``; ``None`` if none is seen frozen."""
    with contextlib.suppress(OSError):
        for line in proc.text(f"{root}/{pid}/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            group = path.rstrip("/")
            if controllers == "freezer":
                found = _frozen(f"{cgroups}/freezer", group, _V1)
            elif controllers:
                continue
            else:  # beside those of version 1, version 2 has a folder of its own
                found = _frozen(cgroups, group, _V2) or _frozen(f"{cgroups}/unified", group, _V2)
            if found:
                return found
    return None


def _frozen(mount: str, path: str, files: tuple[str, str, str, str, str]) -> str | None:
    """``path``: from the mount. One with ``..`` is outside of what this container sees."""
    shown, frozen, own, yes, thawing = files
    if "/.." in path or frozen not in _lines(f"{mount}{path}/{shown}"):
        return None
    group = path
    while group and yes not in _lines(f"{mount}{group}/{own}"):
        group = group.rpartition("/")[0]
    return thawing.format(f"{mount}{group or path}")


def _lines(file: str) -> list[str]:
    try:
        return proc.text(file).splitlines()
    except OSError:
        return []
