"""A record's journal, followed: whole lines only, from a remembered offset.

A torn or foreign line is counted and passed over. Of a journal that was long before the first look
only the end is read, for only the last compilations are kept; one that grew by more than a look may
cost is followed from its end on, and what was passed over counts as a line that was not read.
"""

from __future__ import annotations

import os

from warmwatch import record
from warmwatch_monitor.model import (
    Beginning,
    Compilation,
    CudagraphSkip,
    Fallback,
    FunctionCost,
    GraphBreak,
    LongStep,
    Recompile,
)
from warmwatch_monitor.sources import entries
from warmwatch_monitor.sources.folder import Folder
from warmwatch_monitor.sources.functions import Functions
from warmwatch_monitor.sources.varying import Varying

KEPT = 20
LONG_STEPS_KEPT = 5
BREAKS_KEPT = 100  # as many as an agent tells
_ERROR_TEXT = 1_000
LARGEST = 2 * record.JOURNAL_LIMIT  # of a journal that is read whole; an agent stops at half of it
CHUNK = 256 * 1024
CHUNKS_AT_ONCE = 4  # an agent writes a few kilobytes between two looks, and 4 MB in all


class Journal:
    """One journal. Its state is what :meth:`follow` has read of it so far.

    Attributes:
        compilations: the last ones, oldest first. fallbacks: frames that hit the recompile limit,
        likewise. skips: of CUDA graphs, likewise. long_steps: the longest, then the last ones.
        varying: dimensions that changed, over all lines. Each is the same object until something is
        appended to it, so that what was made of it can be kept (``recorded.kept``).
    """

    def __init__(self) -> None:
        self._offset, self._begun = 0, False
        self.compilations: tuple[Compilation, ...] = ()
        self.fallbacks: tuple[Fallback, ...] = ()
        self.skips: tuple[CudagraphSkip, ...] = ()
        self.long_steps: tuple[LongStep, ...] = ()
        self._breaks: dict[str, GraphBreak] = {}
        self._functions = Functions()
        self.varying = Varying()
        self._rest = b""
        self.broken_lines = 0
        self.beginning: Beginning | None = None
        self.recompile: Recompile | None = None
        self.exception: str | None = None
        self.agent_error: str | None = None

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """Reasons of graph breaks, oldest first."""
        return tuple(self._breaks.values())

    @property
    def functions(self) -> tuple[FunctionCost, ...]:
        """What each function cost, the dearest first; the same object until one is compiled."""
        return self._functions.dearest

    @property
    def torn_end(self) -> bool:
        """Whether it ends, as far as it was read, in the middle of a line."""
        return bool(self._rest)

    def follow(self, folder: Folder) -> bool:
        """Read what was appended; whether there was anything. A missing journal is an empty one.

        Raises:
            OSError: it is there and cannot be read. RecordError: it is not the folder's owner's.
        """
        try:
            size = folder.size(record.JOURNAL)
            if size == self._offset + len(self._rest):
                return False
            descriptor, _ = folder.open(record.JOURNAL)
        except FileNotFoundError:
            return False
        try:
            self._start(descriptor, size)
            for _ in range(CHUNKS_AT_ONCE):
                if not self._chunk(descriptor):
                    break
        finally:
            os.close(descriptor)
        return True

    def _start(self, descriptor: int, size: int) -> None:
        """Where to go on: at the first look, and far behind, near the end; of a cut one anew."""
        if self._begun and self._offset <= size <= self._offset + CHUNKS_AT_ONCE * CHUNK:
            return
        if self._begun and size > self._offset:
            self.broken_lines += 1
        else:
            self.compilations, self.fallbacks = (), ()
            self.skips, self.long_steps = (), ()
            self._breaks.clear()
            self._functions = Functions()
            self.varying = Varying()
            self.beginning = self.recompile = self.exception = None
        self._begun = True
        self._offset = max(0, size - CHUNK)
        if self._offset:
            skipped = os.pread(descriptor, CHUNK, self._offset).find(b"\n") + 1
            self._offset += skipped

    def _chunk(self, descriptor: int) -> bool:
        """Take the whole lines of the next chunk; whether there may be more."""
        data = os.pread(descriptor, CHUNK, self._offset)
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if not end and len(data) == CHUNK:  # one line as long as a chunk: no agent writes that
            end, self._rest = len(data), b""
        for line in data[:end].splitlines():
            self._take(line)
        self._offset += end
        return len(data) == CHUNK

    def _take(self, line: bytes) -> None:
        try:
            entry = entries.parse(line)
            event = entries.text(entry, "event", entries.LONGEST_NAME)
            if event is None:
                raise ValueError("no event")
            self._sort(event, entry)
        except ValueError:
            self.broken_lines += 1

    def _sort(self, event: str, entry: entries.Entry) -> None:
        if event == "compilation":
            made = entries.compilation(entry)
            self.compilations = (*self.compilations, made)[-KEPT:]
            self.varying.compilation(made)
            self._functions.fold(made)
        elif event == "begin":
            self.beginning = entries.beginning(entry)
            self.varying.begin(*entries.steps_by(entry, "steps"))
        elif event == "warm":
            self.varying.warm(*entries.steps_by(entry, "at"))
        elif event == "recompile":
            self.recompile = entries.recompile(entry)
        elif event == "graph_break":
            self._break(entries.graph_break(entry))
        elif event == "fallback":
            self.fallbacks = (*self.fallbacks, entries.fallback(entry))[-KEPT:]
        elif event == "cudagraph_skip":
            self.skips = (*self.skips, entries.cudagraph_skip(entry))[-KEPT:]
        elif event == "long_step":
            self._long_step(entries.long_step(entry))
        elif event == "exit":
            self.exception = entries.text(entry, "exception", entries.LONGEST_NAME)
        elif event == "error":
            where = entries.text(entry, "where", entries.LONGEST_NAME)
            self.agent_error = f"{where}: {entries.text(entry, 'message', _ERROR_TEXT)}"

    def _break(self, told: GraphBreak) -> None:
        if told.reason in self._breaks or len(self._breaks) < BREAKS_KEPT:
            self._breaks[told.reason] = told

    def _long_step(self, told: LongStep) -> None:
        """The longest of all comes first, whether it is one of the last or not."""
        longest = max((*self.long_steps[:1], told), key=lambda one: one.seconds)
        self.long_steps = longest, *(*self.long_steps[1:], told)[-LONG_STEPS_KEPT:]
