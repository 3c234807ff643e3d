"""One record directory: which records lie in it, listed anew only when it changed.

The agent renames a record into place and whoever removes one changes the directory, so its mtime
tells. An mtime moves in ticks of some milliseconds: one that was fresh when the directory was
listed is not believed, and once a second the directory is listed in any case.

Of one user no more records are read than he has at a time, the newest: anybody can make thousands
in a directory that is open to all, and each would cost every look and every answer.

A directory is a problem of the whole source, not one refusal, where its runs vanished with it: it
was listed before and cannot be listed now, or it is gone and held records (or was chosen).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from warmwatch import places
from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model import Refusal

_LISTED_FOR_NS = 10**9
_TICK_NS = 50 * 10**6
MOST_OF_A_USER = 1024  # an agent keeps the last 200 of them, and a node has some hundred ranks


class Listing(Struct, frozen=True, kw_only=True):
    """Folders that are records by their place, and what else lies there.

    ``problem``: why the records in it are not known, where they were or should be.
    """

    folders: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problem: str | None = None


class RecordDirectory:
    """The directory at ``path``; it may not exist yet, or no longer.

    One that somebody ``chose`` is taken as it is; a default one has to be this user's own or
    root's, by the agent's rule.
    """

    def __init__(self, path: str, clock: Clock, *, chosen: bool = True) -> None:
        self._path, self._clock, self._chosen = Path(path), clock, chosen
        self._listing = Listing()
        self._stamp: tuple[int, ...] | None = None
        self._listed_ns = 0
        self._was_listed = self._had_records = False

    def look(self) -> Listing:
        """The records in it now. A directory that cannot be listed is a refusal itself."""
        now_ns = self._clock.monotonic_ns()
        try:
            status = self._path.stat() if self._chosen else self._path.lstat()
            if not self._chosen and (problem := _distrust(status)) is not None:
                return self._refused(problem)
            stamp = (
                status.st_ino,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )  # chmod moves the latter
            if stamp != self._stamp or now_ns - self._listed_ns > _LISTED_FOR_NS:
                self._listing = self._list()
                self._was_listed, self._had_records = True, bool(self._listing.folders)
                self._listed_ns = now_ns
                fresh = abs(self._clock.epoch() * 1e9 - status.st_mtime_ns) < _TICK_NS
                self._stamp = None if fresh else stamp
        except FileNotFoundError:
            self._stamp = None
            if self._was_listed and (self._chosen or self._had_records):
                return Listing(problem=f"{self._path} has disappeared")
            return Listing()
        except NotADirectoryError:
            return self._refused("it is a file; name a directory in WARMWATCH_DIR, or remove it")
        except OSError as error:
            return self._refused(f"it cannot be listed: {error.strerror}")
        return self._listing

    def _refused(self, reason: str) -> Listing:
        self._stamp = None
        missed = self._was_listed or self._chosen
        return Listing(
            refusals=(Refusal(path=str(self._path), reason=reason),),
            problem=f"{self._path}: {reason}" if missed else None,
        )

    def _list(self) -> Listing:
        folders: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        refusals = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if entry.name.startswith("."):  # a record being made
                    continue
                if entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # just removed
                        status = entry.stat(follow_symlinks=False)
                        folders[status.st_uid].append((status.st_mtime_ns, entry.path))
                    continue
                what = "a link" if entry.is_symlink() else "a file"
                refusals.append(
                    Refusal(path=entry.path, reason=f"{what}, not a record; it can be removed")
                )
        taken: list[str] = []
        for uid, of_one in folders.items():
            of_one.sort(reverse=True)
            taken.extend(path for _, path in of_one[:MOST_OF_A_USER])
            refusals.extend(_passed_over(uid, path) for _, path in of_one[MOST_OF_A_USER:])
        return Listing(folders=tuple(sorted(taken)), refusals=tuple(refusals))


def _passed_over(uid: int, path: str) -> Refusal:
    reason = f"user {uid} has {MOST_OF_A_USER:,} newer ones in this directory, and no more are read"
    return Refusal(path=path, reason=reason)


def _distrust(status: os.stat_result) -> str | None:
    """Why records are not looked for in a default directory, in words."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a link; remove it, or name the directory in WARMWATCH_DIR"
    problem = places.distrust(status, os.geteuid())
    return problem and f"no records are looked for in it: {problem}"
