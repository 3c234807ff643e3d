"""The records source: all records of all record directories, as one list of readings.

Invariants: nothing is ever written, mapped or locked. What cannot be read is a Refusal with its
path and a sentence, and costs the other records nothing. A record that said its end is read for a
moment more and then kept as it was until its retention is over; one whose process is gone without a
word may live again (see ``life``), so it is looked at for as long as its folder is there, rarely
once its retention is over.

A poll has a budget of CPU time, which users share fairly (``budgets``): this user's own records and
each user's living ones come first, and what is not read in one poll is read in the next ones. Until
all were read, the reading says how many were not.
"""

from __future__ import annotations

import heapq
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import cast

from msgspec import Struct, field

from warmwatch.shared import record
from warmwatch.shared.record import Identity, RecordError, Slot
from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model import Death, Owner, RecordReading, Refusal, last_sign_ns
from warmwatch_monitor.model.budgets import (
    LISTING_SECONDS,
    NAME_UNIT,
    POLL_LONGEST,
    RECORDS,
    RECORDS_ENOUGH,
    RECORDS_OF_A_USER,
    SHOWN,
    SHOWN_ENOUGH,
    SHOWN_OF_A_USER,
    TEXT_UNIT,
    fair_shares,
)
from warmwatch_monitor.sources.records.directory import RecordDirectory
from warmwatch_monitor.sources.records.folder import Ending, ExitWatch, Folder, at_the_end, left_by
from warmwatch_monitor.sources.records.journal import Journal
from warmwatch_monitor.sources.records.liveness import Life
from warmwatch_monitor.sources.records.origin import Origin, Owners, here
from warmwatch_monitor.sources.records.slot import Look, SlotFile

_REVISIT_NS = 10 * 10**9  # how often one is looked at that is over, though it said no end
_SHARE_OF_SLOTS = 0.6  # of a poll's time; the rest is for journals that were never read
_REFUSED_AGAIN_NS = 10**9  # how often one is looked at that was refused, where time is short


