"""``warmwatch export``: a run for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.errors import UsageError, WarmwatchError
from warmwatch_monitor.output import options
from warmwatch_monitor.output.console import note, say

if TYPE_CHECKING:
    from warmwatch_monitor.model.run_summary import RunSummary


@click.command()
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--perfetto",
    metavar="FILE",
    help="A trace for ui.perfetto.dev and chrome://tracing: compilations, phases, steps and GPU "
    "power on one axis; - is stdout.",
)
@click.option(
    "--csv",
    metavar="DIR|FILE",
    help="A folder of tables: ranks, compilations, samples, gpus; FILE.csv has the compilations.",
)
@click.option("--parquet", metavar="DIR", help="The same tables as Parquet; needs pyarrow.")
@options.directory
def export(
    run: str | None, perfetto: str | None, csv: str | None, parquet: str | None, dir: str | None
) -> None:
    """Write RUN to files for other programs. Without RUN: the run that began last.

    \b
    Exit code: 0 written; 1 cannot be written; 2 pyarrow is missing; 5 no such run
    """
    if perfetto is None and csv is None and parquet is None:
        raise UsageError("nothing to write: give --perfetto FILE, --csv DIR or --parquet DIR")
    if "-" in (csv, parquet):
        raise UsageError("--csv and --parquet write several tables: give a directory, not -")
    from warmwatch_monitor.report.summaries import as_written, run_summaries

    found = run_summaries(() if run is None else (run,), dir=dir)
    if len(found) > 1:
        names = ", ".join(one.run for one in found)
        raise UsageError(f"{run!r} matches several runs: {names}; give one of them")
    try:
        with as_written(found):
            _write(found[0], perfetto, csv, parquet)
    except OSError as error:  # without a file name if the disk is full
        places = ", ".join(one for one in (perfetto, csv, parquet) if one is not None)
        raise WarmwatchError(
            f"{error.filename or places} cannot be written ({error.strerror}); name another place"
        ) from None


def _write(summary: RunSummary, perfetto: str | None, csv: str | None, parquet: str | None) -> None:
    if perfetto is not None:
        _trace(summary, perfetto)
    if csv is None and parquet is None:
        return
    from pathlib import Path

    from warmwatch_monitor.export.tables import tables, write_csv, write_one_csv, write_parquet

    found, written = tables(summary), []
    if csv is not None and csv.endswith(".csv"):
        compilations = next(one for one in found if one.name == "compilations")
        written.append(write_one_csv(compilations, Path(csv)))
    elif csv is not None:
        written += write_csv(found, Path(csv))
    if parquet is not None:
        written += write_parquet(found, Path(parquet))
    for path in written:
        note(f"warmwatch: wrote {path}")


def _trace(summary: RunSummary, path: str) -> None:
    import json

    from warmwatch_monitor.export.trace import trace

    text = json.dumps(trace(summary))
    if path == "-":
        say(text)
        return
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - one file needs no pathlib
        file.write(text)
    note(f"warmwatch: wrote {path}; open it at https://ui.perfetto.dev or chrome://tracing")
