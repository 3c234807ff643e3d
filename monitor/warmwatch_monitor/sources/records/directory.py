"""One record directory: its records, listed again only when it changed.

The agent renames a record into place, and a removal changes the directory too, so its mtime shows
both. An mtime advances in ticks of some milliseconds: one that was recent when the directory was
listed proves nothing. In any case the directory is listed once a second.

A directory is a problem of the whole source, not one refusal, if its runs disappeared with it. That
holds if it was listed before and cannot be listed now, or if it is gone and held records (or was
chosen).

Anybody can fill a directory that is open to all. So only the newest records of each user are taken.
A listing that takes too long continues at the next poll; until then the records found so far count.

Agents use other directories where ``/run/warmwatch`` cannot be used, such as when it is full.
An agent takes the first place in which it can create a record. A reader of ``/run/warmwatch`` would
not see a training that had to use a later one. So root's readers and the service look in the places
of every user who has a process; another user's readers look in that user's own.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import places
from warmwatch.shared.clock_origin import boot_id
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.budgets import (
    FIRST_LISTING_SECONDS,
    LISTING_SECONDS,
    RECORDS_OF_A_USER,
)
from warmwatch_monitor.model.snapshot import RecordRoom
from warmwatch_monitor.sources.proc import mount_of

_LISTED_FOR_NS = 10**9
_PAUSE_PER_COST = 50  # an unchanged directory is listed again for at most 2 % of a core
_TICK_NS = 50 * 10**6
_ENTRIES_BETWEEN = 64  # between two reads of the clock
MOST_REFUSALS = 100  # entries that are listed; all others are counted


class Listing(Struct, frozen=True, kw_only=True):
    """Folders that may be records by their place, and the other entries.

    Attributes:
        folders: with the uid of each owner, the newest of a user first.
        refusals: the first of them. more_refusals: the number of others.
        problem: why its records are unknown, although it has or should have some.
        left_out: the number of records not in ``folders``, because their user has newer ones.
        over: the users who own those.
        complete: whether the directory was listed to its end, and has not changed since.
        place: device and inode of the directory that was listed; ``None`` if there is none.
        room: what is free in it; ``None`` if that is unknown.
    """

    folders: tuple[tuple[int, str], ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problem: str | None = None
    more_refusals: int = 0
    left_out: int = 0
    over: frozenset[int] = frozenset()
    complete: bool = True
    place: tuple[int, int] | None = None
    room: RecordRoom | None = None


class RecordDirectory:
    """The directory at ``path``; it may not exist yet, or no longer.

    One that the user ``chose`` is used as it is; a default one must belong to its ``owner`` (this
    user if ``None``) or root, by the agent's rule.
    """

    def __init__(
        self, path: str, clock: Clock, *, chosen: bool = True, owner: int | None = None
    ) -> None:
        self._path, self._clock, self._chosen, self._owner = path, clock, chosen, owner
        self._listing = Listing()
        self._stamp: tuple[int, ...] | None = None
        self._scanned: tuple[int, ...] | None = None  # the stamp that the listing will have
        self._listed_ns, self._valid_ns = 0, _LISTED_FOR_NS
        self._was_listed = self._had_records = False
        self._scan: _Scan | None = None

    @property
    def listing_seconds(self) -> float:
        """The CPU time that one poll may take to list it."""
        return LISTING_SECONDS if self._was_listed else FIRST_LISTING_SECONDS

    def poll(self, within: float | None = None, living: Collection[str] = frozenset()) -> Listing:
        """The records in it now. A directory that cannot be listed is a refusal itself.

        ``within``: CPU seconds for one call; later calls list the rest. ``living``: folders of
        living processes, which come before newer ones if a user has too many.
        """
        now_ns = self._clock.monotonic_ns()
        try:
            status = os.stat(self._path) if self._chosen else os.lstat(self._path)
            if not self._chosen and (problem := self._distrust(status)) is not None:
                return self._refused(problem)
            # a chmod moves the ctime
            stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            stale = stamp != self._stamp or now_ns - self._listed_ns > self._valid_ns
            if self._scan is None and stale:
                fresh = abs(self._clock.epoch() * 1e9 - status.st_mtime_ns) < _TICK_NS
                self._scanned = None if fresh else stamp
                self._scan = _Scan(self._path, living, stamp[:2])
            if self._scan is not None:
                return self._go_on(self._scan, within, now_ns, changed=stamp != self._stamp)
        except FileNotFoundError:
            self._stamp = self._scan = None
            if self._was_listed and (self._chosen or self._had_records):
                return Listing(problem=f"{self._path} has disappeared")
            return Listing()
        except NotADirectoryError:
            return self._refused("it is a file; name a directory in WARMWATCH_DIR, or remove it")
        except OSError as error:
            return self._refused(f"it cannot be listed: {error.strerror}")
        return self._listing

    def _go_on(self, scan: _Scan, within: float | None, now_ns: int, *, changed: bool) -> Listing:
        if scan.go_on(within):
            self._listing, self._scan = replace(scan.listing(), place=scan.place), None
            self._stamp, self._listed_ns = self._scanned, now_ns
            self._valid_ns = max(_LISTED_FOR_NS, round(scan.cpu_seconds * 1e9 * _PAUSE_PER_COST))
            self._was_listed, self._had_records = True, bool(self._listing.folders)
            return self._listing
        # Until the end, records of the last complete listing may still be there.
        listing, last = scan.listing(), self._listing
        folders = dict.fromkeys((*listing.folders, *last.folders))
        return Listing(
            folders=tuple(folders),
            refusals=listing.refusals or last.refusals,
            more_refusals=max(listing.more_refusals, last.more_refusals),
            left_out=max(listing.left_out, last.left_out),
            over=listing.over | last.over,
            complete=not changed,
            place=last.place,
            room=listing.room,
        )

    def _distrust(self, status: os.stat_result) -> str | None:
        """Why a default directory is not searched for records, in words."""
        if stat.S_ISLNK(status.st_mode):
            return "it is a link; remove it, or name the directory in WARMWATCH_DIR"
        owner = os.geteuid() if self._owner is None else self._owner
        problem = places.distrust(status, owner)
        return problem and f"no records are looked for in it: {problem}"

    def _refused(self, reason: str) -> Listing:
        self._stamp = self._scan = None
        missed = self._was_listed or self._chosen
        return Listing(
            refusals=(Refusal(path=self._path, reason=reason),),
            problem=f"{self._path}: {reason}" if missed else None,
        )


class _Scan:
    """One listing of a directory, which may take several polls. Bounded per user."""

    def __init__(self, path: str, living: Collection[str], place: tuple[int, int]) -> None:
        self._path, self._entries, self._living = path, os.scandir(path), living
        self.place = place
        self.cpu_seconds = 0.0
        self._folders: defaultdict[int, list[tuple[bool, int, str]]] = defaultdict(list)
        self._counts: Counter[int] = Counter()
        self._refusals: list[Refusal] = []
        self._refused = 0

    def go_on(self, within: float | None) -> bool:
        """List the next entries; returns whether that was all. Raises OSError."""
        began = time.thread_time()
        until = None if within is None else began + within
        try:
            for number, entry in enumerate(self._entries, 1):
                self._take(entry)
                if until and number % _ENTRIES_BETWEEN == 0 and time.thread_time() > until:
                    return False
        finally:
            self.cpu_seconds += time.thread_time() - began
        self._entries.close()
        return True

    def _take(self, entry: os.DirEntry[str]) -> None:
        if entry.name.startswith("."):  # a record under construction
            return
        if entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):  # just removed
                status = entry.stat(follow_symlinks=False)
                of_one = self._folders[status.st_uid]
                of_one.append((entry.path in self._living, status.st_mtime_ns, entry.path))
                self._counts[status.st_uid] += 1
                if len(of_one) > 2 * RECORDS_OF_A_USER:
                    _keep_newest(of_one)
            return
        self._refused += 1
        if len(self._refusals) < MOST_REFUSALS:
            what = "a link" if entry.is_symlink() else "a file"
            reason = f"{what}, not a record; it can be removed"
            self._refusals.append(Refusal(path=entry.path, reason=reason))

    def listing(self) -> Listing:
        """The records found so far."""
        for of_one in self._folders.values():
            _keep_newest(of_one)
        taken = [(uid, path) for uid, of_one in self._folders.items() for *_, path in of_one]
        return Listing(
            folders=tuple(taken),
            room=_room(self._path),
            refusals=tuple(self._refusals),
            more_refusals=self._refused - len(self._refusals),
            left_out=sum(self._counts.values()) - len(taken),
            over=frozenset(uid for uid, count in self._counts.items() if count > RECORDS_OF_A_USER),
        )


def _keep_newest(folders: list[tuple[bool, int, str]]) -> None:
    """Sort living ones first."""
    folders.sort(reverse=True)
    del folders[RECORDS_OF_A_USER:]


def _room(path: str) -> RecordRoom | None:
    try:
        result, place = os.statvfs(path), os.stat(path)
    except OSError:
        return None
    full = result.f_flag & os.ST_RDONLY and mount_of(os.path.realpath(path)).read_only
    return RecordRoom(
        identity=f"{boot_id()} {place.st_dev} {place.st_ino}",
        directory=path,
        # of no blocks or files: no limit
        free_bytes=result.f_bavail * result.f_frsize * (not full) if result.f_blocks else None,
        free_inodes=result.f_favail * (not full) if result.f_files else None,
    )


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
