"""``warmwatch report``: a run after the fact, on one page."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import quote as url_quoted

import click
import msgspec

from warmwatch_monitor.base.errors import UsageError, WarmwatchError
from warmwatch_monitor.base.timeouts import read_text
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.client.summaries import as_written, last_like, run_summary
from warmwatch_monitor.commands.report.assembly import report as report_of
from warmwatch_monitor.commands.report.brief import brief, timeline
from warmwatch_monitor.commands.report.wording import page, short
from warmwatch_monitor.output import options, safe_writing
from warmwatch_monitor.output.console import draw, has_colour, note, plain, say, width
from warmwatch_monitor.output.document import Document, lines, printed
from warmwatch_monitor.output.document import markdown as text_of
from warmwatch_monitor.output.json_text import as_json

if TYPE_CHECKING:
    from warmwatch_monitor.commands.report.parts import Report
    from warmwatch_monitor.model.run_summary import RunSummary


@click.command()
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--html",
    is_flag=False,
    flag_value="",
    type=options.FILE,
    help="Write one self-contained HTML file; - is stdout.",
)
@click.option("--tlparse", type=options.DIR, help="Link the HTML file to tlparse's output in DIR.")
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
@click.option("--markdown", is_flag=True, help="Print the report as Markdown, for a pull request.")
@click.option("-v", "--verbose", is_flag=True, help="Show everything, not only ten lines.")
@options.directory
def report(
    run: str | None,
    html: str | None,
    tlparse: str | None,
    is_json: bool,
    markdown: bool,
    verbose: bool,
    dir: str | None,
) -> None:
    """Show where the time of RUN went and what to do first; without RUN, of the latest start.

    With -v also the recompiles with their reasons and costs, the steady step, the functions by
    phase, graph breaks and ranks; --html, --markdown and --json always have all of it. RUN is a
    name, an id, or NAME~1 (the start before). It may still run, or have ended long ago.
    """
    if html == "":
        raise UsageError("--html needs a file to write: --html report.html; - is stdout")
    if sum((html is not None, is_json, markdown)) > 1:
        raise UsageError("give only one of --html, --json and --markdown")
    if tlparse is not None and html is None:
        raise UsageError("--tlparse needs --html FILE: only that has links")
    summary = run_summary(run, dir=dir)
    with as_written((summary,)):
        made = reported(summary, None if dir is not None else last_like(summary))
        if is_json:
            say(as_json(made))
        elif html is not None:
            # its style and script are a third of the start of the command
            from warmwatch_monitor.commands.report.html import html as html_of

            urls = {} if tlparse is None else traced(tlparse, html)
            _write(html, html_of(page(made), made, summary, urls))
        elif markdown:
            show(page(made), markdown=True)
        elif verbose:
            draw(picture(page(made), made))
        else:
            shown = brief(made, width(), made.run if run is None else plain(run))
            draw(printed(shown, width=width(), colour=has_colour()))


def reported(summary: RunSummary, before: RunSummary | None = None) -> Report:
    """Its report, compared with ``before``, as printable text."""
    made: Report = plain(report_of(summary, before, now=time.time()))
    return made


def show(document: Document, *, markdown: bool) -> None:
    """Print ``document``, formatted for this output or as Markdown."""
    if markdown:
        say(text_of(document), end="")
        return
    draw(lines(document, width=width(), colour=has_colour()))


def picture(page: Document, made: Report) -> str:
    """``page`` formatted for this output."""
    columns = width()
    charts = {"timeline": timeline(made, columns)}
    return lines(page, width=columns, colour=has_colour(), charts=charts)


def in_short(runs: Sequence[RunSummary], *, kept: bool = True) -> str:
    """Short reports of ``runs`` and, if they are ``kept``, the command that shows all: printed at
    the end of a launch.
    """
    made = [reported(run) for run in runs]
    names = sorted({run.run for run in runs})
    pictures = [picture(short(report), report) for report in made]
    if kept:
        commands = "; ".join(f"warmwatch report {quote(name)} -v" for name in names)
        pictures.append(f"All of it: {commands}")
    return "\n\n".join(pictures)


_LONGEST_INDEX = 64 << 20  # bytes; an entry takes some hundred


def traced(directory: str, file: str) -> dict[str, str]:
    """URLs of the compile ids in tlparse's output in ``directory``, relative to the HTML ``file``.

    A compilation that Dynamo restarted has an id for each attempt: the URL is of the last one.
    """
    index = os.path.join(directory, "compile_directory.json")  # noqa: PTH118
    try:
        names = msgspec.json.decode(read_text(index, _LONGEST_INDEX), type=dict[str, msgspec.Raw])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        why = getattr(error, "strerror", None) or "it is not tlparse's"
        raise WarmwatchError(
            f"{index} cannot be read ({why}); write it with: tlparse TRACE -o {directory}"
        ) from None
    here = url_quoted(os.path.relpath(directory, os.path.dirname(file) or "."))  # noqa: PTH120
    return {
        name.strip("[]").partition("_")[0]: f"{here}/index.html#{url_quoted(name)}"
        for name in names
    }


def _write(path: str, text: str) -> None:
    if path == "-":
        say(text, end="")
        return
    try:
        safe_writing.replace(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise WarmwatchError(
            f"{path} cannot be written ({error.strerror}); name another file"
        ) from None
    note(f"warmwatch: wrote {path}")
