"""The records source: all records of all record directories, as one list of readings.

Invariants: nothing is ever written, mapped or locked. A record that cannot be read is a Refusal
with its path and a sentence, and costs the other records nothing.

A poll has a budget of CPU time (``budgets``). It reads living records and those that were never
read first, and the rest in the next polls. Until all were read, the reading counts those that were
not.

What reads a record is loaded with the first one (``followed_record``): some hosts have none.

Records of living processes may be out of reach, because another directory has their place: after a
file system is mounted over the record directory, or unmounted lazily, the directory looks empty.
Its trainings go on. So their runs are unknown, which is not the same as "no run".
"""

from __future__ import annotations

import os.path
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.budgets import (
    POLL_LONGEST,
    RECORDS,
    RECORDS_OF_A_USER,
    SHOWN,
    SHOWN_OF_A_USER,
)
from warmwatch_monitor.sources.records.directory import Listing, OtherPlaces, RecordDirectory

if TYPE_CHECKING:
    from warmwatch_monitor.model.records import RecordReading
    from warmwatch_monitor.model.snapshot import RecordRoom
    from warmwatch_monitor.sources.records.followed_record import (
        FollowedRecord,
        Poll,
        Shared,
        Start,
    )


class HiddenRecords:
    """Those of the directories at ``paths``, until they are back or their processes have ended."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._places: dict[str, tuple[int, int] | None] = {}
        self._hidden: dict[str, FollowedRecord] = {}

    def note(
        self,
        listings: Sequence[Listing],
        before: Mapping[str, FollowedRecord],
        now: Mapping[str, FollowedRecord],
        now_ns: int,
    ) -> None:
        """Take over new listings; ``before``, ``now``: the records that were and are followed."""
        if before is not now:
            self._hide(
                listings, (followed for folder, followed in before.items() if folder not in now)
            )
        for path, listing in zip(self._paths, listings, strict=True):
            self._places[path] = listing.place
        for folder, record in tuple(self._hidden.items()):
            if folder in now or not record.lives_at(now_ns):
                del self._hidden[folder]

    def _hide(self, listings: Sequence[Listing], gone: Iterable[FollowedRecord]) -> None:
        replaced = {
            path
            for path, listing in zip(self._paths, listings, strict=True)
            if listing.place != self._places.get(path)
        }
        for record in gone:
            if record.alive and os.path.dirname(record.folder) in replaced:
                self._hidden[record.folder] = record

    def problem(self, path: str) -> str | None:
        """Why records of the directory are unknown; ``None`` if none is hidden."""
        count = sum(os.path.dirname(folder) == path for folder in self._hidden)
        if not count:
            return None
        whose = f"{count} living processes have their records"
        if count == 1:
            whose = "a living process has its record"
        return (
            f"{path} is another directory than before (a file system was mounted or unmounted "
            f"there, or it was replaced), and {whose} in the old one"
        )


_SHARE_OF_SLOTS = 0.6  # of a poll's time; the rest is for long journals


class RecordsReading(Struct, frozen=True, kw_only=True):
    """All records that can be read, and what cannot.

    Attributes:
        read_ns: when the last reading of them began; 0 if there are none.
        problem: record directories that cannot be read now, in words; ``None`` if all can.
        more_refusals: how many there are beyond ``refusals``.
        unread: the number of records not read yet; at least 1 while a directory is being listed.
        unread_beyond: the number of these that belong to the users in ``over``.
        left_out: by kind, what is not in ``records`` because it exceeds a budget.
        left_out_runs: uid and name of the runs of left-out records.
        over: the users who own records that are left out.
        rooms: what is free in each record directory.
        crowded: whether records of users within their limits are left out, for the total.
    """

    records: tuple[RecordReading, ...] = ()
    read_ns: int = 0
    refusals: tuple[Refusal, ...] = ()
    problem: str | None = None
    more_refusals: int = 0
    unread: int = 0
    unread_beyond: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    left_out_runs: frozenset[tuple[int, str]] = frozenset()
    over: frozenset[int] = frozenset()
    crowded: bool = False
    rooms: tuple[RecordRoom, ...] = ()

    @property
    def unread_bytes(self) -> int:
        """The bytes of all journals left to the next polls."""
        return sum(record.unread_bytes for record in self.records)


class RecordsSource:
    """Reads the record directories. ``retention`` is in seconds.

    ``everybody``: also read where other users' agents may have had to create their records.
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        retention: float,
        everybody: bool = False,
        clock: Clock | None = None,
        boot: str | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._boot, self._shared = boot, cast("Shared | None", None)
        self._retention_ns = int(retention * 1e9)
        chosen = len(directories) == 1
        self._directories = [
            RecordDirectory(path, self._clock, chosen=chosen) for path in directories
        ]
        self._others = OtherPlaces(directories, self._clock, everybody=everybody)
        self._paths = tuple(directories)
        self._hidden = HiddenRecords(self._paths)
        self._records: dict[str, FollowedRecord] = {}
        self._folders: tuple[tuple[tuple[int, str], ...], ...] = ((),) * len(directories)
        self._beyond: tuple[frozenset[int], bool] = frozenset(), False
        self._shown: Counter[int] = Counter()  # by user, the weight of the shown records
        self._last_behind = ""  # the folder whose long journal was read last
        self._polls = self._read_ns = 0

    def read(
        self, within: float | None = None, requested: frozenset[str] = frozenset()
    ) -> RecordsReading:
        """Poll once.

        ``within``: the CPU seconds that it may take. ``requested``: names of runs whose records are
        read and shown before their owners' others.
        """
        living = {record.folder for record in self._records.values() if record.alive}
        own = [
            directory.poll(None if within is None else directory.listing_seconds, living)
            for directory in self._directories
        ]
        listings = own + self._others.poll(limited=within is not None, living=living)
        before = self._records
        self._follow(listings)
        self._hidden.note(own, before, self._records, self._clock.monotonic_ns())
        self._read(_Meter(within), requested)
        over_shown, crowded_shown = self._leave_out(requested)
        over_followed, crowded = self._beyond
        over = over_shown.union(over_followed, *(listing.over for listing in listings))
        values = self._records.values()
        refused = (value.found for value in values if isinstance(value.found, Refusal))
        unread = [value.uid for value in values if not value.read_ns]
        left_out = [value for value in values if value.left_out]
        listed = sum(len(listing.folders) + listing.left_out for listing in listings)
        counts = {"records": max(0, listed - len(self._records)), "ranks": len(left_out)}
        records = tuple(reading for value in values if (reading := value.reading) is not None)
        return RecordsReading(
            records=records,
            read_ns=self._read_ns if records else 0,
            refusals=(*chain.from_iterable(listing.refusals for listing in listings), *refused),
            problem="; ".join(self._problems(own)) or None,
            rooms=tuple(listing.room for listing in listings if listing.room),
            more_refusals=sum(listing.more_refusals for listing in listings),
            unread=len(unread) + (not all(listing.complete for listing in listings)),
            unread_beyond=sum(uid in over for uid in unread),
            left_out={kind: count for kind, count in counts.items() if count},
            left_out_runs=frozenset((record.uid, record.run) for record in left_out),
            over=over,
            crowded=crowded or crowded_shown,
        )

    def _problems(self, own: Sequence[Listing]) -> Iterator[str]:
        """Of the own directories: no other user can cause one."""
        for path, listing in zip(self._paths, own, strict=True):
            if problem := listing.problem or self._hidden.problem(path):
                yield problem

    def _follow(self, listings: Sequence[Listing]) -> None:
        """Follow the listed records: of a user, and of all, not more than the limits."""
        folders = tuple(listing.folders for listing in listings)
        if folders == self._folders:
            return
        from warmwatch_monitor.sources.records.followed_record import FollowedRecord, Shared

        if self._shared is None:
            self._shared = Shared.on_this_host(self._boot)
        by_user: defaultdict[int, list[str]] = defaultdict(list)
        for uid, folder in chain.from_iterable(folders):
            by_user[uid].append(folder)
        self._shared.owners.expect(by_user)
        records = self._records

        def rests(folder: str) -> bool:
            return folder not in records or not records[folder].alive

        listed: list[tuple[int, int, str]] = []
        for uid, of_one in by_user.items():
            if len(of_one) > RECORDS_OF_A_USER:  # living ones first, else the newest
                of_one.sort(key=rests)
            taken = of_one[:RECORDS_OF_A_USER]
            listed += ((number, uid, folder) for number, folder in enumerate(taken))
        if len(listed) > RECORDS:
            listed.sort(key=lambda row: (rests(row[2]), row))
        self._records = {
            folder: records.get(folder) or FollowedRecord(folder, uid, self._shared)
            for _, uid, folder in listed[:RECORDS]
        }
        self._folders = folders
        beyond = (uid for uid, of_one in by_user.items() if len(of_one) > RECORDS_OF_A_USER)
        self._beyond = frozenset(beyond), len(listed) > RECORDS

    def _read(self, meter: _Meter, requested: frozenset[str]) -> None:
        """Read records until the time is over.

        Slots come first: one piece of a long journal takes as long as many of them.
        """
        if not self._records:
            return
        from warmwatch_monitor.sources.records import followed_record

        self._polls += 1
        self._read_ns = now_ns = self._clock.monotonic_ns()
        epoch = self._clock.epoch()
        shown, newest = _shown_ranks(self._records.values(), now_ns)
        poll = followed_record.Poll(
            now_ns=now_ns,
            epoch=epoch,
            retention_ns=self._retention_ns,
            limited=meter.limited,
            shown=shown,
            newest=newest,
        )
        due = [
            followed
            for followed in self._records.values()
            if followed.is_due(poll) or (followed.left_out and followed.run in requested)
        ]
        full = sum(self._shown.values()) >= SHOWN
        turn = self._polls % 2  # if there is time for one alone, they take turns
        may_read = followed_record.never if meter.limited else followed_record.always
        for record in _in_order(due, turn):
            room = not full and self._shown[record.uid] < SHOWN_OF_A_USER
            record.read(poll, may_read=may_read, room=room or record.run in requested)
            if meter.is_over():  # after the first one
                break
        self._read_long_journals(poll, meter, followed_record.once)

    def _read_long_journals(
        self, poll: Poll, meter: _Meter, once: Callable[[], Callable[[], bool]]
    ) -> None:
        """Read one more piece of each, in turn, as far as there is time."""
        behind = [followed for followed in self._records.values() if followed.behind]
        if not behind:
            return
        meter.allow_rest()
        last = self._last_behind
        for record in sorted(
            behind, key=lambda item: (not item.alive, item.folder <= last, item.folder)
        ):
            record.read(poll, may_read=once())
            self._last_behind = record.folder
            if meter.is_over():
                break

    def _leave_out(self, requested: frozenset[str]) -> tuple[frozenset[int], bool]:
        """Show no more of a user, and of all, than fits into an answer.

        Returns the users of whom records are left out, and whether any of them is within the limit
        of a user.
        """
        values = self._records.values()
        few = sum(value.weight for value in values) <= min(SHOWN_OF_A_USER, SHOWN)
        if few and not any(value.left_out for value in values):
            self._shown = Counter()  # all have room
            return frozenset(), False
        read = [value for value in values if value.reading is not None]
        now_ns, all_shown = self._clock.monotonic_ns(), 0
        wanted, self._shown = Counter[int](), Counter()
        for record in sorted(
            read, key=lambda followed: _rank_of(followed, requested), reverse=True
        ):
            wanted[record.uid] += record.weight
            weight = all_shown + record.weight
            if wanted[record.uid] > SHOWN_OF_A_USER or weight > SHOWN:
                record.leave_out(now_ns)
            else:
                self._shown[record.uid] += record.weight
                all_shown = weight
        # A record that was left out is read again only later: it still counts for its user.
        left_out = [value for value in values if value.left_out]
        for record in set(left_out).difference(read):
            wanted[record.uid] += record.weight
        over = frozenset(followed.uid for followed in left_out)
        return over, any(wanted[uid] <= SHOWN_OF_A_USER for uid in over)


