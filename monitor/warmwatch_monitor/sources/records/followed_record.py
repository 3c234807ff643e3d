"""One record, followed over many polls: what was read, and when to read it again.

A record that reported its end is read for a moment more. Then it stays as it was until the
retention of its run is over, and longer while its launcher may start its rank again. A process that
disappeared without an exit record may write again (see ``liveness``). So its record is read for as
long as its folder is there, but less often.

Its journal is followed, too, and the file ``workers``: what the workers of its DataLoaders compile.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch.shared.record import Identity, RecordError, Slot, workers_file
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.budgets import NAME_UNIT, TEXT_UNIT
from warmwatch_monitor.model.records import (
    Death,
    Journaled,
    Owner,
    RecordReading,
    WorkerCompilations,
    last_sign_ns,
)
from warmwatch_monitor.sources.records.folder import (
    Ending,
    ExitWatch,
    Folder,
    SlotFile,
    SlotReading,
    at_the_end,
    left_by,
)
from warmwatch_monitor.sources.records.journal_sums import JournalSums
from warmwatch_monitor.sources.records.liveness import Life, Origin, Owners, here, launcher_lives
from warmwatch_monitor.sources.records.parsed_journal import LARGEST_JOURNAL, parse

CHUNK = 256 * 1024
_SMALL = 16 * 1024  # read in any case: an agent writes less between two polls


def always() -> bool:
    """Read all of a journal."""
    return True


def never() -> bool:
    """Leave a long journal to a later poll."""
    return False


def once() -> Callable[[], bool]:
    """Read one piece of a long journal."""
    pieces = iter((True,))
    return lambda: next(pieces, False)


class Journal:
    """One journal, followed from a stored offset: its sums are what :meth:`follow` has read so far.

    Torn or foreign lines are counted and skipped. A long journal is read from its start in pieces,
    over several polls if the caller's budget ends (``unread_bytes``): sums over all lines need each
    of them. A journal larger than any agent writes is read from near its end; ``skipped_bytes``
    counts the rest.

    Attributes:
        sums: what its lines add up to. broken_lines: torn or foreign ones.
        unread_bytes: appended, and left to a later poll. skipped_bytes: never read.
    """

    def __init__(self) -> None:
        self.sums = JournalSums()
        self.broken_lines = self.unread_bytes = self.skipped_bytes = 0
        self._offset, self._rest = 0, b""

    @property
    def torn_end(self) -> bool:
        """Whether it ends, as far as it was read, in an incomplete line."""
        return bool(self._rest)

    def follow(self, folder: Folder, may_read: Callable[[], bool] = always) -> bool:
        """Read what was appended; returns whether anything was read. A missing journal is empty.

        ``may_read`` is called before each large piece. If it returns false, the rest waits for the
        next call.

        Raises:
            OSError: it exists and cannot be read. RecordError: it has another owner than the
            folder.
        """
        try:
            size = folder.size(record.JOURNAL)
            if size == self._offset + len(self._rest):
                return False
            if size - self._offset > _SMALL and not may_read():
                self.unread_bytes = min(size - self._offset - len(self._rest), LARGEST_JOURNAL)
                return False
            descriptor, _ = folder.open(record.JOURNAL)
        except FileNotFoundError:
            return False
        try:
            self._start(descriptor, size)
            while self._chunk(descriptor) and (size - self._offset <= _SMALL or may_read()):
                pass
        finally:
            os.close(descriptor)
        self.unread_bytes = max(0, size - self._offset - len(self._rest))
        return True

    def _start(self, descriptor: int, size: int) -> None:
        """Where to continue: at the start if it was cut, near the end if it is too large."""
        if self._offset > size:
            self.sums = JournalSums()
            self._offset = self.skipped_bytes = 0
        if size - self._offset > LARGEST_JOURNAL:
            near_end = size - CHUNK
            near_end += os.pread(descriptor, CHUNK, near_end).find(b"\n") + 1
            self.skipped_bytes += near_end - self._offset
            self._offset = near_end
            self.sums.was_warm = True  # most likely: the skipped part has the first warm-up

    def _chunk(self, descriptor: int) -> bool:
        """Parse the complete lines of the next chunk; returns whether there may be more."""
        data = os.pread(descriptor, CHUNK, self._offset)
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if not end and len(data) == CHUNK:  # a line as long as a chunk: no agent writes that
            end, self._rest = len(data), b""
        for line in data[:end].splitlines():
            self._take(line)
        self._offset += end
        return len(data) == CHUNK

    def _take(self, line: bytes) -> None:
        try:
            entry = parse(line)
        except ValueError:
            self.broken_lines += 1
        else:
            if entry is not None:
                self.sums.add(entry)


def compiling_workers(folder: Folder) -> WorkerCompilations | None:
    """What they compile; ``None`` if none has compiled, or the file cannot be read.

    The activity of a worker that was killed in it counts no longer: its entry is not held.
    """
    try:
        descriptor, _ = folder.open(record.WORKERS)
    except (OSError, RecordError):
        return None
    try:
        entries = workers_file.unpack(
            os.pread(descriptor, workers_file.MOST * workers_file.SIZE, 0)
        )
        used = [(at, entry) for at, entry in enumerate(entries) if entry.processes]
        if not used:
            return None
        active = [entry for at, entry in used if entry.since_ns and _is_held(descriptor, at)]
        latest = max(
            (entry for _, entry in used), key=lambda item: max(item.since_ns, item.last_end_ns)
        )
        return WorkerCompilations(
            since_ns=tuple(sorted(entry.since_ns for entry in active)),
            processes=sum(entry.processes for _, entry in used),
            at_once=len(used),
            compile_ns=sum(entry.compile_ns for _, entry in used),
            name=latest.name or None,
        )
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, index: int) -> bool:
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, workers_file.lock_question(index))
    return workers_file.is_held(answer)


_REVISIT_NS = 10 * 10**9  # of a record that is over without an exit record, or was left out
_RESTING_NS = 10**9  # of one whose process disappeared and that moves no more
_REFUSED_NS = 10**9  # of a refused record, if a poll's time is limited
_RECHECK_NS = 60 * 10**9  # of one that was left out, whole, since its retention may be over
_NEVER_NS = 2**63
# what a reading has of the sums of its journal under the same name
_SUMS = {*Journaled.__struct_fields__, "slowed", "exception", "raised", "refusal"} - {
    *("varying", "functions", "recordings"),
}


Start = tuple[int, str, str, int]  # of a run: its user, name, launch and attempt


class Poll(Struct, frozen=True, kw_only=True):
    """When a poll takes place, whether its time is limited, and how long ended runs are shown.

    ``shown``: of each start, the ranks that live or ended within the retention. ``newest``: when
    the newest process of each rank of these starts began.
    """

    now_ns: int
    epoch: float
    retention_ns: int
    limited: bool = False
    shown: Mapping[Start, set[int]] = MappingProxyType({})
    newest: Mapping[tuple[Start, int], tuple[bool, int]] = MappingProxyType({})


class Shared(Struct, frozen=True, kw_only=True):
    """What the records of a host share: the origin of their times, their owners, their exits."""

    origin: Origin
    owners: Owners
    exits: ExitWatch

    @classmethod
    def on_this_host(cls, boot: str | None = None) -> Shared:
        """``boot``: the kernel's id of it, if not the running one's."""
        origin = here() if boot is None else Origin(boot=boot, offset_ns=None)
        return cls(origin=origin, owners=Owners(), exits=ExitWatch())


class FollowedRecord:
    """One record followed over time.

    Attributes:
        folder, uid: its folder, and the user who owned that when it was listed.
        found: its reading; why there is none; or ``None`` if it is over, was removed or left out.
        alive: whether its process lived when it was read last.
        read_ns: when it was read last, 0 before the first time. due_ns: when to read it again.
        left_out: whether the answer has no room for it. weight: how many ranks it counts for in the
        limits. run, start, rank, began: as read last.
        until_ns: until when it is shown for itself: its retention after its end, or while its rank
            may be started again.
    """

    def __init__(self, folder: str, uid: int, shared: Shared) -> None:
        self.folder, self.uid = folder, uid
        self.found: RecordReading | Refusal | None = None
        self.alive = False
        self.read_ns = self.due_ns = self._read_whole_ns = 0
        self.left_out, self.weight = False, 1
        self.run, self.start, self.rank = "", cast("Start | None", None), 0
        self.began = False, 0
        self.until_ns = 0
        self._origin, self._owners, self._exits = shared.origin, shared.owners, shared.exits
        self._ending: Ending | None = None  # of its process, if that was seen alive
        self._slot, self._cached_journal = SlotFile(), cast("Journal | None", None)
        self._life = Life()
        self._text_bytes = 0
        self._modified = 0.0
        self._left = b""  # the exit status that the process of the reading has left
        self._last_reading: RecordReading | None = None
        self._read_from: Slot | None = None
        self._identity: Identity | None = None  # that of the last slot
        self._ours = True  # whether it is of this boot
        self._shown: tuple[Identity, Identity] | None = None  # as written, and as shown

    @property
    def reading(self) -> RecordReading | None:
        """What was found, if that is a reading."""
        return self.found if isinstance(self.found, RecordReading) else None

    @property
    def _journal(self) -> Journal:
        """Made on first use: most records leave nothing in memory."""
        if self._cached_journal is None:
            self._cached_journal = Journal()
        return self._cached_journal

    @property
    def behind(self) -> bool:
        """Whether it is shown, and its journal was not read to its end."""
        return isinstance(self.found, RecordReading) and self.found.unread_bytes > 0

    def is_due(self, poll: Poll) -> bool:
        forgotten = self.found is None and not self.left_out
        return self.due_ns <= poll.now_ns or (forgotten and self._is_missing(poll))

    def _is_missing(self, poll: Poll) -> bool:
        """Whether its end counts: others of its start are shown, but no process of its rank.

        Of several processes of one rank, the newest counts.
        """
        shown = poll.shown.get(self.start) if self.start else None
        if not self.start or shown is None or self.rank in shown:
            return False
        return poll.newest.get((self.start, self.rank), self.began) <= self.began

    def is_shown_at(self, now_ns: int) -> bool:
        """Whether it lives or ended within the retention, by the last reading."""
        return self.until_ns >= now_ns

    def lives_at(self, now_ns: int) -> bool:
        """Whether its process lives on, as far as is known without its record.

        A process of another pid namespace counts as living for the retention.
        """
        return not self._ending.at_ns if self._ending else self.until_ns >= now_ns

    def read(self, poll: Poll, *, may_read: Callable[[], bool], room: bool = True) -> None:
        """Read what changed.

        ``may_read``: whether to read one more piece of a long journal. ``room``: whether a record
        that was left out may come back; if not, it is only checked for changes.
        """
        recent = poll.now_ns - self._read_whole_ns < _RECHECK_NS
        if self.left_out and not room and recent and self._rests_unchanged():
            self.read_ns, self.due_ns = poll.now_ns, poll.now_ns + _REVISIT_NS
            return
        self.due_ns, self.left_out = 0, False
        self.found = self._poll(poll, may_read)
        self.read_ns = self._read_whole_ns = poll.now_ns
        if isinstance(self.found, Refusal) and poll.limited:
            self.due_ns = poll.now_ns + _REFUSED_NS

    def leave_out(self, now_ns: int) -> None:
        """The answer has no room for it now; forget all but its name."""
        self.found, self.left_out = None, True
        self._forget(now_ns + _REVISIT_NS)

    def _rests_unchanged(self) -> bool:
        """Whether its process is gone, and its slot is as it was when it was left out."""
        try:
            with Folder(self.folder) as folder:
                return not self.alive and self._slot.is_as_forgotten(folder)
        except (OSError, RecordError):
            return False

    def _poll(self, poll: Poll, may_read: Callable[[], bool]) -> RecordReading | Refusal | None:
        try:
            reading = self._read(poll.now_ns, may_read)
            reading = self._with_launcher(reading)
        except FileNotFoundError:
            if not os.path.isdir(self.folder):  # Path's raises where it may not ask
                return None
            return Refusal(path=self.folder, reason=f"it holds no {record.SLOT!r}")
        except (OSError, RecordError) as error:
            return Refusal(path=self.folder, reason=_sentence(error))
        rests, ended = self._life.rests, bool(reading.slot.compile.end_code)
        ended_ago_ns = self._ended_ago_ns(reading, poll.now_ns, poll.epoch)
        self.until_ns = poll.now_ns + poll.retention_ns - ended_ago_ns
        if not self.is_shown_at(poll.now_ns) and self._may_return(reading, poll):
            self.until_ns = poll.now_ns + _REVISIT_NS
        if self.is_shown_at(poll.now_ns) or self._is_missing(poll):
            if rests and poll.limited and not reading.unread_bytes:
                self.due_ns = poll.now_ns + _RESTING_NS
            return reading
        self._forget(_NEVER_NS if rests and ended else poll.now_ns + _REVISIT_NS)
        return None

    def _with_launcher(self, reading: RecordReading) -> RecordReading:
        """``reading``; of an ended rank, with whether it may be started again. A "no" is final."""
        if reading.alive or reading.restart_possible is False:
            return reading
        how = record.ENDS[reading.slot.compile.end_code]
        ended_well = how == "finished" or not self._ours
        possible = not ended_well and launcher_lives(reading.slot.identity) is not False
        if possible != reading.restart_possible:
            self._last_reading = reading = replace(reading, restart_possible=possible)
        return reading

    def _may_return(self, reading: RecordReading, poll: Poll) -> bool:
        """Whether its launcher may start its rank again: it lives, and has not done so."""
        identity, how = reading.slot.identity, record.ENDS[reading.slot.compile.end_code]
        if how == "finished" or not self._ours or not launcher_lives(identity):
            return False
        uid, run, launch, attempt = cast("Start", self.start)
        return not any(
            start[:3] == (uid, run, launch) and start[3] > attempt for start in poll.shown
        )

    def _forget(self, due_ns: int) -> None:
        """Its folder may stay for weeks; what was read of it does not stay in memory."""
        self.due_ns = due_ns
        self._last_reading = self._read_from = self._identity = self._shown = None
        self._slot.forget()
        self._cached_journal, self._text_bytes = None, 0

    def _read(self, now_ns: int, may_read: Callable[[], bool]) -> RecordReading:
        reading = self._last_reading
        settled = reading is not None and self._life.rests and reading.slot.compile.end_code
        journal = self._journal
        unread = journal.unread_bytes
        if reading is not None and settled and not (unread and may_read is not never):
            return reading
        with Folder(self.folder) as folder:
            slot_reading = self._slot.read(folder)
            if slot_reading.slot.identity is not self._identity:
                self._identify(slot_reading.slot.identity)
            if news := journal.follow(folder, may_read):
                self._text_bytes = journal.sums.text_bytes()
            news = news or journal.unread_bytes != unread
            self._life.note(slot_reading, now_ns, ours=self._ours)
            self.alive = self._life.alive
            self._follow_exit()
            self._modified = slot_reading.modified
            if (
                reading is None
                or news
                or (record.broken_promise(self._left) and self._exit_came_late(folder))
                or not self._same(reading, slot_reading)
            ):
                self._last_reading = reading = self._make(slot_reading, folder)
                self.weight = self._weighed(slot_reading.slot.identity)
            elif self._read_from is not slot_reading.slot:
                self._read_from = slot_reading.slot
                slot = self._as_shown(slot_reading.slot, self._owners.of(slot_reading.owner))
                self._last_reading = reading = replace(reading, slot=slot)
            if (workers := compiling_workers(folder)) != reading.workers:
                self._last_reading = reading = replace(reading, workers=workers)
        self.began = reading.began
        return reading

    def _identify(self, identity: Identity) -> None:
        """Take over a new identity. Raises RecordError if its times cannot be read here."""
        if (problem := self._origin.problem(identity)) is not None:
            raise RecordError(problem)
        self._ours = self._origin.shares_boot(identity)
        self.run, self.rank = identity.run, identity.rank
        self.start = self.uid, identity.run, identity.launch, identity.attempt
        self._identity = identity

    def _follow_exit(self) -> None:
        """Wait for the end of its process, unless that is waited for."""
        pid, ending = self._life.pid, self._ending
        if pid is not None:
            if ending is None or ending.pid != pid or ending.at_ns:
                self._ending = self._exits.follow(pid) or ending
        elif self._life.replaced:
            self._ending = None  # what ends later is another program

    def _weighed(self, identity: Identity) -> int:
        name = len(identity.run.encode()) // NAME_UNIT
        return 1 + name + self._text_bytes // TEXT_UNIT

    def _same(self, reading: RecordReading, slot_reading: SlotReading) -> bool:
        """Whether nothing has changed except, while its process lives, the slot's numbers."""
        gone_ns = self._life.gone_ns or (self._death.at_ns if self._death else None)
        now = (self.alive, self._life.pid, gone_ns, self._death)
        if now != (reading.alive, reading.pid, reading.gone_ns, reading.death):
            return False
        if (before := self._read_from) is slot_reading.slot:
            return True
        same = before is not None and before.identity is slot_reading.slot.identity
        return same and reading.alive and reading.owner == self._owners.of(slot_reading.owner)

    @property
    def _death(self) -> Death | None:
        """What the kernel reports of the end of a process that has left no exit status."""
        is_missing = record.exit_code(self._left) is None
        return self._ending.death if self._ending and is_missing and not self.alive else None

    def _exit_came_late(self, folder: Folder) -> bool:
        """Whether the exit status of a record that was judged to have none has appeared.

        A process in another pid namespace may free its lock before it writes the status.
        """
        return not record.broken_promise(left_by(folder))

    def _make(self, reading: SlotReading, folder: Folder) -> RecordReading:
        alive, owner = self.alive, self._owners.of(reading.owner)
        behind = self._journal.unread_bytes > 0
        torn = self._journal.torn_end and not alive  # the line stays incomplete
        self._read_from = slot = reading.slot
        self._left = b"" if alive else left_by(folder)
        if not alive:
            slot = slot._replace(compile=at_the_end(slot.compile, self._left))
        sums = self._journal.sums
        made = RecordReading(
            folder=self.folder,
            slot=self._as_shown(slot, owner),
            alive=alive,
            owner=owner,
            pid=self._life.pid,
            gone_ns=self._life.gone_ns,
            **{name: getattr(sums, name) for name in _SUMS},
            varying=sums.varying.dims,
            warm_since=sums.varying.warm_since,
            functions=sums.functions.most_expensive,
            recordings=sums.functions.recordings,
            # the last one read of an incomplete journal is not the last one
            beginning=None if behind else sums.beginning,
            recompile=None if behind else sums.recompile,
            lookup=None if behind else sums.lookup,
            broken_lines=self._journal.broken_lines + torn,
            unread_bytes=self._journal.unread_bytes,
            skipped_bytes=self._journal.skipped_bytes,
            this_boot=self._ours,
        )
        return made if (death := self._death) is None else made.with_death(death)

    def _as_shown(self, slot: Slot, owner: Owner) -> Slot:
        """``slot`` with its owner in the run's name; the same object while nothing changed."""
        identity = slot.identity
        if (run := owner.shown(identity.run)) == identity.run:
            return slot
        if self._shown is None or self._shown[0] is not identity or self._shown[1].run != run:
            self._shown = identity, identity._replace(run=run)
        return slot._replace(identity=self._shown[1])

    def _ended_ago_ns(self, reading: RecordReading, now_ns: int, epoch: float) -> int:
        """How long ago its process ended, as far as it is known here; 0 while it lives."""
        slot, counts = reading.slot, reading.slot.compile
        if reading.alive and record.ENDS[counts.end_code] in ("", "finished"):  # still at its end
            return 0
        ended_ns = counts.ended_ns or reading.gone_ns
        if ended_ns and self._ours:
            return max(0, now_ns - ended_ns)
        if ended_ns:
            return int((epoch - slot.header.epoch_seconds(ended_ns)) * 1e9)
        # On tmpfs a store to mapped memory does not move the mtime: use the slot's own times too.
        last = max(self._modified, slot.header.epoch_seconds(last_sign_ns(slot)))
        return max(0, int((epoch - last) * 1e9))


def _sentence(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "it cannot be read: permission denied; run warmwatch as the user who trains"
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or error}"
    return str(error)
