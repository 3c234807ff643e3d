"""``warmwatch check -- CMD``: fails if a training compiles more than its baseline allows."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from warmwatch_monitor.check.gated_run import NOT_SEEN, CannotCompareError, measured
from warmwatch_monitor.errors import UsageError
from warmwatch_monitor.output.console import note
from warmwatch_monitor.output.files import place_of, write, write_whole
from warmwatch_monitor.run.launched import check_name

if TYPE_CHECKING:
    from warmwatch_monitor.check.baseline import Baseline
    from warmwatch_monitor.check.measured import MeasuredRun
    from warmwatch_monitor.check.output import Result

GREW = 1


class _Wanted(NamedTuple):
    """What was asked for."""

    command: tuple[str, ...]
    baseline: Path | None
    against: tuple[str, ...]
    name: str | None
    tolerance: float | None
    keep_caches: bool
    markdown: Path | None
    junit: Path | None
    json: Path | None


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--baseline", metavar="FILE", help="Hold what CMD compiles against this file.")
@click.option("--update", "--write", is_flag=True, help="Write the file from what CMD compiles.")
@click.option("--against", metavar="CMD", help="Hold it against this command, run before it.")
@click.option(
    "--tolerance",
    metavar="R",
    type=click.FloatRange(min=0, max=1000),
    help="How much the warm-up may grow: 0.5 is half as much again.  [the file's, else 1]",
)
@click.option("--keep-caches", is_flag=True, help="Leave the compile caches as they are.")
@click.option("--run", "--name", "name", metavar="NAME", help="The run's name.")
@click.option("--markdown", metavar="FILE", help="Write a summary for people; - is stdout.")
@click.option("--junit", metavar="FILE", help="Write JUnit's XML for a CI server; - is stdout.")
@click.option("--json", metavar="FILE", help="Write it for programs; - is stdout.")
@click.argument("command", metavar="[--] CMD...", nargs=-1, type=click.UNPROCESSED, required=True)
def check(
    baseline: str | None,
    update: bool,
    against: str | None,
    tolerance: float | None,
    keep_caches: bool,
    name: str | None,
    markdown: str | None,
    junit: str | None,
    json: str | None,
    command: tuple[str, ...],
) -> None:
    """Run CMD and fail where it compiles more than its baseline does.

    CMD is run as `warmwatch run` does, attached to and not edited, with compile caches of its own
    that are empty. Then its graphs, graph breaks, recompiles, recompiles after warm, fallbacks,
    failures, kernels and CUDA graphs left out are held against the baseline's, rank by rank, and
    its first warm-up, in steady steps. What grew is said on stderr, with reason and remedy.

    Begin with --update, look at the file, and commit it. --against 'python old/train.py' measures
    another command first, in the same job: then the warm-up is compared in seconds, and without
    --baseline all numbers with that command's. Seconds of two machines are never compared.

    \b
    Exit code: 0 nothing grew, or the baseline was written
               1 something grew
               2 wrong usage; there is no baseline, or it cannot be read
               4 CMD failed, or a training below it did: nothing was compared
               5 no run was seen, or not all that the baseline knows, or one that
                 went on when CMD had ended
               126, 127 CMD cannot be run, was not found; by a signal, where one killed it
               130 Ctrl-C: nothing was compared, whatever CMD made of it
    """
    check_name(name)
    if baseline is None and (update or against is None):
        raise UsageError("--baseline FILE says which file; --against CMD alone needs none")
    if update and against is not None:
        raise UsageError("--update writes what CMD compiles: leave --against out")
    if baseline == "-":
        raise UsageError("--baseline takes a file, which is read and written: - is none")
    wanted = _Wanted(
        command=command,
        baseline=place_of("--baseline", baseline),
        against=_words(against),
        name=name,
        tolerance=tolerance,
        keep_caches=keep_caches,
        markdown=place_of("--markdown", markdown),
        junit=place_of("--junit", junit),
        json=place_of("--json", json),
    )
    raise SystemExit(_update(wanted) if update else _check(wanted))


def _words(command: str | None) -> tuple[str, ...]:
    try:
        found = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise UsageError(f"--against: {error}; it takes a command, as a shell would") from None
    if command is not None and not found:
        raise UsageError("--against takes a command")
    return found


def _check(wanted: _Wanted) -> int:
    from warmwatch_monitor.check.growth import compared
    from warmwatch_monitor.check.output import Result

    held = _read(wanted.baseline) if wanted.baseline is not None else None
    said = str(wanted.baseline) if wanted.baseline else shlex.join(wanted.against)
    accept = None
    if wanted.baseline is not None:
        again = ("warmwatch", "check", "--baseline", str(wanted.baseline), "--update")
        accept = shlex.join((*again, "--", *wanted.command))
    try:
        if wanted.against:
            held = _beside(_measured(wanted, wanted.against), held)
        assert held is not None, "one of the two was asked for"
        comparison = compared(_measured(wanted, wanted.command), held, wanted.tolerance)
    except CannotCompareError as error:
        _tell(wanted, Result(against=said, problem=str(error)))
        return error.code
    result = Result(against=said, comparison=comparison, accept=accept)
    _tell(wanted, result)
    if comparison.grew:
        return GREW
    return NOT_SEEN if comparison.incomplete else 0


def _measured(wanted: _Wanted, command: Sequence[str]) -> tuple[MeasuredRun, ...]:
    return measured(command, name=wanted.name, keep_caches=wanted.keep_caches)


def _beside(measured: tuple[MeasuredRun, ...], held: Baseline | None) -> Baseline:
    """What was measured in this job as a baseline: all of it, or beside a file's the warm-up."""
    from warmwatch_monitor.check import baseline

    here = baseline.of(measured)
    return here if held is None else baseline.with_seconds(held, here)


