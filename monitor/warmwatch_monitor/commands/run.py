"""``warmwatch run -- CMD``: a command with the agent attached, no code edited."""

from __future__ import annotations

import io
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from warmwatch_monitor.base.errors import DaemonError, WarmwatchError
from warmwatch_monitor.client.answers import settings_from
from warmwatch_monitor.client.daemon import daemon_of, query_daemon
from warmwatch_monitor.client.started import ANY_PORT, ends_with_a_command, started_daemon
from warmwatch_monitor.client.summaries import summaries_in
from warmwatch_monitor.commands.launch import (
    become,
    check_name,
    end_as,
    environment,
    startable,
    supervise,
)
from warmwatch_monitor.commands.launched import Launched, nothing_seen
from warmwatch_monitor.commands.report.command import in_short
from warmwatch_monitor.model.records import signal_name
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import draw, is_terminal, note
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.output.safe_writing import place_of, write
from warmwatch_monitor.status.document import status as status_of
from warmwatch_monitor.status.schema.status import Run

if TYPE_CHECKING:
    from warmwatch_monitor.model.snapshot import Snapshot

_PAUSE_SECONDS = 0.5


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--run", "--name", "name", metavar="NAME", help="The run's name.")
@click.option("--watch", is_flag=True, help="Show the live answer in the terminal's last line.")
@click.option("--report", is_flag=True, help="Print a summary of its runs on exit.")
@click.option("--serve", is_flag=True, help="Start a daemon with CMD and print the page's link.")
@click.option("--json", type=options.FILE, help="Write link, exit code and runs as JSON.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=options.FILE, required=True)
def run(
    name: str | None,
    watch: bool,
    report: bool,
    serve: bool,
    json: str | None,
    command: tuple[str, ...],
) -> None:
    """Run CMD and attach the agent to every training that it starts, without editing code.

    CMD is what you would type: python train.py, python -m pkg, torchrun, accelerate launch,
    deepspeed, srun, a script. Warmwatch need not be installed in the Python environments that CMD
    uses. A process shows up at its first step or compilation, one of several ranks at
    init_process_group(); other processes never do.

    --serve ends its daemon with CMD. A `warmwatch serve` of these records is used and stays if it
    answers at WARMWATCH_ADDRESS (127.0.0.1:10464 by default). --report prints to stdout if that is
    a terminal, and otherwise to stderr. --json writes FILE when CMD has ended, and with --serve
    also when the page is ready; - is stdout.

    \b
    Exit code: that of CMD, or its signal; 126 CMD cannot be run; 127 CMD was not found
    """
    check_name(name)
    with startable(command):
        if not (watch or report or serve or json is not None):
            become(command, environment(os.environ, run=name))
        place, launch = place_of("--json", json), uuid.uuid4().hex
        environ = environment(os.environ, run=name, started_by=launch)
        with _served(launch) if serve else nullcontext() as page:
            if place is not None and page is not None:
                write_link(place, command, page)
            ours = Launched(launch)
            status = _attend(
                command, environ, ours, watch=watch, report=report, page=page, json=place
            )
        end_as(status)


@contextmanager
def _served(launch: str) -> Iterator[str]:
    """A daemon within this block; prints the link on stderr.

    Uses the daemon that answers already, unless it cannot know these records or ends with another
    command.
    """
    settings = settings_from()
    try:
        answer = query_daemon(daemon_of(settings))
    except DaemonError:
        answer = None
    has_records = answer is not None and answer.get("directories") == list(settings.directories)
    if has_records and not ends_with_a_command(settings.address):
        note(f"warmwatch: live page: {settings.address.url}/ (of the daemon that already serves)")
        yield f"{settings.address.url}/"
        return
    with ExitStack() as stack:
        wanted = str(settings.address) if answer is None else ANY_PORT
        try:
            address = stack.enter_context(started_daemon(os.environ, wanted, awaits=launch))
        except DaemonError:  # the port is taken
            address = stack.enter_context(started_daemon(os.environ, awaits=launch))
        note(f"warmwatch: live page: {address.url}/")
        yield f"{address.url}/"


def _attend(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    ours: Launched,
    *,
    watch: bool,
    report: bool,
    page: str | None,
    json: Path | None,
) -> int:
    """Follow the command to its end; its wait status."""
    descriptor = terminal((2, 1)) if watch else None
    line = LastLine(descriptor) if descriptor is not None else None

    def poll() -> None:
        if line is not None:
            line.show(ours.sentence())
        else:
            ours.poll()

    def leave() -> None:
        if line is not None:
            line.leave()

    began = time.monotonic()
    try:
        status = supervise(command, environ, poll=poll, stopped=leave, seconds=_PAUSE_SECONDS)
    finally:
        leave()
    seconds = time.monotonic() - began
    seen = ours.ended() if report or json else ours.snapshot()
    if report:
        print_summary(seen, status)
    if json is not None:
        write_outcome(json, command, page, seconds=seconds, status=status, snapshot=seen)
    ours.write_history()
    return status


class RunDocument(Struct, frozen=True, kw_only=True):
    """The outcome in `warmwatch run --json FILE`; with `--serve` also written at the start."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    command: tuple[str, ...]
    """The command and its arguments."""
    page: str | None
    """Link of the live page; null without `--serve`."""
    seconds: float | None = None
    """How long the command ran; null while it runs."""
    exit_code: int | None = None
    """Its exit code; null while it runs, or if a signal killed it."""
    signal: str | None = None
    """Name of the signal that killed it; null if none did."""
    runs: list[Run] = []
    """The runs that it started, as in `/status`; empty while it runs."""


def write_link(place: Path, command: Sequence[str], page: str) -> None:
    """Write what is known at the start. Stdout and a pipe take one document, at the end."""
    if place != Path("-") and (place.is_file() or not place.exists()):
        write(place, as_json(RunDocument(command=tuple(command), page=page)) + "\n")


def write_outcome(
    place: Path,
    command: Sequence[str],
    page: str | None,
    *,
    seconds: float,
    status: int,
    snapshot: Snapshot,
) -> None:
    """Write the whole document. A failure is a note, because the exit code is the command's."""
    killed = _killed_by(status)
    made = RunDocument(
        command=tuple(command),
        page=page,
        seconds=seconds,
        exit_code=None if killed else os.waitstatus_to_exitcode(status),
        signal=killed,
        runs=status_of(snapshot).runs,
    )
    text = as_json(made) + "\n"
    try:
        write(place, text)
    except WarmwatchError as error:
        note(f"warmwatch: {error}")


def print_summary(snapshot: Snapshot, status: int) -> None:
    """Print how its runs ended and where their time went, separate from a piped output."""
    if not snapshot.runs:
        note(f"warmwatch: {_failed(status) or nothing_seen(snapshot)}")
        return
    summary = in_short(summaries_in(snapshot))
    with suppress(OSError):  # the output is closed; still exit with CMD's code
        (draw if is_terminal() else note)(summary)


def _failed(status: int) -> str:
    """How the command failed; empty if it succeeded."""
    if not status:
        return ""
    how = _killed_by(status) or f"exit code {os.waitstatus_to_exitcode(status)}"
    return f"the command ended with {how}, before any step or compilation was seen"


def _killed_by(status: int) -> str | None:
    """Name of the signal that killed the command; ``None`` if none did."""
    return signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None


_SAVE, _RESTORE, _UP = "\x1b7", "\x1b8", "\x1b[1A"
_WHOLE, _CLEAR = "\x1b[r", "\x1b[2K"
_LEAST_ROWS = 5


def terminal(descriptors: Sequence[int]) -> int | None:
    """The first that is a terminal."""
    return next((descriptor for descriptor in descriptors if os.isatty(descriptor)), None)


class LastLine:
    """The last line of the terminal at ``descriptor``. Does nothing if it has few lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rows = 0  # height of the terminal when the line was reserved; 0: not reserved

    def show(self, text: str) -> None:
        """Show ``text``, cut to one line, unless this process is in the background."""
        if not self._in_foreground():
            return
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:  # the terminal is gone; the command may continue
            self._rows = 0
            return
        if size.lines != self._rows:
            self._reserve(size.lines)
        if self._rows:
            line = styled(text, size.columns - 1)
            self._write(f"{_SAVE}\x1b[{self._rows};1H{_CLEAR}{line}{_RESTORE}")

    def leave(self) -> None:
        """Clear and release the line."""
        if self._rows:
            self._write(f"{_SAVE}{_WHOLE}\x1b[{self._rows};1H{_CLEAR}{_RESTORE}")
            self._rows = 0

    def _reserve(self, rows: int) -> None:
        """Exclude the last line from scrolling; the cursor stays above it."""
        self.leave()
        if rows >= _LEAST_ROWS:
            self._rows = rows
            self._write(f"\n{_SAVE}\x1b[1;{rows - 1}r{_RESTORE}{_UP}")

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not the controlling terminal
            return True

    def _write(self, text: str) -> None:
        try:
            os.write(self._descriptor, text.encode())  # one write: the command writes there too
        except OSError:
            self._rows = 0  # it was closed


def styled(text: str, width: int) -> str:
    """``text`` on one line of ``width`` columns, with the terminal's escape codes."""
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, width=max(1, width), highlight=False)
    # pass no_wrap to print(), which ignores that of the Text
    console.print(Text(text, style="reverse"), end="", no_wrap=True, overflow="ellipsis")
    return buffer.getvalue()
