"""The journal of a record, followed over many polls."""

from __future__ import annotations

import os
from collections.abc import Callable

from warmwatch.shared import record
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.journal_lines import LARGEST_JOURNAL, parse
from warmwatch_monitor.sources.records.journal_sums import JournalSums

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
