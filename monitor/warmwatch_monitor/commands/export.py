"""``warmwatch export``: a run for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from msgspec import Struct

from warmwatch.shared.phrases import place
from warmwatch.shared.values import PHASES, printable
from warmwatch_monitor.base.errors import UsageError, WarmwatchError
from warmwatch_monitor.client.completion import run_names
from warmwatch_monitor.client.summaries import as_written, run_summary
from warmwatch_monitor.commands.report.assembly import line
from warmwatch_monitor.model.run_summary import FARTHEST, Compiled, RankSummary, RunSummary, Samples
from warmwatch_monitor.output import options, safe_writing
from warmwatch_monitor.output.console import note, say
from warmwatch_monitor.output.json_text import as_json


class ExportedFile(Struct, frozen=True, kw_only=True):
    """A file that was written."""

    path: str
    """Its path."""
    format: Literal["perfetto", "csv"]
    """Its format."""
    table: str | None = None
    """Name of its table; null for a trace."""


class ExportDocument(Struct, frozen=True, kw_only=True):
    """The files of `warmwatch export --json`."""

    schema_version: int = 1
    """1. Within a version, no key changes its meaning."""
    run: str
    """Name of the run."""
    id: str
    """Its id in the history."""
    files: list[ExportedFile]
    """The files that were written."""


@click.command()
@click.argument("run", required=False, shell_complete=run_names)
@click.option(
    "--perfetto",
    type=options.FILE,
    help="A trace for ui.perfetto.dev and chrome://tracing: compilations, phases, steps and GPU "
    "power on one axis; - is stdout.",
)
@click.option(
    "--csv",
    metavar="DIR|FILE",
    type=options.FILE,
    help="A folder of tables: ranks, compilations, samples, gpus; FILE.csv has the compilations.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the written files as JSON.")
@options.directory
def export(
    run: str | None,
    perfetto: str | None,
    csv: str | None,
    is_json: bool,
    dir: str | None,
) -> None:
    """Write RUN to files for other programs. Without RUN: the run that began last."""
    if perfetto is None and csv is None:
        raise UsageError("nothing to write: give --perfetto FILE or --csv DIR")
    if csv == "-":
        raise UsageError("--csv writes several tables: give a directory, not -")
    if is_json and perfetto == "-":
        raise UsageError("--perfetto - and --json both print on stdout: give the trace a file")
    summary = run_summary(run, dir=dir)
    files: list[ExportedFile] = []
    try:
        with as_written((summary,)):
            for file in _written(summary, perfetto, csv):
                files.append(file)
                opened = "; open it at https://ui.perfetto.dev or chrome://tracing"
                if not is_json:
                    note(
                        f"warmwatch: wrote {file.path}{opened if file.format == 'perfetto' else ''}"
                    )
    except OSError as error:  # without a file name if the disk is full
        places = ", ".join(name for name in (perfetto, csv) if name is not None)
        raise WarmwatchError(
            f"{error.filename or places} cannot be written ({error.strerror}); name another place"
        ) from None
    if is_json:
        say(as_json(ExportDocument(run=summary.run, id=summary.id, files=files)))


def _written(summary: RunSummary, perfetto: str | None, csv: str | None) -> Iterator[ExportedFile]:
    """Write the files; each one after it is written, except for a trace on stdout."""
    if perfetto is not None and (path := _trace(summary, perfetto)):
        yield ExportedFile(path=path, format="perfetto")
    if csv is None:
        return
    rowses = tables(summary)
    if csv.endswith(".csv"):
        compilations = next(rowse for rowse in rowses if rowse.name == "compilations")
        written = write_one_csv(compilations, Path(csv))
        yield ExportedFile(path=str(written), format="csv", table=compilations.name)
    else:
        for written in write_csv(rowses, Path(csv)):
            yield ExportedFile(path=str(written), format="csv", table=written.stem)


def _trace(summary: RunSummary, path: str) -> str | None:
    """Write the trace; its path, or ``None`` if that is stdout."""
    text = json.dumps(trace(summary))
    if path == "-":
        say(text)
        return None
    safe_writing.replace(path, text.encode())
    return path


Value = str | int | float | None
_RANK = (
    *("rank", "state", "steps", "compile_seconds", "warmup_seconds", "recompiles"),
    *("graphs", "step_seconds"),
)
_COMPILED = (
    *("ended", "seconds", "step", "id", "kind", "name", "file", "line", "code"),
    *("reason", "category", "cache", "failure", "ops", "kernels", "at_limit"),
)


class Rows(Struct, frozen=True):
    """A table; a value of ``None`` is unknown."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def tables(summary: RunSummary) -> tuple[Rows, ...]:
    """All tables that are not empty; ranks and compilations always."""
    gpus = _sampled("gpus", "uuid", summary.gpu_samples)
    row = (_ranks(summary), _compilation_rows(summary), _steps(summary), gpus)
    return tuple(rows for rows in row if rows.rows or rows.name in ("ranks", "compilations"))


