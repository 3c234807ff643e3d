"""The daemon's log: one structured line on stderr for each change, as logfmt or JSON.

The publisher's thread makes the lines and another thread writes them. A blocked pipe or a full disk
delays nothing, and costs the lines that do not fit into the queue. Each kind of event is limited to
a number of lines a minute; a line after that minute has the number left out. What was there when
the daemon started is one line: the daemon before it logged the rest. Under systemd each line begins
with its priority (``<4>``), which the journal removes.
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
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from warmwatch.shared.states import State
from warmwatch.shared.values import printable
from warmwatch_monitor.base.settings import LOG_FORMATS
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.server.api.changes import Change, has_runs
from warmwatch_monitor.status.schema.events import (
    AttachedEvent,
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
_LINES_A_MINUTE = 10  # of one kind
_REQUESTS_A_MINUTE = 60
_QUEUED = 1_000
_STDERR = 2
_LONGEST = 300  # characters of a value
_PRIORITIES = {logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}
_BARE = re.compile(r"[\w.:/@+,-]+")
_SLOWER = frozenset({"slower", "slower_than_before"})
_FAILED = frozenset({"failed", "lost"})
_TROUBLE = frozenset({State.FAILED, State.LOST, State.STALLED})


class _Line(NamedTuple):
    """A line of the log; ``at``: seconds since the epoch. A field that is ``None`` is left out."""

    at: float
    level: int
    event: str
    fields: dict[str, Any]


class DaemonLog:
    """Logs the changes from Snapshot to Snapshot, and events of other parts."""

    def __init__(
        self,
        style: str = LOG_FORMATS[0],
        *,
        write: Callable[[bytes], Any] = lambda line: os.write(_STDERR, line),
    ) -> None:
        self._style = style
        self._began = time.time()
        self._found = False
        self._down: set[str] = set()
        self._limits: dict[str, _Limit] = {}
        self._refused: frozenset[tuple[str, str]] = frozenset()
        self._stopped = False
        # The handler of SIGHUP logs too, perhaps during another line: ``put`` of this queue is
        # reentrant and waits for no lock.
        self._lines: queue.SimpleQueue[_Line | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._write, args=(write,), name="warmwatch-log", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Write the queued lines, if they are read within a second: a pipe may stay full."""
        self._stopped = True
        self._lines.put_nowait(None)
        self._thread.join(1.0)

    def _write(self, write: Callable[[bytes], Any]) -> None:
        """Write without the lock of ``sys.stderr``: other code would wait for it."""
        while (line := self._lines.get()) is not None:
            with contextlib.suppress(OSError):  # a full disk must not end the daemon
                write(f"{self._printed(line)}\n".encode())

    def _printed(self, line: _Line) -> str:
        priority = f"<{_PRIORITIES[line.level]}>" if "JOURNAL_STREAM" in os.environ else ""
        return f"{priority}{_text(line, self._style)}"

    def line(self, event: str, **fields: Any) -> str:
        """The text of a line that the caller prints."""
        return self._printed(_Line(time.time(), logging.INFO, event, fields))

    def note(self, event: str, level: int = logging.INFO, **fields: Any) -> None:
        """Log one line, unless there were too many of this event in the last minute."""
        most = _REQUESTS_A_MINUTE if event == "access" else _LINES_A_MINUTE
        limit = self._limits.setdefault(event, _Limit(most))
        self._note_left_out(event, limit)
        if limit.take(time.monotonic()):
            self._put(event, level, fields)

    def _note_left_out(self, event: str, limit: _Limit) -> None:
        if lines := limit.left_out(time.monotonic()):
            self._put("left_out", logging.WARNING, {"of": event, "lines": lines})

    def _put(self, event: str, level: int, fields: dict[str, Any]) -> None:
        if not self._stopped and self._lines.qsize() < _QUEUED:  # else the log is not read
            self._lines.put_nowait(_Line(time.time(), level, event, fields))

    def take(self, snapshot: Snapshot, changes: Sequence[Change]) -> None:
        self._refusals(snapshot)
        self._note_found(snapshot)
        before_us = {
            (event.run, event.rank)
            for event, _ in changes
            if isinstance(event, AttachedEvent) and (event.attached_at or 0.0) < self._began
        }
        for event, _ in changes:
            if isinstance(event, SourceEvent) and not self._is_news(event):
                continue
            if not _is_known(event, before_us):
                for level, fields in _logged(event):
                    self.note(event.kind, level, **fields)
        for kind, limit in [*self._limits.items()]:
            self._note_left_out(kind, limit)

    def _is_news(self, event: SourceEvent) -> bool:
        """Not that a source works which had not failed: it was read for the first time."""
        was_down = event.source in self._down
        (self._down.discard if event.up else self._down.add)(event.source)
        return was_down or not event.up

    def _note_found(self, snapshot: Snapshot) -> None:
        """One line for what was there when the daemon started, once it has read all of it."""
        if self._found or snapshot.unread or not has_runs(snapshot):
            return
        self._found = True
        living = sum(bool(run.living) for run in snapshot.runs)
        self.note("found", runs=len(snapshot.runs), living=living)

    def _refusals(self, snapshot: Snapshot) -> None:
        """One line for each new reason, with the first path."""
        refused = frozenset((refusal.path, refusal.reason) for refusal in snapshot.refusals)
        paths: dict[str, list[str]] = {}
        for path, reason in sorted(refused - self._refused):
            paths.setdefault(reason, []).append(path)
        for reason, (first, *others) in paths.items():
            more = len(others) or None
            self.note("refused", logging.WARNING, path=first, more=more, reason=reason)
        self._refused = refused


