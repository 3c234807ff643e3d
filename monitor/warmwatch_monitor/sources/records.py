"""The records source: every record in every record directory, as one list of readings.

Invariants: nothing is ever written, mapped or locked. What cannot be read is a Refusal with its
path and a sentence, and costs the other records nothing. A record whose process is gone is read
once more and then kept as it was until its retention is over; it is never read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warmwatch import record
from warmwatch.record import RecordError, Slot
from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model import RecordReading, Refusal
from warmwatch_monitor.sources.directory import RecordDirectory
from warmwatch_monitor.sources.journal import Journal
from warmwatch_monitor.sources.slot import Look, SlotFile

_SETTLED_NS = 2 * 10**9  # a lock seen free for so long will not be taken again


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsReading:
    """All records that can be read, and what cannot."""

    records: tuple[RecordReading, ...] = ()
    refusals: tuple[Refusal, ...] = ()


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
        self._boot = boot_id() if boot is None else boot
        self._retention_ns = int(retention * 1e9)
        self._directories = [RecordDirectory(path, self._clock) for path in directories]
        self._records: dict[str, _Record] = {}

    def read(self) -> RecordsReading:
        """Look at everything once."""
        folders: list[str] = []
        refusals: list[Refusal] = []
        for directory in self._directories:
            listing = directory.look()
            folders.extend(listing.folders)
            refusals.extend(listing.refusals)
        self._follow(folders)
        readings: list[RecordReading] = []
        for entry in self._records.values():
            found = entry.look(self._clock.monotonic_ns(), self._clock.epoch(), self._retention_ns)
            if isinstance(found, Refusal):
                refusals.append(found)
            elif found is not None:
                readings.append(found)
        return RecordsReading(records=tuple(readings), refusals=tuple(refusals))

    def _follow(self, folders: Iterable[str]) -> None:
        """Know the records in ``folders`` and no others."""
        known = self._records
        self._records = {f: known.get(f) or _Record(f, self._boot) for f in folders}


class _Record:
    """One record followed over time."""

    def __init__(self, folder: str, boot: str) -> None:
        self._folder, self._boot = folder, boot
        self._slot = SlotFile(f"{folder}/{record.SLOT}")
        self._journal = Journal(f"{folder}/{record.JOURNAL}")
        self._held = False
        self._free_ns: int | None = None
        self._modified = 0.0
        self._settled = False
        self._over = False
        self._reading: RecordReading | None = None

    def look(self, now_ns: int, epoch: float, retention_ns: int) -> RecordReading | Refusal | None:
        """Its reading; why there is none; or ``None`` where it is over, or was removed."""
        if self._over:
            return None
        try:
            reading = self._read(now_ns)
        except FileNotFoundError:
            if not Path(self._folder).is_dir():
                return None
            return Refusal(path=self._folder, reason=f"it holds no {record.SLOT!r}")
        except (OSError, RecordError) as error:
            return Refusal(path=self._folder, reason=_sentence(error))
        ago_ns = self._ended_ago_ns(reading, now_ns, epoch)
        if ago_ns <= retention_ns:
            return reading
        if self._settled:
            self._forget()
        return None

    def _forget(self) -> None:
        """It is over for good: its folder may stay for weeks, what was read of it need not."""
        self._over, self._reading = True, None
        self._slot = SlotFile(f"{self._folder}/{record.SLOT}")
        self._journal = Journal(f"{self._folder}/{record.JOURNAL}")

    def _read(self, now_ns: int) -> RecordReading:
        if self._settled and self._reading is not None:
            return self._reading
        look = self._slot.look()
        news = self._journal.follow()
        alive = look.alive and self._this_boot(look.slot)
        self._modified = look.modified
        self._note_lock(alive, now_ns)
        known = self._reading
        if known is None or news or self._settled or not _same(known, look, alive):
            self._reading = known = self._make(look, alive)
        return known

    def _note_lock(self, alive: bool, now_ns: int) -> None:
        if alive:
            self._held, self._free_ns = True, None
            return
        if self._free_ns is None:
            self._free_ns = now_ns
        self._settled = now_ns - self._free_ns >= _SETTLED_NS

    def _make(self, look: Look, alive: bool) -> RecordReading:
        torn = self._journal.torn_end and not alive  # nobody will complete that line
        return RecordReading(
            folder=self._folder,
            slot=look.slot,
            alive=alive,
            pid=look.pid if alive else None,
            gone_ns=self._free_ns if self._held else None,
            compilations=self._journal.compilations,
            fallbacks=self._journal.fallbacks,
            broken_lines=self._journal.broken_lines + torn,
        )

    def _ended_ago_ns(self, reading: RecordReading, now_ns: int, epoch: float) -> int:
        """How long ago its process ended, as well as this reader can know; 0 while it lives."""
        slot, counts = reading.slot, reading.slot.compile
        if reading.alive and not counts.end_code:
            return 0
        ended_ns = counts.ended_ns or reading.gone_ns
        if ended_ns and self._this_boot(slot):
            return max(0, now_ns - ended_ns)
        if ended_ns:
            return int((epoch - slot.header.epoch_seconds(ended_ns)) * 1e9)
        # On tmpfs a store to mapped memory does not move the mtime: the slot's own times count too.
        last = max(self._modified, slot.header.epoch_seconds(_last_sign_ns(slot)))
        return max(0, int((epoch - last) * 1e9))

    def _this_boot(self, slot: Slot) -> bool:
        return not slot.identity.boot_id or not self._boot or slot.identity.boot_id == self._boot


def _same(known: RecordReading, look: Look, alive: bool) -> bool:
    return known.slot is look.slot and known.alive == alive and (not alive or known.pid == look.pid)


def _last_sign_ns(slot: Slot) -> int:
    counts = slot.compile
    return max(
        slot.header.attached_ns,
        slot.steps.last_step_ns,
        counts.last_end_ns,
        counts.active_since_ns,
        counts.accounted_ns,
    )


def _sentence(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "it cannot be read: permission denied; run warmwatch as the user who trains"
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or error}"
    return str(error)


def boot_id() -> str:
    """The kernel's id of this boot; empty where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
