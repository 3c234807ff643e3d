"""``warmwatch check -- CMD``: fails if a training compiles more than its baseline allows.

The command runs to its end with the agent attached, and its runs are measured.
"""

from __future__ import annotations

import os
import shlex
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from warmwatch.shared.states import State
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.base.timeouts import read_text
from warmwatch_monitor.commands.check import baseline
from warmwatch_monitor.commands.check.baseline import Baseline, MeasuredRun, parsed
from warmwatch_monitor.commands.check.comparison import Comparison, compared
from warmwatch_monitor.commands.check.output import (
    CheckDocument,
    caches_left,
    changes,
    document,
    markdown,
    restarted,
    text,
    uncompiled,
    unfinished,
)
from warmwatch_monitor.commands.launch import (
    check_name,
    end_as,
    environment,
    fresh_caches,
    startable,
    supervise,
)
from warmwatch_monitor.commands.launched import Launched, living, nothing_seen
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.output.safe_writing import place_of, write
from warmwatch_monitor.sources.records.parsed_journal import parse_journal
from warmwatch_monitor.status.words.run import run_answer

if TYPE_CHECKING:
    from warmwatch_monitor.model.records import RecordReading
    from warmwatch_monitor.model.snapshot import RunView, Snapshot


FAILED, NOT_SEEN = 4, 5
_BY_SIGNAL = 128  # offset of exit codes for signals, as in shells
_STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_PAUSE_SECONDS = 0.5


class CannotCompareError(Exception):
    """The runs cannot be compared; ``code``: the exit code of ``check``."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


def measured(
    command: Sequence[str], *, name: str | None, keep_caches: bool
) -> tuple[MeasuredRun, ...]:
    """Run ``command`` and return what its runs compiled.

    If a signal killed it, this process ends by the same signal. Raises CannotCompareError.
    """
    launch = uuid.uuid4().hex
    ours, received = Launched(launch), list[int]()
    with fresh_caches(keep=keep_caches, used=lambda: living(ours.snapshot())) as caches:
        environ = environment({**os.environ, **caches.environ}, run=name, started_by=launch)
        status = _attend(tuple(command), environ, ours, received)
        snapshot = ours.ended()  # processes that outlive the command still use its caches
    left = caches_left(caches.folder) if caches.folder and Path(caches.folder).exists() else ""
    if os.WIFSIGNALED(status):
        if left:
            note(f"warmwatch check: {left}")
        end_as(status)
    try:
        _not_interrupted(received)
        _sound(snapshot, os.waitstatus_to_exitcode(status), command)
        _all_there(ours.earlier(snapshot))
    except CannotCompareError as error:
        raise CannotCompareError("; ".join(filter(None, (str(error), left))), error.code) from None
    folders = (rank.record.folder for run in snapshot.runs for rank in run.ranks)
    return baseline.measured(snapshot.runs, {folder: parse_journal(folder) for folder in folders})


def _attend(
    command: tuple[str, ...], environ: Mapping[str, str], ours: Launched, received: list[int]
) -> int:
    """Run it to its end; its wait status."""
    with startable(command):
        return supervise(
            command,
            environ,
            poll=ours.poll,
            stopped=lambda: None,
            received=received.append,
            seconds=_PAUSE_SECONDS,
        )


def _not_interrupted(received: Sequence[int]) -> None:
    """Raises CannotCompareError if a signal ended it early, even if it exited with 0."""
    stops = [number for number in received if number in _STOPS]
    if stops:
        raise CannotCompareError(
            f"it was ended by {signal.Signals(stops[0]).name}, so nothing was compared",
            _BY_SIGNAL + stops[0],
        )


def _sound(snapshot: Snapshot, code: int, command: Sequence[str]) -> None:
    """Raises CannotCompareError unless all runs are complete, and one compiled something."""
    if code:
        raise CannotCompareError(
            f"{command[0]} failed with exit code {code}, so nothing was compared", FAILED
        )
    if not snapshot.runs:
        raise CannotCompareError(nothing_seen(snapshot), NOT_SEEN)
    for run in snapshot.runs:
        if _broken(run):
            raise CannotCompareError(f"{run_answer(run).summary}: nothing was compared", FAILED)
        if goes_on := [rank.rank for rank in run.ranks if rank.living]:
            raise CannotCompareError(unfinished(run, goes_on), NOT_SEEN)
    if not any(rank.figures.compile.begun for run in snapshot.runs for rank in run.ranks):
        raise CannotCompareError(uncompiled(snapshot.runs[0]), NOT_SEEN)


def _all_there(earlier: Sequence[RecordReading]) -> None:
    """Raises CannotCompareError if a record compiled something that no rank's numbers include."""
    if earlier:
        raise CannotCompareError(restarted(earlier[0].slot.identity.run), NOT_SEEN)


def _broken(run: RunView) -> bool:
    return any(rank.judgement.state in (State.FAILED, State.LOST) for rank in run.ranks)


GREW = 1