def _is_known(event: Event, before_us: Collection[tuple[str, int]]) -> bool:
    """Whether it is of a rank that ran before the daemon and was read only now."""
    if isinstance(event, RankEvent):
        return (event.run, event.rank) in before_us
    return isinstance(event, RunEvent) and not event.before and event.run in dict(before_us)


def _logged(event: Event) -> Iterator[tuple[int, dict[str, Any]]]:
    """Level and fields of a change that is logged."""
    if isinstance(event, SourceEvent):
        level = logging.INFO if event.up else logging.WARNING
        yield level, {"source": event.source, "up": event.up, "error": event.error}
    elif isinstance(event, RunEvent):
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
        compilation = event.compilation
        if compilation.seconds is not None and compilation.seconds >= LONG_COMPILATION:
            seconds = round(compilation.seconds, 3)
            yield logging.INFO, {"id": compilation.id, "kind": compilation.kind, "seconds": seconds}
    elif isinstance(event, EndedEvent) and event.end is not None:
        end = event.end
        level = logging.WARNING if end.how in _FAILED else logging.INFO
        fields = {"how": end.how, "exit_code": end.exit_code}
        yield level, {**fields, "exception": end.exception, "signal": end.signal}


class _Limit:
    """Limits the lines a minute."""

    def __init__(self, most: int) -> None:
        self._most, self._since, self._lines, self._left_out = most, float("-inf"), 0, 0

    def take(self, now: float) -> bool:
        """Whether there is room for one more line."""
        if now - self._since >= 60:
            self._since, self._lines = now, 0
        if self._lines >= self._most:
            self._left_out += 1
            return False
        self._lines += 1
        return True

    def left_out(self, now: float) -> int:
        """How many lines were left out, once the minute is over."""
        if not self._left_out or now - self._since < 60:
            return 0
        lines, self._left_out = self._left_out, 0
        return lines


def _text(line: _Line, style: str) -> str:
    """A line of logfmt or JSON."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(line.at))
    fields = {
        "ts": f"{moment}.{int(line.at % 1 * 1000):03d}Z",
        "level": logging.getLevelName(line.level).lower(),
        "event": line.event,
        **line.fields,
    }
    plain = {name: _plain(value) for name, value in fields.items() if value is not None}
    if style == "json":
        return json.dumps(plain, ensure_ascii=False)
    return " ".join(f"{name}={_logfmt(value)}" for name, value in plain.items())


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