def _ranks(summary: RunSummary) -> Rows:
    rows = []
    for rank in summary.ranks:
        rank_line, end = line(rank), rank.answer.get("end") or {}
        row = (getattr(rank_line, name) for name in _RANK)
        rows.append((summary.run, summary.id, *row, end.get("how")))
    return Rows("ranks", ("run", "id", *_RANK, "end"), tuple(rows))


def _compilation_rows(summary: RunSummary) -> Rows:
    columns = ("rank", *_COMPILED, *(f"{phase}_seconds" for phase in PHASES))
    rows = tuple(
        (rank.rank, *_compilation_row(each)) for rank in summary.ranks for each in rank.compiled
    )
    return Rows("compilations", columns, rows)


def _compilation_row(compilation: Compiled) -> tuple[Value, ...]:
    own = tuple(getattr(compilation, name) for name in _COMPILED)
    return (*own, *(compilation.phase_seconds.get(phase) for phase in PHASES))


def _steps(summary: RunSummary) -> Rows:
    """Samples of each rank from a daemon, every second or longer."""
    seen = {rank.rank: rank.samples for rank in summary.ranks if rank.samples is not None}
    return _sampled("samples", "rank", seen)


def _sampled(name: str, of: str, seen: Mapping[int, Samples] | Mapping[str, Samples]) -> Rows:
    names = tuple(dict.fromkeys(column for samples in seen.values() for column in samples.columns))
    rows = tuple(row for key, samples in seen.items() for row in _rows(key, samples, names))
    return Rows(name, (of, "epoch", "seconds", *names), rows)


def _rows(key: Value, seen: Samples, names: tuple[str, ...]) -> Iterator[tuple[Value, ...]]:
    empty = (None,) * len(seen.epochs)
    columns = [seen.columns.get(name, empty) for name in names]
    for at, epoch in enumerate(seen.epochs):
        yield (key, epoch, seen.seconds, *(column[at] for column in columns))


# a spreadsheet interprets text that begins with these as a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(tables: Sequence[Rows], folder: Path) -> list[Path]:
    """Write one file per table. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_one_csv(table, folder / f"{table.name}.csv") for table in tables]


def write_one_csv(table: Rows, path: Path) -> Path:
    """Write one table. Raises OSError."""
    made = io.StringIO(newline="")
    writer = csv.writer(made)
    writer.writerow(table.columns)
    writer.writerows([_cell(value) for value in row] for row in table.rows)
    safe_writing.replace(str(path), made.getvalue().encode("utf-8", "backslashreplace"))
    return path


def _cell(value: object) -> object:
    """A value that is safe in spreadsheets (no formula) and terminals (no escape codes)."""
    if not isinstance(value, str):
        return value
    text = printable(value, keep="\t\r\n")
    return f"'{text}" if text.startswith(_FORMULA) else text


_GPUS = 1_000_000  # pid of the GPUs' process, larger than any rank
_STATES, _WARMUP, _COMPILATIONS = 1, 2, 3
_THREADS = {_STATES: "state", _WARMUP: "warm-up"}
_STEPS = {"steps": "steps", "step_seconds": "step seconds", "compile_seconds": "compile seconds"}
_OF_GPUS = {
    "power_watts": "power (W)",
    "utilization_ratio": "utilization (ratio)",
    "memory_used_bytes": "memory used (bytes)",
}

Event = dict[str, Any]


def trace(summary: RunSummary) -> dict[str, Any]:
    """The whole file: a JSON object."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {"run": summary.run, "id": summary.id, "began": summary.began},
        "traceEvents": [
            *(event for rank in summary.ranks for event in _rank(rank, summary)),
            *_gpus(summary),
        ],
    }


def _rank(rank: RankSummary, summary: RunSummary) -> Iterator[Event]:
    yield _named("process_name", rank.rank, f"{summary.run} rank {rank.rank}")
    yield {**_meta("process_sort_index", rank.rank), "args": {"sort_index": rank.rank}}
    for thread, name in _THREADS.items():
        yield _named("thread_name", rank.rank, name, thread)
    yield from _compilations(rank, summary.began)
    yield from _warmups(rank, summary)
    if rank.samples is not None:
        yield from _stretches(rank.samples, rank.rank, summary.began)
        yield from _counters(rank.samples, _STEPS, rank.rank, summary.began)