class RecordsReading(Struct, frozen=True, kw_only=True):
    """All records that can be read, and what cannot.

    Attributes:
        problem: record directories that cannot be read now, in words; ``None`` where all can.
        more_refusals: how many there are beside ``refusals``.
        unread: how many records were not read yet; at least 1 while a directory is being listed.
        left_out: what is not in ``records`` because it is beyond a budget, by kind.
        over: the users who own records that are left out.
        crowded: whether a user's share of a total is so small that an honest user's run may be
        among what is left out.
    """

    records: tuple[RecordReading, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problem: str | None = None
    more_refusals: int = 0
    unread: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    over: frozenset[int] = frozenset()
    crowded: bool = False

    @property
    def unread_bytes(self) -> int:
        """Of all journals, what is left to the next polls."""
        return sum(one.unread_bytes for one in self.records)


class RecordsSource:
    """Reads the record directories. ``retention`` is in seconds."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        retention: float,
        clock: Clock | None = None,
        boot: str | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._origin = here() if boot is None else Origin(boot=boot, offset_ns=None)
        self._retention_ns = int(retention * 1e9)
        chosen = len(directories) == 1
        self._directories = [
            RecordDirectory(path, self._clock, chosen=chosen) for path in directories
        ]
        self._owners, self._exits = Owners(), ExitWatch()
        self._records: dict[str, _Record] = {}
        self._served: dict[int, int] = {}  # by user, the last poll in which a record was read
        self._polls = 0

    def read(self, within: float | None = None) -> RecordsReading:
        """Look at everything once; ``within``: at as much as this CPU time is enough for."""
        listings = [
            one.look(None if within is None else LISTING_SECONDS) for one in self._directories
        ]
        over, crowded = self._follow(chain.from_iterable(one.folders for one in listings))
        self._look(_Meter(within))
        over_shown, crowded_shown = self._crowd_out()
        known = self._records.values()
        found = [one.found for one in known]
        refusals = [one for listing in listings for one in listing.refusals]
        listed = sum(len(one.folders) + one.left_out for one in listings)
        left_out = {
            "records": max(0, listed - len(known)),
            "ranks": sum(one.crowded_out for one in known),
        }
        return RecordsReading(
            records=tuple(one for one in found if isinstance(one, RecordReading)),
            refusals=(*refusals, *(one for one in found if isinstance(one, Refusal))),
            problem="; ".join(one.problem for one in listings if one.problem) or None,
            more_refusals=sum(one.more_refusals for one in listings),
            unread=sum(one.unread for one in known) + (not all(one.complete for one in listings)),
            left_out={kind: count for kind, count in left_out.items() if count},
            over=over.union(over_shown, *(one.over for one in listings)),
            crowded=crowded or crowded_shown,
        )

    def _follow(self, folders: Iterable[tuple[int, str]]) -> tuple[frozenset[int], bool]:
        """Follow the records in ``folders`` and no others: a fair part where there are too many.

        Returns the users who have more than their share, and whether a share is too small.
        """
        by_user: defaultdict[int, list[str]] = defaultdict(list)
        for uid, folder in folders:
            by_user[uid].append(folder)
        needs = {uid: len(of_one) for uid, of_one in by_user.items()}
        shares = fair_shares(needs, RECORDS_OF_A_USER, RECORDS)
        known, self._records = self._records, {}
        shared = self._origin, self._owners, self._exits
        for uid, of_one in by_user.items():
            if len(of_one) > shares[uid]:  # living ones first, else the newest
                of_one.sort(key=lambda folder: folder not in known or not known[folder].alive)
            for folder in of_one[: shares[uid]]:
                self._records[folder] = known.get(folder) or _Record(folder, uid, *shared)
        self._served = {uid: poll for uid, poll in self._served.items() if uid in by_user}
        return _beyond(needs, shares, RECORDS_ENOUGH)

    def _look(self, meter: _Meter) -> None:
        """Look at the records, this user's and living ones first, until the time is over.

        First at what is small: one piece of a long journal takes as long as many records.
        """
        self._polls += 1
        now_ns, epoch = self._clock.monotonic_ns(), self._clock.epoch()
        moment = _Moment(now_ns=now_ns, epoch=epoch, retention_ns=self._retention_ns)
        by_user: defaultdict[int, list[_Record]] = defaultdict(list)
        for one in self._records.values():
            if one.is_due(now_ns, hurried=meter.limited):
                by_user[one.uid].append(one)
        turn = self._polls % 2  # where there is time for one alone, they take turns
        order = {uid: _in_order(of_one, turn) for uid, of_one in by_user.items()}
        for uid, one in self._turns(order, meter):
            one.look(moment, may_read=_no if meter.limited else _yes)
            self._served[uid] = self._polls
        late: defaultdict[int, list[_Record]] = defaultdict(list)
        for one in self._records.values():
            if one.behind:
                late[one.uid].append(one)
        meter.allow_rest()
        living_first = {
            uid: iter(sorted(of_one, key=_living_first)) for uid, of_one in late.items()
        }
        for _, one in self._turns(living_first, meter):
            one.look(moment, may_read=_one_piece())

    def _turns(
        self, order: Mapping[int, Iterator[_Record]], meter: _Meter
    ) -> Iterator[tuple[int, _Record]]:
        """Whose turn it is: the user on whom the least time was spent; everybody has one turn.

        Among equals this user comes first, then who was not served for longest.
        """
        own = os.geteuid()
        turns = [(0.0, uid != own, self._served.get(uid, 0), uid) for uid in order]
        heapq.heapify(turns)
        while turns:
            spent, other, served, uid = heapq.heappop(turns)
            if meter.is_over(first=not spent):
                continue
            one = next(order[uid], None)
            if one is not None:
                began = meter.spent()
                yield uid, one
                spent += max(1e-6, meter.spent() - began)
                heapq.heappush(turns, (spent, other, served, uid))

    def _crowd_out(self) -> tuple[frozenset[int], bool]:
        """Show no more of a user, and of all, than an answer has room for.

        Returns the users who have more than their share, and whether a share is too small.
        """
        shown: defaultdict[int, list[_Record]] = defaultdict(list)
        for one in self._records.values():
            if isinstance(one.found, RecordReading):
                shown[one.uid].append(one)
        needs = {uid: sum(one.weight for one in of_one) for uid, of_one in shown.items()}
        users = {one.uid for one in self._records.values() if one.crowded_out}.union(shown)
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
            for one in sorted(of_one, key=_rank_of, reverse=True):
                room -= one.weight
                if room < 0:
                    one.crowd_out(now_ns)
        # A record that was crowded out is read again only later: it still belongs to its user.
        over = {one.uid for one in self._records.values() if one.crowded_out}
        return frozenset(over), any(shares.get(uid, 0) < SHOWN_ENOUGH for uid in over)


def _beyond(
    needs: Mapping[int, int], shares: Mapping[int, int], enough: int
) -> tuple[frozenset[int], bool]:
    """The users who need more than their share, and whether one of their shares is too small."""
    over = frozenset(uid for uid, need in needs.items() if need > shares[uid])
    return over, any(shares[uid] < enough for uid in over)


def _in_order(records: list[_Record], turn: int) -> Iterator[_Record]:
    """Living ones and the others in turn, of each the one that was not looked at for longest."""
    records.sort(key=lambda one: one.looked_ns)
    living = [one for one in records if one.alive]
    others = [one for one in records if not one.alive]
    pairs = zip_longest(*((living, others) if turn else (others, living)))
    return (one for pair in pairs for one in pair if one is not None)


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


def _one_piece() -> Callable[[], bool]:
    """Yes once."""
    pieces = iter((True,))
    return lambda: next(pieces, False)


def _living_first(one: _Record) -> bool:
    return not one.alive


def _rank_of(one: _Record) -> tuple[bool, bool, int, str]:
    """What is shown first where there is no room for all: what lives, then what began last."""
    assert isinstance(one.found, RecordReading)
    return one.alive, *one.found.began, one.folder


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

    def spent(self) -> float:
        return time.thread_time() - self._began

    def is_over(self, *, first: bool) -> bool:
        """Whether nothing more is begun; ``first``: for who had nothing yet."""
        if self._seconds is None:
            return False
        if time.monotonic() - self._began_at > POLL_LONGEST:
            return True
        return not first and self.spent() > self._allowed


class _Moment(Struct, frozen=True, kw_only=True):
    """When a poll takes place, and how long what ended is shown."""

    now_ns: int
    epoch: float
    retention_ns: int


class _Record:
    """One record followed over time.

    Attributes:
        folder, uid: its folder, and the number of the user who owned that when it was listed.
        found: its reading; why there is none; or ``None`` where it is over, or was removed.
        looked_ns: when it was looked at last, 0 before the first time.
        alive: whether its process lived then.
        crowded_out: whether it is left out because the answer has no room for it.
    """

    def __init__(
        self, folder: str, uid: int, origin: Origin, owners: Owners, exits: ExitWatch
    ) -> None:
        self.folder, self.uid = folder, uid
        self.found: RecordReading | Refusal | None = None
        self.looked_ns = 0
        self.crowded_out = False
        self._origin, self._owners, self._exits = origin, owners, exits
        self._ending: Ending | None = None  # of its process, where that was seen alive
        self._slot, self._kept_journal = SlotFile(), cast("Journal | None", None)
        self._life = Life()
        self._text_bytes = 0
        self._modified = 0.0
        self._revisit_ns: int | None = None
        self._over = False
        self._broken = False  # whether the reading is that of a promise that was not kept
        self._reading: RecordReading | None = None
        self._read_from: Slot | None = None
        self._shown: tuple[Identity, Identity] | None = None  # as written, and as its owner's

    @property
    def alive(self) -> bool:
        return self._life.alive

    @property
    def _journal(self) -> Journal:
        """Made when it is needed: of most records nothing is kept."""
        if self._kept_journal is None:
            self._kept_journal = Journal()
        return self._kept_journal

    @property
    def unread(self) -> bool:
        """Whether nobody can tell yet what it holds."""
        return not self.looked_ns

    @property
    def behind(self) -> bool:
        """Whether it is shown, and its journal was not read to its end."""
        return isinstance(self.found, RecordReading) and self.found.unread_bytes > 0

    @property
    def weight(self) -> int:
        """For how many ranks it counts where room is short."""
        known = self._reading
        name = len(known.slot.identity.run.encode()) if known else 0
        return 1 + name // NAME_UNIT + self._text_bytes // TEXT_UNIT

    def is_due(self, now_ns: int, *, hurried: bool) -> bool:
        """Whether to look at it now; ``hurried``: where time is short."""
        if self._over:
            return False
        if hurried and isinstance(self.found, Refusal):
            return now_ns - self.looked_ns >= _REFUSED_AGAIN_NS
        return self._revisit_ns is None or now_ns >= self._revisit_ns

    def look(self, moment: _Moment, *, may_read: Callable[[], bool] = _yes) -> None:
        """Read what changed; ``may_read``: whether to read one more piece of a long journal."""
        self.found = self._look(moment, may_read)
        self.looked_ns, self.crowded_out = moment.now_ns, False

    def crowd_out(self, now_ns: int) -> None:
        """There is no room for it now; nothing of it is kept."""
        self.found, self.crowded_out = None, True
        self._forget(now_ns, _REVISIT_NS)

    def _look(
        self, moment: _Moment, may_read: Callable[[], bool]
    ) -> RecordReading | Refusal | None:
        try:
            reading = self._read(moment.now_ns, may_read)
        except FileNotFoundError:
            if not os.path.isdir(self.folder):  # noqa: PTH112 - Path's raises where it may not ask
                return None
            return Refusal(path=self.folder, reason=f"it holds no {record.SLOT!r}")
        except (OSError, RecordError) as error:
            return Refusal(path=self.folder, reason=_sentence(error))
        ago_ns = self._ended_ago_ns(reading, moment.now_ns, moment.epoch)
        if ago_ns <= moment.retention_ns:
            self._revisit_ns = None
            return reading
        ended = bool(reading.slot.compile.end_code)
        self._forget(moment.now_ns, _REVISIT_NS, final=self._life.rests and ended)
        return None

    def _forget(self, now_ns: int, revisit_ns: int, *, final: bool = False) -> None:
        """It is over: its folder may stay for weeks, what was read of it need not."""
        self._over, self._revisit_ns = final, now_ns + revisit_ns
        self._reading = self._read_from = self._shown = None
        self._slot.forget()
        self._kept_journal, self._text_bytes = None, 0

    def _read(self, now_ns: int, may_read: Callable[[], bool]) -> RecordReading:
        known = self._reading
        settled = known is not None and self._life.rests and known.slot.compile.end_code
        unread = self._journal.unread_bytes
        if known is not None and settled and not (unread and may_read is not _no):
            return known
        with Folder(self.folder) as folder:
            look = self._slot.look(folder)
            if (problem := self._origin.problem(look.slot.identity)) is not None:
                raise RecordError(problem)
            if news := self._journal.follow(folder, may_read):
                self._text_bytes = self._journal.text_bytes
            news = news or self._journal.unread_bytes != unread
            self._life.note(look, now_ns, ours=self._origin.shares_boot(look.slot.identity))
            if self._life.pid is not None:
                self._ending = self._exits.follow(self._life.pid) or self._ending
            self._modified = look.modified
            if known is None or news or self._kept_after_all(folder) or not self._same(known, look):
                self._reading = known = self._make(look, folder)
        return known

    def _same(self, known: RecordReading, look: Look) -> bool:
        now = (self._life.alive, self._life.pid, self._life.gone_ns, self._death())
        before = (known.alive, known.pid, known.gone_ns, known.death)
        return self._read_from is look.slot and before == now

    def _death(self) -> Death | None:
        return None if self._life.alive or self._ending is None else self._ending.death

    def _kept_after_all(self, folder: Folder) -> bool:
        """Whether the exit status has come that was taken for a broken promise.

        A process that cannot be asked (in another pid namespace) may free its lock before it.
        """
        return self._broken and not record.broken_promise(left_by(folder))

    def _make(self, look: Look, folder: Folder) -> RecordReading:
        alive, owner = self._life.alive, self._owners.of(look.owner)
        behind = self._journal.unread_bytes > 0
        torn = self._journal.torn_end and not alive  # nobody will complete that line
        self._read_from = slot = look.slot
        left = b"" if alive else left_by(folder)
        self._broken = record.broken_promise(left)
        if not alive:
            slot = replace(slot, compile=at_the_end(slot.compile, left))
        return RecordReading(
            folder=self.folder,
            slot=self._as_shown(slot, owner),
            alive=alive,
            owner=owner,
            pid=self._life.pid,
            gone_ns=self._life.gone_ns,
            death=self._death(),
            compilations=self._journal.compilations,
            fallbacks=self._journal.fallbacks,
            skips=self._journal.skips,
            # of a journal that is behind, the last one read is not the last one
            beginning=None if behind else self._journal.beginning,
            recompile=None if behind else self._journal.recompile,
            breaks=self._journal.breaks,
            varying=self._journal.varying.dims,
            warm_since=self._journal.varying.warm_since,
            functions=self._journal.functions,
            long_steps=self._journal.long_steps,
            exception=self._journal.exception,
            raised=self._journal.raised,
            broken_lines=self._journal.broken_lines + torn,
            unread_bytes=self._journal.unread_bytes,
            skipped_bytes=self._journal.skipped_bytes,
            this_boot=self._origin.shares_boot(slot.identity),
        )

    def _as_shown(self, slot: Slot, owner: Owner) -> Slot:
        """``slot`` with the run called as its owner's is; the same object for what is the same."""
        identity = slot.identity
        if (run := owner.shown(identity.run)) == identity.run:
            return slot
        if self._shown is None or self._shown[0] is not identity or self._shown[1].run != run:
            self._shown = identity, replace(identity, run=run)
        return replace(slot, identity=self._shown[1])

    def _ended_ago_ns(self, reading: RecordReading, now_ns: int, epoch: float) -> int:
        """How long ago its process ended, as well as this reader can know; 0 while it lives."""
        slot, counts = reading.slot, reading.slot.compile
        if reading.alive and record.ENDS[counts.end_code] in ("", "finished"):  # still at its end
            return 0
        ended_ns = counts.ended_ns or reading.gone_ns
        if ended_ns and self._origin.shares_boot(slot.identity):
            return max(0, now_ns - ended_ns)
        if ended_ns:
            return int((epoch - slot.header.epoch_seconds(ended_ns)) * 1e9)
        # On tmpfs a store to mapped memory does not move the mtime: the slot's own times count too.
        last = max(self._modified, slot.header.epoch_seconds(last_sign_ns(slot)))
        return max(0, int((epoch - last) * 1e9))


def _sentence(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "it cannot be read: permission denied; run warmwatch as the user who trains"
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or error}"
    return str(error)
