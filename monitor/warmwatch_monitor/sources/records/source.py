"""The records source: all records of all record directories, as one list of readings.

Invariants: nothing is ever written, mapped or locked. A record that cannot be read is a Refusal
with its path and a sentence, and costs the other records nothing.

A poll has a budget of CPU time, which users share fairly (``budgets``). It reads living records and
those that were never read first, this user's before others', and the rest in the next polls. Until
all were read, the reading counts those that were not.

What reads a record is loaded with the first one (``followed_record``): some hosts have none.
"""

from __future__ import annotations

import os
import time
from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model import Refusal
from warmwatch_monitor.model.budgets import (
    POLL_LONGEST,
    RECORDS,
    RECORDS_ENOUGH,
    RECORDS_OF_A_USER,
    SHOWN,
    SHOWN_ENOUGH,
    SHOWN_OF_A_USER,
    URGENT_SECONDS,
    fair_shares,
)
from warmwatch_monitor.sources.records.directory import Listing, RecordDirectory
from warmwatch_monitor.sources.records.hidden_records import HiddenRecords
from warmwatch_monitor.sources.records.other_places import OtherPlaces

if TYPE_CHECKING:
    from warmwatch_monitor.model import RecordReading, RecordRoom
    from warmwatch_monitor.sources.records.followed_record import (
        FollowedRecord,
        Poll,
        Shared,
        Start,
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
        crowded: whether a user's share of a total is so small that an honest user's run may be
        among what is left out.
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
        return sum(one.unread_bytes for one in self.records)


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
        self._shown: Mapping[int, int] = {}  # by user, the weight of the shown records
        # by user, the last poll in which a record was read, and in which a piece of a journal was
        self._served: dict[int, int] = {}
        self._served_journals: dict[int, int] = {}
        self._polls = self._read_ns = 0

    def read(
        self, within: float | None = None, requested: frozenset[str] = frozenset()
    ) -> RecordsReading:
        """Poll once.

        ``within``: the CPU seconds that it may take. ``requested``: names of runs whose records are
        read and shown before their owners' others.
        """
        living = {one.folder for one in self._records.values() if one.alive}
        own = [
            one.poll(None if within is None else one.listing_seconds, living)
            for one in self._directories
        ]
        listings = own + self._others.poll(limited=within is not None, living=living)
        before = self._records
        self._follow(listings)
        self._hidden.note(own, before, self._records, self._clock.monotonic_ns())
        self._read(_Meter(within), requested)
        over_shown, crowded_shown = self._leave_out(requested)
        over_followed, crowded = self._beyond
        over = over_shown.union(over_followed, *(one.over for one in listings))
        known = self._records.values()
        refused = (one.found for one in known if isinstance(one.found, Refusal))
        unread = [one.uid for one in known if not one.read_ns]
        left_out = [one for one in known if one.left_out]
        listed = sum(len(one.folders) + one.left_out for one in listings)
        counts = {"records": max(0, listed - len(self._records)), "ranks": len(left_out)}
        records = tuple(reading for one in known if (reading := one.reading) is not None)
        return RecordsReading(
            records=records,
            read_ns=self._read_ns if records else 0,
            refusals=(*chain.from_iterable(one.refusals for one in listings), *refused),
            problem="; ".join(self._problems(own)) or None,
            rooms=tuple(one.room for one in listings if one.room),
            more_refusals=sum(one.more_refusals for one in listings),
            unread=len(unread) + (not all(one.complete for one in listings)),
            unread_beyond=sum(uid in over for uid in unread),
            left_out={kind: count for kind, count in counts.items() if count},
            left_out_runs=frozenset((one.uid, one.run) for one in left_out),
            over=over,
            crowded=crowded or crowded_shown,
        )

    def _problems(self, own: Sequence[Listing]) -> Iterator[str]:
        """Of the own directories: no other user can cause one."""
        for path, listing in zip(self._paths, own, strict=True):
            if problem := listing.problem or self._hidden.problem(path):
                yield problem

    def _follow(self, listings: Sequence[Listing]) -> None:
        """Follow the listed records and no others: a fair part if there are too many."""
        folders = tuple(one.folders for one in listings)
        if folders == self._folders:
            return
        from warmwatch_monitor.sources.records.followed_record import FollowedRecord, Shared

        if self._shared is None:
            self._shared = Shared.on_this_host(self._boot)
        by_user: defaultdict[int, list[str]] = defaultdict(list)
        for uid, folder in chain.from_iterable(folders):
            by_user[uid].append(folder)
        self._shared.owners.expect(by_user)
        needs = {uid: len(of_one) for uid, of_one in by_user.items()}
        shares = fair_shares(needs, RECORDS_OF_A_USER, RECORDS)
        known, self._records = self._records, {}
        for uid, of_one in by_user.items():
            if len(of_one) > shares[uid]:  # living ones first, else the newest
                of_one.sort(key=lambda folder: folder not in known or not known[folder].alive)
            for folder in of_one[: shares[uid]]:
                self._records[folder] = known.get(folder) or FollowedRecord(
                    folder, uid, self._shared
                )
        for served in (self._served, self._served_journals):
            for uid in served.keys() - by_user.keys():
                del served[uid]
        self._folders = folders
        self._beyond = _beyond(needs, shares, RECORDS_ENOUGH)

    def _read(self, meter: _Meter, requested: frozenset[str]) -> None:
        """Read records until the time is over.

        Slots come first: one piece of a long journal takes as long as many of them.
        """
        if not self._records:
            return
        from warmwatch_monitor.sources.records.followed_journal import always, never
        from warmwatch_monitor.sources.records.followed_record import Poll

        self._polls += 1
        self._read_ns = now_ns = self._clock.monotonic_ns()
        epoch = self._clock.epoch()
        shown, newest = _shown_ranks(self._records.values(), now_ns)
        poll = Poll(
            now_ns=now_ns,
            epoch=epoch,
            retention_ns=self._retention_ns,
            limited=meter.limited,
            shown=shown,
            newest=newest,
        )
        by_user: defaultdict[int, list[FollowedRecord]] = defaultdict(list)
        for one in self._records.values():
            if one.is_due(poll) or (one.left_out and one.run in requested):
                by_user[one.uid].append(one)
        full = self._users_without_room()
        turn = self._polls % 2  # if there is time for one alone, they take turns
        order = {uid: _in_order(of_one, turn) for uid, of_one in by_user.items()}
        may_read = never if meter.limited else always
        living = {one.uid for one in chain.from_iterable(by_user.values()) if one.alive}
        for uid, one in self._turns(order, meter, self._served, living):
            one.read(poll, may_read=may_read, room=uid not in full or one.run in requested)
        self._read_long_journals(poll, meter)

    def _read_long_journals(self, poll: Poll, meter: _Meter) -> None:
        """Read one more piece of each, as far as there is time."""
        late: defaultdict[int, list[FollowedRecord]] = defaultdict(list)
        for one in self._records.values():
            if one.behind:
                late[one.uid].append(one)
        if not late:
            return
        from warmwatch_monitor.sources.records.followed_journal import once

        meter.allow_rest()
        living_first = {
            uid: iter(sorted(of_one, key=lambda one: not one.alive)) for uid, of_one in late.items()
        }
        for _, one in self._turns(living_first, meter, self._served_journals):
            one.read(poll, may_read=once())

    def _turns(
        self,
        order: Mapping[int, Iterator[FollowedRecord]],
        meter: _Meter,
        served: dict[int, int],
        living: Collection[int] = (),
    ) -> Iterator[tuple[int, FollowedRecord]]:
        """The next user: the one on whom the least time was spent.

        Among equals this user comes first, then those with ``living`` records, then the one
        ``served`` longest ago. The first of all always has its turn, and an urgent record of each
        user may take more time.
        """
        own = os.geteuid()
        turns = [(0.0, uid != own, uid not in living, served.get(uid, 0), uid) for uid in order]
        turns.sort()
        began, begun = meter.measure() if len(turns) > 1 else 0.0, False
        while turns:
            spent, other, dead, last, uid = turns.pop(0)
            one = next(order[uid], None)
            if one is None or (begun and meter.is_over(urgent=not spent and one.urgent)):
                continue
            yield uid, one
            served[uid], begun = self._polls, True
            now = meter.measure() if turns else began  # no other user waits
            spent, began = spent + max(1e-6, now - began), now
            insort(turns, (spent, other, dead, last, uid))

    def _users_without_room(self) -> frozenset[int]:
        """The users whose left-out records may not come back, since the answer has no room for
        them."""
        if sum(self._shown.values()) < SHOWN:
            return frozenset()
        users = {one.uid for one in self._records.values()}
        return frozenset(uid for uid in users if self._shown.get(uid, 0) >= SHOWN // len(users))

    def _leave_out(self, requested: frozenset[str]) -> tuple[frozenset[int], bool]:
        """Show no more of a user, and of all, than fits into an answer.

        Returns the users who have more than their share, and whether a share is too small.
        """
        known = self._records.values()
        if sum(one.weight for one in known) < SHOWN and not any(one.left_out for one in known):
            self._shown = {}  # all have room
            return frozenset(), False
        shown: defaultdict[int, list[FollowedRecord]] = defaultdict(list)
        for one in known:
            if one.reading is not None:
                shown[one.uid].append(one)
        needs = {uid: sum(one.weight for one in of_one) for uid, of_one in shown.items()}
        users = {one.uid for one in self._records.values() if one.left_out}.union(shown)
        if len(users) > SHOWN:  # not even one rank each: users without a living one come last
            living = {uid: n for uid, n in needs.items() if any(one.alive for one in shown[uid])}
            shares = fair_shares(living, SHOWN_OF_A_USER, SHOWN)
            others = {uid: n for uid, n in needs.items() if uid not in living}
            shares |= fair_shares(others, SHOWN_OF_A_USER, SHOWN - sum(shares.values()))
        else:
            shares = fair_shares(needs, SHOWN_OF_A_USER, SHOWN)
        now_ns = self._clock.monotonic_ns()
        for uid, of_one in shown.items():
            if needs[uid] <= shares[uid]:
                continue
            room = shares[uid]
            for one in sorted(of_one, key=lambda one: _rank_of(one, requested), reverse=True):
                room -= one.weight
                if room < 0:
                    one.leave_out(now_ns)
        self._shown = {uid: min(need, shares[uid]) for uid, need in needs.items()}
        # A record that was left out is read again only later: it still counts for its user.
        over = {one.uid for one in self._records.values() if one.left_out}
        return frozenset(over), any(shares.get(uid, 0) < SHOWN_ENOUGH for uid in over)


def _beyond(
    needs: Mapping[int, int], shares: Mapping[int, int], enough: int
) -> tuple[frozenset[int], bool]:
    """The users who need more than their share, and whether one of their shares is too small."""
    over = frozenset(uid for uid, need in needs.items() if need > shares[uid])
    return over, any(shares[uid] < enough for uid in over)


def _shown_ranks(
    records: Collection[FollowedRecord], now_ns: int
) -> tuple[Mapping[Start, set[int]], Mapping[tuple[Start, int], tuple[bool, int]]]:
    """The ranks of each start that is shown, and when the newest process of each of them began."""
    if not any(one.until_ns < now_ns for one in records):
        return {}, {}  # none is missing
    shown: defaultdict[Start, set[int]] = defaultdict(set)
    for one in records:
        if one.start and one.is_shown_at(now_ns):
            shown[one.start].add(one.rank)
    newest: dict[tuple[Start, int], tuple[bool, int]] = {}
    for one in records:
        if one.start and one.start in shown:
            rank = one.start, one.rank
            newest[rank] = max(one.began, newest.get(rank, one.began))
    return shown, newest


def _in_order(records: Iterable[FollowedRecord], turn: int) -> Iterator[FollowedRecord]:
    """Living and unread ones in turn, then the others; the least recently read first."""
    living: list[FollowedRecord] = []
    unread: list[FollowedRecord] = []
    others: list[FollowedRecord] = []
    for one in sorted(records, key=lambda one: one.read_ns):
        (living if one.alive else others if one.read_ns else unread).append(one)
    pairs = zip_longest(*((living, unread) if turn else (unread, living)))
    yield from (one for pair in pairs for one in pair if one is not None)
    yield from others


def _rank_of(one: FollowedRecord, requested: frozenset[str]) -> tuple[bool, bool, bool, int, str]:
    """The order of display: living ranks, first requested ones, then the newest."""
    assert one.reading is not None
    return one.alive, one.run in requested, *one.reading.began, one.folder


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

    def measure(self) -> float:
        """The CPU seconds spent so far. The kernel counts them: a call takes some microseconds."""
        return time.thread_time() - self._began

    def is_over(self, *, urgent: bool) -> bool:
        """Whether to stop reading; ``urgent``: an urgent record of a user without any yet."""
        if self._seconds is None:
            return False
        took = time.monotonic() - self._began_at  # never less than the CPU time
        if took > POLL_LONGEST:
            return True
        allowed = URGENT_SECONDS if urgent else min(self._allowed, URGENT_SECONDS)
        return took > allowed and self.measure() > allowed
