"""``warmwatch doctor``: a checklist of the installation, with a fix for each problem."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from warmwatch.shared.phrases import counted
from warmwatch_monitor.base.errors import UsageError, WarmwatchError
from warmwatch_monitor.base.settings import Settings
from warmwatch_monitor.client.answers import answer_source, settings_from
from warmwatch_monitor.commands.doctor.checks import (
    Finding,
    Mark,
    gpus,
    installation,
    surroundings,
    variables,
)
from warmwatch_monitor.commands.doctor.compile_host import compile_host
from warmwatch_monitor.commands.doctor.hook_checks import hooks
from warmwatch_monitor.commands.doctor.host_checks import compiling
from warmwatch_monitor.commands.doctor.issue_report import issue_report
from warmwatch_monitor.commands.terminal.table import wrapped
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import is_terminal, plain, say, width
from warmwatch_monitor.output.files import place_of, write
from warmwatch_monitor.output.json_text import as_json


class DoctorFinding(Struct, frozen=True, kw_only=True):
    """One line of the checklist."""

    mark: Mark
    """How serious it is; only `trouble` requires action."""
    what: str
    """What was found, in one sentence."""
    advice: str | None = None
    """What to do; null if there is nothing to do."""


class DoctorDocument(Struct, frozen=True, kw_only=True):
    """The checklist of `warmwatch doctor --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    to_do: int
    """Number of findings that require action."""
    findings: list[DoctorFinding]
    """The findings, in the order of the checks."""


_INDENT = " " * 7  # of advice and wrapped lines
_SIGNS = {Mark.FINE: "ok  ", Mark.NOTE: "note", Mark.TROUBLE: "DO  "}


@click.command(context_settings={"allow_interspersed_args": False})
@options.address
@options.directory
@click.option("--json", "is_json", is_flag=True, help="Print the findings as JSON.")
@options.access
@click.option(
    "--hooks",
    "check_hooks",
    is_flag=True,
    help="Compile a few tiny functions with the agent attached, and compare each hook's figures "
    "with PyTorch's own records. Does nothing else.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Collect versions, both checks and your runs without names for an issue; print it, and "
    "write it to FILE if you agree ('-' only prints).",
)
@click.argument("command", metavar="[-- CMD...]", nargs=-1, type=options.FILE)
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    address: str | None,
    dir: str | None,
    is_json: bool,
    check_hooks: bool,
    report: str | None,
    command: tuple[str, ...],
    **access: str | None,
) -> None:
    """Check the installation and this host, and show how to fix each problem.

    Run it where the training runs, in its container or its job: CPU quota, memory limit, compile
    workers and compile caches are those of this environment.

    With CMD, such as python train.py, it measures guard checks instead, under PyTorch's CPU
    profiler, and ends CMD as by Ctrl-C. Those above 1 % of the step are named, with the function.

    \b
    Exit code: 0 no problem found; 1 a problem found; of CMD: 126, 127, 130
    """
    if command and (check_hooks or report is not None):
        raise UsageError("give either CMD or --hooks or --report")
    settings = settings_from(address=address, dir=dir, **access)
    if report is not None:
        place = place_of("--report", report)
        answer = _answer_or_none(address=address, dir=dir, access=access)
        checked = _installation(settings), [*hooks(os.environ)]
        _write_report(issue_report(*checked, answer, settings.address.host), place)
        return
    findings: list[Finding] = []
    checks, interrupted = _checks(settings, command, check_hooks=check_hooks, counts=not is_json)
    for finding in checks:
        findings.append(finding)
        if not is_json:
            say(_line(finding))
    troubles = sum(finding.mark is Mark.TROUBLE for finding in findings)
    if is_json:
        say(as_json(_document(findings, troubles)))
    elif not interrupted:
        say(_total(findings, troubles))
    ctx.exit(interrupted or bool(troubles))


def _checks(
    settings: Settings, command: tuple[str, ...], *, check_hooks: bool, counts: bool
) -> tuple[Iterable[Finding], int]:
    """The findings, and the exit code if a signal interrupted the checks, else 0."""
    if command:
        # what `modes` loads, for `doctor -- CMD` only
        from warmwatch_monitor.commands.doctor.guard_checks import guard_checks

        finding, interrupted = guard_checks(command)
        return [finding], interrupted
    return hooks(os.environ, counts=counts) if check_hooks else _installation(settings), 0


def _installation(settings: Settings) -> list[Finding]:
    return [
        *installation(),
        *variables(os.environ),
        *surroundings(settings),
        *gpus(settings),
        *compiling(lambda: compile_host(os.environ)),
    ]


def _answer_or_none(**options: Any) -> dict[str, Any] | None:
    try:
        return answer_source(None, own=True, **options)()
    except WarmwatchError as error:
        say(f"the runs could not be read: {plain(str(error))}")
        return None


def _write_report(text: str, place: Path | None) -> None:
    """Show the report, and write it only after the user agrees."""
    say(text)
    if place and str(place) != "-" and click.confirm(f"Write this to {place}?", default=False):
        write(place, text)


def _document(findings: Sequence[Finding], troubles: int) -> DoctorDocument:
    lines = [
        DoctorFinding(mark=finding.mark, what=finding.what, advice=finding.advice or None)
        for finding in findings
    ]
    return DoctorDocument(to_do=troubles, findings=lines)


def _total(findings: Sequence[Finding], troubles: int) -> str:
    """``no problem found, 2 notes``: a note may be a problem, which only the user knows."""
    notes = sum(finding.mark is Mark.NOTE for finding in findings)
    found = counted(troubles, "problem") if troubles else "no problem"
    return f"{found} found, {counted(notes, 'note')}" if notes else f"{found} found"


def _line(finding: Finding) -> str:
    room = width() if is_terminal() else None
    lines = wrapped(f"{_SIGNS[finding.mark]}  {plain(finding.what)}", room, hanging=_INDENT)
    if finding.advice:
        lines += wrapped(plain(finding.advice), room, indent=_INDENT)
    return "\n".join(lines)