class _Request(NamedTuple):
    """The arguments."""

    command: tuple[str, ...]
    baseline: Path | None
    against: tuple[str, ...]
    name: str | None
    tolerance: float | None
    keep_caches: bool
    markdown: Path | None
    json: Path | None


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--baseline", type=options.FILE, help="Compare what CMD compiles with this file.")
@click.option("--update", "--write", is_flag=True, help="Write the file from what CMD compiles.")
@click.option("--against", metavar="CMD", help="Run this command first, and compare with it.")
@click.option(
    "--tolerance",
    metavar="R",
    type=options.Number(min=0, max=1000),
    help="How much the warm-up may grow: 0.5 is 50 %.  [from the file, else 1]",
)
@click.option("--keep-caches", is_flag=True, help="Use the existing compile caches.")
@click.option("--run", "--name", "name", metavar="NAME", help="The run's name.")
@click.option("--markdown", type=options.FILE, help="Write a Markdown summary; - is stdout.")
@click.option("--json", type=options.FILE, help="Write the result as JSON; - is stdout.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=options.FILE, required=True)
def check(
    baseline: str | None,
    update: bool,
    against: str | None,
    tolerance: float | None,
    keep_caches: bool,
    name: str | None,
    markdown: str | None,
    json: str | None,
    command: tuple[str, ...],
) -> None:
    """Run CMD and fail if it compiles more than the baseline.

    CMD runs as under `warmwatch run`, attached without an edit, with its own empty compile caches.
    It compares, rank by rank: graphs, graph breaks, recompiles, fallbacks, failures, kernels and
    skipped CUDA graphs; and the first warm-up in steady steps. Growth is printed on stderr, with
    reason and remedy.

    Begin with --baseline FILE --update, look at the file, and commit it. --against 'python
    old/train.py' measures another command first, in the same job, and compares seconds too.

    \b
    Exit code: 0 nothing grew; 1 something grew; 2 no baseline; 4 CMD failed; 5 a run is missing
    """
    check_name(name)
    if baseline is None and (update or against is None):
        raise UsageError("give --baseline FILE (only --against CMD works without it)")
    if update and against is not None:
        raise UsageError("--update and --against exclude each other")
    if baseline == "-":
        raise UsageError("--baseline needs a file, which is read and written; - is not a file")
    request = _Request(
        command=command,
        baseline=place_of("--baseline", baseline),
        against=_words(against),
        name=name,
        tolerance=tolerance,
        keep_caches=keep_caches,
        markdown=place_of("--markdown", markdown),
        json=place_of("--json", json),
    )
    raise SystemExit(_update(request) if update else _check(request))


def _words(command: str | None) -> tuple[str, ...]:
    try:
        names = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise UsageError(f"--against: {error}; it takes a shell command") from None
    if command is not None and not names:
        raise UsageError("--against takes a command")
    return names


def _check(request: _Request) -> int:
    held = _read(request.baseline) if request.baseline is not None else None
    against = str(request.baseline) if request.baseline else shlex.join(request.against)
    accept: str | None = None
    beside: tuple[MeasuredRun, ...] = ()
    if request.baseline is not None:
        again = ("warmwatch", "check", "--baseline", str(request.baseline), "--update")
        accept = shlex.join((*again, "--", *request.command))
    try:
        if request.against:
            beside = _measured(request, request.against)
        held = baseline.of(beside) if held is None else held
        runs = _measured(request, request.command)
        comparison = compared(runs, held, request.tolerance, beside)
    except CannotCompareError as error:
        _report(request, document(against, Comparison(), str(error)), None)
        return error.code
    result = document(against, comparison)
    _report(request, result, accept)
    return GREW if result.grew else NOT_SEEN if result.problems else 0


def _measured(request: _Request, command: Sequence[str]) -> tuple[MeasuredRun, ...]:
    return measured(command, name=request.name, keep_caches=request.keep_caches)


def _update(request: _Request) -> int:
    place = request.baseline
    assert place is not None, "--update requires --baseline"
    before = _read(place) if place.exists() else None
    try:
        runs = _measured(request, request.command)
    except CannotCompareError as error:
        note(f"\nwarmwatch check: {error}; {place} is unchanged")
        return error.code
    made = baseline.of(runs, before)
    if request.tolerance is not None:
        made = replace(made, tolerance=request.tolerance)
    text = baseline.written(made)
    write(place, text)
    was = before or baseline.parsed(text)
    note(changes(str(place), compared(runs, was), first=before is None))
    return 0


_LONGEST_BASELINE = 16 << 20  # bytes


def _read(place: Path) -> Baseline:
    try:
        text = read_text(place, _LONGEST_BASELINE, pipes=True)
    except FileNotFoundError:
        raise UsageError(
            f"{place}: there is no baseline yet; write it with `warmwatch check --baseline "
            f"{shlex.quote(str(place))} --update -- CMD`, review it and commit it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{place}: cannot be read: {why}") from None
    try:
        return parsed(text)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


def _report(request: _Request, result: CheckDocument, accept: str | None) -> None:
    """Print the result on stderr (stdout is CMD's), and write the requested files."""
    note(text(result, accept))
    if request.markdown is not None:
        # several checks of one job append to its summary
        shared = str(request.markdown) == os.environ.get("GITHUB_STEP_SUMMARY")
        write(request.markdown, markdown(result), append=shared)
    if request.json is not None:
        write(request.json, as_json(result) + "\n")
