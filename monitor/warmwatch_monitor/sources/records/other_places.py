"""Directories that agents use where ``/run/warmwatch`` cannot be used, such as when it is full.

An agent takes the first place in which it can create a record. A reader of ``/run/warmwatch`` would
not see a training that had to use a later one. So root's readers and the service look in the places
of every user who has a process; another user's readers look in that user's own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from warmwatch.shared import places
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model import Refusal
from warmwatch_monitor.sources.records.directory import Listing, RecordDirectory

_PAUSE_NS = 10 * 10**9


class OtherPlaces:
    """The places that are not among ``directories``, which are read anyway.

    They are another user's, who could remove them or hide their content. So a place that cannot be
    read is a refusal, and never a problem of the whole source.
    """

    def __init__(self, directories: Sequence[str], clock: Clock, *, everybody: bool) -> None:
        self._listed, self._clock = frozenset(directories), clock
        self._applies = places.SHARED in self._listed
        self._of_everybody = everybody or os.geteuid() == 0
        self._directories: dict[str, RecordDirectory] = {}
        self._refusals: tuple[Refusal, ...] = ()
        self._looked_ns = -_PAUSE_NS

    def poll(self, *, limited: bool, living: set[str]) -> list[Listing]:
        """A listing of each; see ``RecordDirectory.poll``."""
        now_ns = self._clock.monotonic_ns()
        if self._applies and now_ns - self._looked_ns >= _PAUSE_NS:
            self._looked_ns = now_ns
            self._look()
        listings = [
            directory.poll(directory.listing_seconds if limited else None, living)
            for directory in self._directories.values()
        ]
        return [*listings, Listing(refusals=self._refusals)] if self._refusals else listings

    def _look(self) -> None:
        directories, refusals = self._directories, []
        self._directories = {}
        for path, uid in self._existing():
            if os.access(path, os.R_OK | os.X_OK):
                made = directories.get(path) or RecordDirectory(
                    path, self._clock, chosen=False, owner=uid
                )
                self._directories[path] = made
            else:
                refusals.append(Refusal(path=path, reason=_unreadable(uid)))
        self._refusals = tuple(refusals)

    def _existing(self) -> Iterator[tuple[str, int]]:
        for uid in _users_with_processes() if self._of_everybody else (os.geteuid(),):
            for path in places.directories({}, uid)[1:]:
                if path not in self._listed and _belongs_to(path, uid):
                    yield path, uid


def _users_with_processes() -> list[int]:
    users = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    users.add(entry.stat(follow_symlinks=False).st_uid)
                except OSError:  # it has ended
                    continue
    return sorted(users)


def _belongs_to(path: str, uid: int) -> bool:
    try:
        result = os.lstat(path)
    except OSError:  # none, or above it is what only that user may enter
        return False
    return stat.S_ISDIR(result.st_mode) and result.st_uid == uid


def _unreadable(uid: int) -> str:
    return (
        f"user {uid} may have records in it, which user {os.geteuid()} may not read: agents use it "
        f"where {places.SHARED} cannot be used; if no training uses it, remove it"
    )
