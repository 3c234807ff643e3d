"""``warmwatch check -- CMD``: fails if a training compiles more than its baseline allows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from warmwatch_monitor.base.bounded import read_text
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.commands.check import baseline
from warmwatch_monitor.commands.check.baseline import parsed
from warmwatch_monitor.commands.check.comparison import compared
from warmwatch_monitor.commands.check.gated_run import NOT_SEEN, CannotCompareError, measured
from warmwatch_monitor.commands.check.output import Result, changes, document, markdown, text
from warmwatch_monitor.commands.launch import check_name
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note
from warmwatch_monitor.output.files import place_of, write
from warmwatch_monitor.output.json_text import as_json

if TYPE_CHECKING:
    from warmwatch_monitor.commands.check.baseline import Baseline
    from warmwatch_monitor.commands.check.measured import MeasuredRun
    from warmwatch_monitor.commands.check.output import Result

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
    accept = None
    if request.baseline is not None:
        again = ("warmwatch", "check", "--baseline", str(request.baseline), "--update")
        accept = shlex.join((*again, "--", *request.command))
    try:
        if request.against:
            held = _beside(_measured(request, request.against), held)
        assert held is not None, "--baseline or --against is given"
        comparison = compared(_measured(request, request.command), held, request.tolerance)
    except CannotCompareError as error:
        _report(request, Result(against=against, problem=str(error)))
        return error.code
    result = Result(against=against, comparison=comparison, accept=accept)
    _report(request, result)
    if comparison.grew:
        return GREW
    return NOT_SEEN if comparison.incomplete else 0


def _measured(request: _Request, command: Sequence[str]) -> tuple[MeasuredRun, ...]:
    return measured(command, name=request.name, keep_caches=request.keep_caches)


def _beside(measured: tuple[MeasuredRun, ...], held: Baseline | None) -> Baseline:
    """The measured runs as a baseline; with a file's baseline, only their warm-up in seconds."""
    here = baseline.of(measured)
    return here if held is None else baseline.with_seconds(held, here)


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


def _report(request: _Request, result: Result) -> None:
    """Print the result on stderr (stdout is CMD's), and write the requested files."""
    note(text(result))
    if request.markdown is not None:
        # several checks of one job append to its summary
        shared = str(request.markdown) == os.environ.get("GITHUB_STEP_SUMMARY")
        write(request.markdown, markdown(result), append=shared)
    if request.json is not None:
        write(request.json, as_json(document(result)) + "\n")