def _shown_ranks(
    records: Collection[FollowedRecord], now_ns: int
) -> tuple[Mapping[Start, set[int]], Mapping[tuple[Start, int], tuple[bool, int]]]:
    """The ranks of each start that is shown, and when the newest process of each of them began."""
    if not any(followed.until_ns < now_ns for followed in records):
        return {}, {}  # none is missing
    shown: defaultdict[Start, set[int]] = defaultdict(set)
    for record in records:
        if record.start and record.is_shown_at(now_ns):
            shown[record.start].add(record.rank)
    newest: dict[tuple[Start, int], tuple[bool, int]] = {}
    for record in records:
        if record.start and record.start in shown:
            rank = record.start, record.rank
            newest[rank] = max(record.began, newest.get(rank, record.began))
    return shown, newest


def _in_order(records: Iterable[FollowedRecord], turn: int) -> Iterator[FollowedRecord]:
    """Living and unread ones in turn, then the others; the least recently read first."""
    living: list[FollowedRecord] = []
    unread: list[FollowedRecord] = []
    others: list[FollowedRecord] = []
    for record in sorted(records, key=lambda followed: followed.read_ns):
        (living if record.alive else others if record.read_ns else unread).append(record)
    pairs = zip_longest(*((living, unread) if turn else (unread, living)))
    yield from (value for pair in pairs for value in pair if value is not None)
    yield from others


def _rank_of(
    record: FollowedRecord, requested: frozenset[str]
) -> tuple[bool, bool, bool, int, str]:
    """The order of display: living ranks, first requested ones, then the newest."""
    assert record.reading is not None
    return record.alive, record.run in requested, *record.reading.began, record.folder


class _Meter:
    """The time that a poll has spent and may spend; without ``seconds`` it never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._allowed = seconds, (seconds or 0.0) * _SHARE_OF_SLOTS
        self._began, self._began_at = time.thread_time(), time.monotonic()

    @property
    def limited(self) -> bool:
        return self._seconds is not None

    def allow_rest(self) -> None:
        """From now on all of the time may be spent."""
        self._allowed = self._seconds or 0.0

    def is_over(self) -> bool:
        """Whether to stop reading."""
        if self._seconds is None:
            return False
        took = time.monotonic() - self._began_at  # never less than the CPU time
        if took > POLL_LONGEST:
            return True
        # the kernel counts it: a call takes some microseconds
        return took > self._allowed and time.thread_time() - self._began > self._allowed
