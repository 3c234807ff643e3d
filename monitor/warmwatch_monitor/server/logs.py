"""The daemon's log: one structured line on stderr for each change, as logfmt or JSON.

The publisher's thread makes the lines and another thread writes them. A blocked pipe or a full disk
delays nothing, and costs the lines that do not fit into the queue. Each kind of event is limited to
a number of lines a minute; the next line of that kind has the number left out. Under systemd each
line begins with its priority (``<4>``), which the journal removes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from logging.handlers import QueueHandler
from typing import Any

from warmwatch.shared.states import State
from warmwatch.shared.values import printable
from warmwatch_monitor.api.changes import changes, has_runs, source_changes
from warmwatch_monitor.model import Snapshot
from warmwatch_monitor.settings import LOG_FORMATS
from warmwatch_monitor.status.schema.events import (
    CompilationEvent,
    ConditionEvent,
    EndedEvent,
    Event,
    RankEvent,
    RunEvent,
    SourceEvent,
    WarmEvent,
)

LONG_COMPILATION = 10.0  # seconds
_LINES_A_MINUTE = 60  # of one kind
_QUEUED = 1_000
_STDERR = 2
_END = logging.makeLogRecord({})
_LONGEST = 300  # characters of a value
_PRIORITIES = {logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}
_BARE = re.compile(r"[\w.:/@+,-]+")
_SLOWER = frozenset({"slower", "slower_than_before"})
_FAILED = frozenset({"failed", "lost"})
_TROUBLE = frozenset({State.FAILED, State.LOST, State.STALLED})


class DaemonLog:
    """Logs the changes from Snapshot to Snapshot, and events of other parts."""

    def __init__(
        self,
        style: str = LOG_FORMATS[0],
        *,
        write: Callable[[bytes], Any] = lambda line: os.write(_STDERR, line),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits: dict[str, _Limit] = {}
        self._now = now
        self._before: Snapshot | None = None
        self._refused: frozenset[tuple[str, str]] = frozenset()
        self._logger = logging.Logger("warmwatch.daemon", logging.INFO)
        formatter = _Structured(style, priorities="JOURNAL_STREAM" in os.environ)
        # The handler of SIGHUP logs too, perhaps during another line: ``put`` of this queue is
        # reentrant and waits for no lock.
        self._lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
        self._logger.addHandler(_Dropping(self._lines))
        self._thread = threading.Thread(
            target=self._write, args=(formatter, write), name="warmwatch-log", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Write the queued lines, if they are read within a second.

        The listener's own ``stop`` would wait for a full pipe for ever.
        """
        self._logger.handlers.clear()
        self._lines.put_nowait(_END)
        self._thread.join(1.0)

    def _write(self, formatter: logging.Formatter, write: Callable[[bytes], Any]) -> None:
        """Write without the locks of logging and ``sys.stderr``: other code would wait for them."""
        while (record := self._lines.get()) is not _END:
            with contextlib.suppress(OSError):  # a full disk must not end the daemon
                write(f"{formatter.format(record)}\n".encode())

    def note(self, event: str, level: int = logging.INFO, **fields: Any) -> None:
        """Log one line, unless there were too many of this event in the last minute."""
        limit = self._limits.setdefault(event, _Limit())
        left_out = limit.take(self._now())
        if left_out is None:
            return
        known = {name: value for name, value in fields.items() if value is not None}
        if left_out:
            known["left_out"] = left_out
        self._logger.log(level, event, extra={"fields": known})

    def take(self, snapshot: Snapshot) -> None:
        """Log the changes in a Snapshot; a follower of the publisher."""
        before, self._before = self._before, snapshot
        self._refusals(snapshot)
        if before is None:
            return
        for change in source_changes(before, snapshot):
            self._source(change)
        if has_runs(before) and has_runs(snapshot):
            for event, _ in changes(before, snapshot):
                for level, fields in _logged(event):
                    self.note(event.kind, level, **fields)

    def _source(self, event: SourceEvent) -> None:
        level = logging.INFO if event.up else logging.WARNING
        self.note(event.kind, level, source=event.source, up=event.up, error=event.error)

    def _refusals(self, snapshot: Snapshot) -> None:
        refused = frozenset((one.path, one.reason) for one in snapshot.refusals)
        for path, reason in sorted(refused - self._refused):
            self.note("refused", logging.WARNING, path=path, reason=reason)
        self._refused = refused


def _logged(event: Event) -> Iterator[tuple[int, dict[str, Any]]]:
    """Level and fields of a change that is logged."""
    if isinstance(event, RunEvent):
        if event.state is event.before:  # it compiles now, or no longer: the rank's lines have it
            return
        level = logging.WARNING if event.state in _TROUBLE else logging.INFO
        before = event.before.value if event.before else None
        yield level, {"run": event.run, "state": event.state.value, "before": before}
    elif isinstance(event, RankEvent):
        rank = {"run": event.run, "rank": event.rank}
        yield from ((level, rank | fields) for level, fields in _logged_of_rank(event))


def _logged_of_rank(event: RankEvent) -> Iterator[tuple[int, dict[str, Any]]]:
    if isinstance(event, WarmEvent):
        yield logging.INFO, {"seconds": event.seconds, "steps": event.steps}
    elif isinstance(event, ConditionEvent):
        for name in sorted(_SLOWER & {*event.conditions} - {*event.before}):
            yield logging.WARNING, {"condition": name}
    elif isinstance(event, CompilationEvent):
        one = event.compilation
        if one.seconds is not None and one.seconds >= LONG_COMPILATION:
            seconds = round(one.seconds, 3)
            yield logging.INFO, {"id": one.id, "kind": one.kind, "seconds": seconds}
    elif isinstance(event, EndedEvent) and event.end is not None:
        end = event.end
        level = logging.WARNING if end.how in _FAILED else logging.INFO
        fields = {"how": end.how, "exit_code": end.exit_code}
        yield level, {**fields, "exception": end.exception, "signal": end.signal}


class _Limit:
    """Limits the lines a minute."""

    def __init__(self) -> None:
        self._since, self._lines, self._left_out = float("-inf"), 0, 0

    def take(self, now: float) -> int | None:
        """The number left out before this line; ``None`` if it is left out itself."""
        if now - self._since >= 60:
            self._since, self._lines = now, 0
        if self._lines >= _LINES_A_MINUTE:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


class _Dropping(QueueHandler):
    """Queues a record, or drops it if the queue is full."""

    def __init__(self, lines: queue.SimpleQueue[logging.LogRecord]) -> None:
        super().__init__(lines)
        self._lines = lines

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() < _QUEUED:  # else the log is not read
            self._lines.put_nowait(record)


class _Structured(logging.Formatter):
    """A line of logfmt or JSON, with systemd's priority first if the journal reads it."""

    def __init__(self, style: str, *, priorities: bool) -> None:
        super().__init__()
        self._json, self._priorities = style == "json", priorities

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "ts": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        plain = {name: _plain(value) for name, value in fields.items()}
        if self._json:
            line = json.dumps(plain, ensure_ascii=False)
        else:
            line = " ".join(f"{name}={_logfmt(value)}" for name, value in plain.items())
        return f"<{_PRIORITIES.get(record.levelno, 6)}>{line}" if self._priorities else line


def _plain(value: Any) -> Any:
    """Numbers and booleans unchanged; text on one line, without control characters."""
    if isinstance(value, bool | int | float):
        return round(value, 3) if isinstance(value, float) else value
    return printable(str(value).replace("\n", " "))[:_LONGEST]


def _logfmt(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
