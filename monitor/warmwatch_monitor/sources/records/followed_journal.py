"""The journal of a record, followed over many polls: what its lines have added up to so far."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import record
from warmwatch_monitor.model import (
    Beginning,
    Compilation,
    CudagraphSkip,
    Fallback,
    FunctionCost,
    GraphBreak,
    LongStep,
    Place,
    Recompile,
    Recordings,
    Spill,
)
from warmwatch_monitor.sources.records import journal_lines
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.function_costs import Functions
from warmwatch_monitor.sources.records.journal_lines import LARGEST_JOURNAL
from warmwatch_monitor.sources.records.varying_dims import Varying

MOST_EVENTS = 20
MOST_LONG_STEPS = 5
SLOWED = 10  # long steps in a row that are a slower level, not chance
MOST_BREAKS = MOST_SPILLS = 100  # as many as an agent writes
_ERROR_TEXT = 1_000
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
    """One journal, followed from a stored offset. Its state is what :meth:`follow` has read so far.

    Torn or foreign lines are counted and skipped. A long journal is read from its start in pieces,
    over several polls if the caller's budget ends (``unread_bytes``): sums over all lines need each
    of them. A journal larger than any agent writes is read from near its end; ``skipped_bytes``
    counts the rest.

    Attributes:
        compilations: the last ones, oldest first. fallbacks: the last frames that hit the recompile
            limit, in the same order. skips: the last skipped CUDA graphs. long_steps: the longest,
            then the last ones. slowed: the first of the last SLOWED or more of them in a row.
            spills: kernels by name, in the order of their first line. methods: of modules passed
            to ``torch.compile``.
            varying: dimensions that changed, over all lines. Each is the same object until
            something is appended, so that results can be cached.
        unread_bytes: appended, and left to a later poll. skipped_bytes: never read.
    """

    def __init__(self) -> None:
        self._offset = 0
        self.compilations: tuple[Compilation, ...] = ()
        self.fallbacks: tuple[Fallback, ...] = ()
        self.skips: tuple[CudagraphSkip, ...] = ()
        self.long_steps: tuple[LongStep, ...] = ()
        self.slowed: LongStep | None = None
        self._in_a_row: tuple[LongStep, int] | None = None  # the first, and how many
        self._breaks: dict[str, GraphBreak] = {}
        self.methods: tuple[str, ...] = ()
        self.spills: tuple[Spill, ...] = ()
        self._functions = Functions()
        self.varying = Varying()
        self._rest, self._was_warm = b"", False
        self.broken_lines = self.unread_bytes = self.skipped_bytes = 0
        self.beginning: Beginning | None = None
        self.recompile: Recompile | None = None
        self.exception: str | None = None
        self.raised: Place | None = None
        self.agent_error: str | None = None

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """Reasons of graph breaks, oldest first."""
        return tuple(self._breaks.values())

    @property
    def functions(self) -> tuple[FunctionCost, ...]:
        """The cost of each function, the most expensive first; cached until one is compiled."""
        return self._functions.most_expensive

    @property
    def recordings(self) -> tuple[Recordings, ...]:
        """The CUDA graphs of each compilation; the same object until one is recorded."""
        return self._functions.recordings

    @property
    def torn_end(self) -> bool:
        """Whether it ends, as far as it was read, in an incomplete line."""
        return bool(self._rest)

    @property
    def text_bytes(self) -> int:
        """The approximate size of the stored texts."""
        stored: tuple[Struct, ...] = (*self.compilations, *self.fallbacks, *self.skips)
        stored = (*stored, *self.breaks, *self.functions, *self.spills, *self.recordings)
        values = (getattr(one, name) for one in stored for name in one.__struct_fields__)
        texts = (*self.methods, *(value for value in values if isinstance(value, str)))
        return sum(map(len, texts))

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
            self.compilations, self.fallbacks, self.spills = (), (), ()
            self.skips, self.long_steps = (), ()
            self.slowed = self._in_a_row = None
            self._breaks.clear()
            self.methods = ()
            self._functions, self._was_warm = Functions(), False
            self.varying = Varying()
            self.beginning = self.recompile = self.exception = self.raised = None
            self._offset = self.skipped_bytes = 0
        if size - self._offset > LARGEST_JOURNAL:
            near_end = size - CHUNK
            near_end += os.pread(descriptor, CHUNK, near_end).find(b"\n") + 1
            self.skipped_bytes += near_end - self._offset
            self._offset = near_end
            self._was_warm = True  # most likely: the skipped part has the first warm-up

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
            entry = journal_lines.parse(line)
            event = journal_lines.text(entry, "event", journal_lines.LONGEST_NAME)
            if event is None:
                raise ValueError("no event")
            self._sort(event, entry)
        except ValueError:
            self.broken_lines += 1

    def _sort(self, event: str, entry: journal_lines.Entry) -> None:
        if event == "compilation":
            self._compilation(journal_lines.compilation(entry))
        elif event in ("begin", "target"):
            self.beginning = journal_lines.beginning(entry)
            self.varying.begin(*journal_lines.steps_by(entry, "steps"))
        elif event == "warm":
            self._was_warm = True
            self.varying.warm(*journal_lines.steps_by(entry, "at"))
        elif event == "recompile":
            self.recompile = journal_lines.recompile(entry)
        elif event == "graph_break":
            self._break(journal_lines.graph_break(entry))
        elif event == "fallback":
            self.fallbacks = (*self.fallbacks, journal_lines.fallback(entry))[-MOST_EVENTS:]
        elif event == "cudagraph_skip":
            self.skips = (*self.skips, journal_lines.cudagraph_skip(entry))[-MOST_EVENTS:]
        elif event == "spill":
            self._spill(journal_lines.spill(entry))
        elif event == "long_step":
            self._long_step(journal_lines.long_step(entry))
        elif event == "exit":
            self.exception = journal_lines.text(entry, "exception", journal_lines.LONGEST_NAME)
            self.raised = journal_lines.raised(entry)
        elif event == "wrapped":
            self._wrapped(journal_lines.methods(entry))
        elif event == "error":
            where = journal_lines.text(entry, "where", journal_lines.LONGEST_NAME)
            self.agent_error = f"{where}: {journal_lines.text(entry, 'message', _ERROR_TEXT)}"

    def _compilation(self, new: Compilation) -> None:
        new = replace(new, after_warm=self._was_warm)
        self.compilations = (*self.compilations, new)[-MOST_EVENTS:]
        self.varying.compilation(new)
        self._functions.fold(new)

    def _break(self, new: GraphBreak) -> None:
        if new.reason in self._breaks or len(self._breaks) < MOST_BREAKS:
            self._breaks[new.reason] = new

    def _wrapped(self, methods: Sequence[str]) -> None:
        """``torch.compile`` was called with a module that has these methods."""
        found = tuple(dict.fromkeys((*self.methods, *methods)))
        self.methods = found[: journal_lines.MOST_METHODS]

    def _spill(self, new: Spill) -> None:
        """A kernel that is compiled again replaces its earlier line."""
        others = tuple(one for one in self.spills if one.kernel != new.kernel)
        self.spills = (*others, new)[-MOST_SPILLS:]

    def _long_step(self, new: LongStep) -> None:
        """Add a long step: the longest of all comes first, even if it is one of the last."""
        longest = max((*self.long_steps[:1], new), key=lambda one: one.seconds)
        self.long_steps = longest, *(*self.long_steps[1:], new)[-MOST_LONG_STEPS:]
        first, count = self._in_a_row or (new, 0)
        if new.step != first.step + count:
            first, count = new, 0
        self._in_a_row = first, count + 1
        if count + 1 == SLOWED:
            self.slowed = first
