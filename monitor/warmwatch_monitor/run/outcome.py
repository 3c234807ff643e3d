"""The outcome of a launch: its summary on exit, and the document of ``--json``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from warmwatch_monitor.errors import WarmwatchError
from warmwatch_monitor.output.console import as_json, draw, is_terminal, note
from warmwatch_monitor.output.files import write
from warmwatch_monitor.run.launched import NOTHING
from warmwatch_monitor.status.schema.status import Run

if TYPE_CHECKING:
    from warmwatch_monitor.model import Snapshot


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
    from warmwatch_monitor.status.document import status as status_of

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
        note(f"warmwatch: {_failed(status) or NOTHING}")
        return
    from warmwatch_monitor.report.command import in_short
    from warmwatch_monitor.report.summaries import summaries_in

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
    from warmwatch_monitor.pipeline.figures import signal_name

    return signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None
