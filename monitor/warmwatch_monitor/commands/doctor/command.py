"""``warmwatch doctor``: a checklist of the installation, with a fix for each problem.

``--report FILE`` writes what a maintainer needs to reproduce a problem, as Markdown. The record is
reduced to counts, times, sizes, booleans and words of closed lists. Numbers that a guard compared,
and names that the user chose (runs, functions, files, hosts, directories), are left out.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
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
from warmwatch_monitor.commands.doctor.hook_checks import hooks
from warmwatch_monitor.commands.doctor.host_checks import compile_host, compiling
from warmwatch_monitor.commands.terminal.table import wrapped
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import is_terminal, plain, say, width
from warmwatch_monitor.output.json_text import as_json
from warmwatch_monitor.output.safe_writing import place_of, write

LIBRARIES = (
    *("warmwatch", "torch", "triton", "nvidia-ml-py", "psutil", "prometheus-client"),
    *("starlette", "uvicorn", "msgspec", "click", "rich", "textual"),
)
# keys of `/status` whose strings come from closed lists
CLOSED_LISTS = frozenset(
    {
        *("cache", "category", "condition", "dtype", "kind", "missing", "phase", "precompiled"),
        *("signal", "source", "state", "warm_by"),
    }
)
# keys with numbers that a guard of the user's program compared
VALUES = frozenset({"values", "smallest", "largest"})
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# of a path only the first folder stays: later ones name users, projects and runs
_PATH = re.compile(r"(?<![\w.:/])(~|/[\w.-]+)/[^\s,;:'\"()]+")


def issue_report(
    installation: Sequence[Finding],
    hooks: Sequence[Finding],
    answer: dict[str, Any] | None,
    host: str,
) -> str:
    """The report as Markdown: versions, findings, and the reduced ``/status`` document.

    Args:
        installation: the findings of ``doctor``.
        hooks: the findings of ``doctor --hooks``.
        answer: the ``/status`` document; ``None`` if it could not be read.
        host: where a daemon was looked for.
    """
    records = (
        "could not be read"
        if answer is None
        else f"```json\n{json.dumps(reduced(answer), indent=1)}\n```"
    )
    stand_ins = {} if host in _LOOPBACK else {host: "HOST"}
    for number, run in enumerate((answer or {}).get("runs", ()), 1):
        stand_ins[run.get("name", "")] = f"run-{number}"
    text = "\n\n".join(
        (
            "# Warmwatch: report for an issue",
            "## Versions",
            "\n".join(f"- {line}" for line in _versions()),
            "## Installation",
            _listed(installation, stand_ins),
            "## Hooks against this PyTorch",
            _listed(hooks, stand_ins),
            "## Runs, without names",
            records,
        )
    )
    return text + "\n"


def reduced(value: Any, key: str = "") -> Any:
    """``value`` of a ``/status`` document, without what the user's program chose."""
    if isinstance(value, dict):
        items = {name: reduced(item, name) for name, item in value.items() if name not in VALUES}
        return {name: item for name, item in items.items() if item not in (None, [], {})}
    if isinstance(value, list):
        return [
            item for item in (reduced(item, key) for item in value) if item not in (None, [], {})
        ]
    if isinstance(value, str):
        return value if key in CLOSED_LISTS else None
    return value


def _versions() -> list[str]:
    lines = [f"Python {platform.python_version()} on {platform.system()} {platform.release()}"]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name}: not installed")
    return lines


def _listed(findings: Sequence[Finding], stand_ins: Mapping[str, str]) -> str:
    lines = [f"- {finding.mark.value}: {_hidden(finding, stand_ins)}" for finding in findings]
    return "\n".join(lines) or "- nothing"


def _hidden(finding: Finding, stand_ins: Mapping[str, str]) -> str:
    """What was found, without the user's names and paths."""
    # directories too: in the text, a path ends at a space
    values = {old: new for name in finding.names for old, new in _stand_ins(name).items()}
    values.update(stand_ins)
    longest_first = sorted(filter(None, values), key=len, reverse=True)
    # whole names only: a run that is called "a" leaves other words as they are
    names = re.compile(rf"(?<![^\W_])({'|'.join(map(re.escape, longest_first))})(?![^\W_])")
    text = (
        names.sub(lambda match: values[match[0]], finding.what) if longest_first else finding.what
    )
    return _PATH.sub(r"\1/…", text)


def _stand_ins(name: str) -> dict[str, str]:
    """What the report has instead of a name, or of a directory and those above it."""
    if not name.startswith("/"):
        return {name: "NAME"}
    parts = name.split("/")
    return {"/".join(parts[:end]): f"/{parts[1]}/…" for end in range(3, len(parts) + 1)}


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
        from warmwatch_monitor.commands.doctor.hook_checks import guard_checks

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