def _update(wanted: _Wanted) -> int:
    from msgspec.structs import replace

    from warmwatch_monitor.check import baseline
    from warmwatch_monitor.check.growth import compared
    from warmwatch_monitor.check.output import changes

    place = wanted.baseline
    assert place is not None, "it was asked for"
    before = _read(place) if place.exists() else None
    try:
        found = _measured(wanted, wanted.command)
    except CannotCompareError as error:
        note(f"\nwarmwatch check: {error}; {place} was left as it is")
        return error.code
    made = baseline.of(found, before)
    if wanted.tolerance is not None:
        made = replace(made, tolerance=wanted.tolerance)
    text = baseline.written(made)
    write_whole(place, text)
    was = before or baseline.parsed(text)
    note(changes(str(place), compared(found, was), first=before is None))
    return 0


def _read(place: Path) -> Baseline:
    from warmwatch_monitor.check.baseline import parsed

    try:
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"{place}: there is no baseline yet; write it with `warmwatch check --baseline "
            f"{shlex.quote(str(place))} --update -- CMD`, look at it and commit it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{place}: it cannot be read: {why}") from None
    try:
        return parsed(text)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    except (ValueError, RecursionError, OverflowError):  # thousands of digits, or of brackets
        raise UsageError(
            f"{place}: it holds a number that is too long, or is nested too deeply"
        ) from None


def _tell(wanted: _Wanted, result: Result) -> None:
    """On stderr, for stdout is the command's; and in the files that were asked for."""
    from warmwatch_monitor.check.output import answer, junit, markdown, text

    note(text(result))
    if wanted.markdown is not None:
        # of several checks in one step of a job each has its part in the job's summary
        shared = str(wanted.markdown) == os.environ.get("GITHUB_STEP_SUMMARY")
        write(wanted.markdown, markdown(result), append=shared)
    if wanted.junit is not None:
        write(wanted.junit, junit(result))
    if wanted.json is not None:
        import json

        write(wanted.json, json.dumps(answer(result), indent=2) + "\n")