def _compilations(rank: RankSummary, began: float) -> Iterator[Event]:
    """Slices of compilations; overlapping ones get separate threads, as viewers require."""
    ends: list[float] = []
    for compiled in sorted(rank.compiled, key=_begin):
        begin = _begin(compiled)
        lane = next((at for at, end in enumerate(ends) if end <= begin), len(ends))
        ends[lane:] = [compiled.ended, *ends[lane + 1 :]]
        yield from _compiled(compiled, rank.rank, _COMPILATIONS + lane, began)
    for lane in range(len(ends)):
        name = f"compilations {lane + 1}" if lane else "compilations"
        yield _named("thread_name", rank.rank, name, _COMPILATIONS + lane)


def _begin(compilation: Compiled) -> float:
    return compilation.ended - (compilation.seconds or 0.0)


def _compiled(compilation: Compiled, pid: int, tid: int, began: float) -> Iterator[Event]:
    """The slice of a compilation, and those of its phases."""
    where = place(*compilation.function).replace("`", "")
    name = f"{compilation.kind} {where}".strip()
    args = {
        "steps before" if key == "step" else key: value
        for key in ("id", "step", "reason", "category", "cache", "failure", "ops", "kernels")
        if (value := getattr(compilation, key)) is not None
    }
    if compilation.at_limit:
        name += " (refused at the recompile limit)"
    begin = _begin(compilation)
    yield _slice(name, compilation.kind, pid, tid, begin - began, compilation.ended - began, args)
    for phase in PHASES:
        if seconds := compilation.phase_seconds.get(phase):
            end = min(begin + seconds, compilation.ended)
            yield _slice(phase, "phase", pid, tid, begin - began, end - began, {})
            begin = end


def _warmups(rank: RankSummary, summary: RunSummary) -> Iterator[Event]:
    """The slice of the first warm-up."""
    first = rank.answer["warmup"].get("first")
    if first:
        end = first["ended_at"] - summary.began
        begin = end - first["seconds"]
        yield _slice("warm-up", "warm-up", rank.rank, _WARMUP, begin, end, {})


def _stretches(seen: Samples, pid: int, began: float) -> Iterator[Event]:
    """A slice for each period in one state."""
    states = seen.columns.get("state", ())
    begin = 0
    for at in range(1, len(states) + 1):
        if at == len(states) or states[at] != states[begin]:
            if states[begin] is not None:
                since = seen.epochs[begin]
                until = seen.epochs[at] if at < len(states) else seen.epochs[-1] + seen.seconds
                name = str(states[begin])
                yield _slice(name, "state", pid, _STATES, since - began, until - began, {})
            begin = at


def _gpus(summary: RunSummary) -> Iterator[Event]:
    if not summary.gpu_samples:
        return
    yield _named("process_name", _GPUS, "GPUs")
    yield {**_meta("process_sort_index", _GPUS), "args": {"sort_index": _GPUS}}
    for at, (uuid, seen) in enumerate(sorted(summary.gpu_samples.items())):
        names = {column: f"GPU {at} {name}" for column, name in _OF_GPUS.items()}
        for event in _counters(seen, names, _GPUS, summary.began):
            yield {**event, "id": uuid}


def _counters(seen: Samples, names: Mapping[str, str], pid: int, began: float) -> Iterator[Event]:
    """Counter events of each numeric column; unknown values are left out."""
    for column, name in names.items():
        values: Sequence[float | str | None] = seen.columns.get(column, ())
        for epoch, value in zip(seen.epochs, values, strict=False):
            if isinstance(value, int | float):
                yield {
                    "ph": "C",
                    "name": name,
                    "pid": pid,
                    "ts": _us(epoch - began),
                    "args": {"value": value},
                }


def _slice(
    name: str, kind: str, pid: int, tid: int, begin: float, end: float, args: Mapping[str, Any]
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": pid,
        "tid": tid,
        "ts": _us(begin),
        "dur": _us(end) - _us(begin),
        "args": dict(args),
    }


def _named(what: str, pid: int, name: str, tid: int | None = None) -> Event:
    return {**_meta(what, pid, tid), "args": {"name": name}}


def _meta(what: str, pid: int, tid: int | None = None) -> Event:
    return {"ph": "M", "name": what, "pid": pid, **({} if tid is None else {"tid": tid})}


def _us(seconds: float) -> int:
    """Microseconds as an integer within 64 bits; viewers round fractions, so slices overlap."""
    return round(max(-FARTHEST, min(FARTHEST, seconds)) * 1e6)
