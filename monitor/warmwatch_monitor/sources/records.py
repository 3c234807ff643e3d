"""The records source: every record in every record directory, as one list of readings.

Invariants: nothing is ever written, mapped or locked. What cannot be read is a Refusal with its
path and a sentence, and costs the other records nothing. A record that said its end is read for a
moment more and then kept as it was until its retention is over; one whose process is gone without a
word may live again (see ``life``), so it is looked at for as long as its folder is there, rarely
once its retention is over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from msgspec import Struct

from warmwatch import record
from warmwatch.record import Identity, RecordError, Slot
from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model import Death, Owner, RecordReading, Refusal, last_sign_ns
from warmwatch_monitor.sources.directory import RecordDirectory
from warmwatch_monitor.sources.exits import ExitWatch, at_the_end, left_by
from warmwatch_monitor.sources.folder import Folder
from warmwatch_monitor.sources.journal import Journal
from warmwatch_monitor.sources.life import Life
from warmwatch_monitor.sources.origin import Origin, here
from warmwatch_monitor.sources.owners import Owners
from warmwatch_monitor.sources.slot import Look, SlotFile

# For how long one poll reads journals that are behind (a daemon that has just started). Numbers and
# life of every record are read at each poll, whatever is left to catch up with.
_CATCH_UP_NS = 250_000_000
_REVISIT_NS = 10 * 10**9  # how often one is looked at that is over, though it said no end


class RecordsReading(Struct, frozen=True, kw_only=True):
    """All records that can be read, and what cannot.

    ``problem``: record directories that cannot be read now, in words; ``None`` where all can.
    """

    records: tuple[RecordReading, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    problem: str | None = None

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

    def read(self) -> RecordsReading:
        """Look at everything once."""
        folders: list[str] = []
        refusals: list[Refusal] = []
        problems: list[str] = []
        for directory in self._directories:
            listing = directory.look()
            problems.extend([listing.problem] if listing.problem else [])
            folders.extend(listing.folders)
            refusals.extend(listing.refusals)
        self._follow(folders)
        readings: list[RecordReading] = []
        may_read = self._catching_up()
        for entry in self._records.values():
            now_ns, epoch = self._clock.monotonic_ns(), self._clock.epoch()
            found = entry.look(now_ns, epoch, self._retention_ns, may_read)
            if isinstance(found, Refusal):
                refusals.append(found)
            elif found is not None:
                readings.append(found)
        return RecordsReading(
            records=tuple(readings),
            refusals=tuple(refusals),
            problem="; ".join(problems) or None,
        )

    def _catching_up(self) -> Callable[[], bool]:
        """Whether there is time for one more piece of a journal: for the first one always."""
        until_ns: int | None = None

        def may_read() -> bool:
            nonlocal until_ns
            now_ns = self._clock.monotonic_ns()
            if until_ns is None:
                until_ns = now_ns + _CATCH_UP_NS
            return now_ns <= until_ns

        return may_read

    def _follow(self, folders: Iterable[str]) -> None:
        """Know the records in ``folders`` and no others."""
        known = self._records
        shared = self._origin, self._owners, self._exits
        self._records = {f: known.get(f) or _Record(f, *shared) for f in folders}


class _Record:
    """One record followed over time."""

    def __init__(self, folder: str, origin: Origin, owners: Owners, exits: ExitWatch) -> None:
        self._folder, self._origin, self._owners, self._exits = folder, origin, owners, exits
        self._pid: int | None = None  # of its process, as long as that was seen
        self._slot, self._journal = SlotFile(), Journal()
        self._life = Life()
        self._modified = 0.0
        self._revisit_ns: int | None = None
        self._over = False
        self._broken = False  # whether the reading is that of a promise that was not kept
        self._reading: RecordReading | None = None
        self._read_from: Slot | None = None
        self._shown: tuple[Identity, Identity] | None = None  # as written, and as its owner's

    def look(
        self, now_ns: int, epoch: float, retention_ns: int, may_read: Callable[[], bool]
    ) -> RecordReading | Refusal | None:
        """Its reading; why there is none; or ``None`` where it is over, or was removed."""
        if self._over or (self._revisit_ns is not None and now_ns < self._revisit_ns):
            return None
        try:
            reading = self._read(now_ns, may_read)
        except FileNotFoundError:
            if not os.path.isdir(self._folder):  # noqa: PTH112 - Path's raises where it may not ask
                return None
            return Refusal(path=self._folder, reason=f"it holds no {record.SLOT!r}")
        except (OSError, RecordError) as error:
            return Refusal(path=self._folder, reason=_sentence(error))
        ago_ns = self._ended_ago_ns(reading, now_ns, epoch)
        if ago_ns <= retention_ns:
            self._revisit_ns = None
            return reading
        if self._life.rests:
            self._forget(now_ns, final=bool(reading.slot.compile.end_code))
        return None

    def _forget(self, now_ns: int, *, final: bool) -> None:
        """It is over: its folder may stay for weeks, what was read of it need not."""
        self._over, self._reading, self._read_from, self._shown = final, None, None, None
        self._revisit_ns = now_ns + _REVISIT_NS
        self._slot.forget()
        self._journal = Journal()

    def _read(self, now_ns: int, may_read: Callable[[], bool]) -> RecordReading:
        known, unread = self._reading, self._journal.unread_bytes
        if known is not None and self._life.rests and known.slot.compile.end_code and not unread:
            return known
        with Folder(self._folder) as folder:
            look = self._slot.look(folder)
            if (problem := self._origin.problem(look.slot.identity)) is not None:
                raise RecordError(problem)
            news = self._journal.follow(folder, may_read)
            news = news or self._journal.unread_bytes != unread
            self._life.note(look, now_ns, ours=self._origin.shares_boot(look.slot.identity))
            if self._life.pid is not None:
                self._pid = self._life.pid
                self._exits.follow(self._pid)
            self._modified = look.modified
            if known is None or news or self._kept_after_all(folder) or not self._same(known, look):
                self._reading = known = self._make(look, folder)
        return known

    def _same(self, known: RecordReading, look: Look) -> bool:
        now = (self._life.alive, self._life.pid, self._life.gone_ns, self._death())
        before = (known.alive, known.pid, known.gone_ns, known.death)
        return self._read_from is look.slot and before == now

    def _death(self) -> Death | None:
        return None if self._life.alive else self._exits.death(self._pid)

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
            folder=self._folder,
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
