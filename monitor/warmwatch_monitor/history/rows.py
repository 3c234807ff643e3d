"""A run summary as rows of tables, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

import msgspec
from msgspec import Struct

from warmwatch.shared.states import State
from warmwatch_monitor.figures.compile import recompiles
from warmwatch_monitor.model.records import Death, Outside
from warmwatch_monitor.model.run_summary import (
    Compiled,
    Provenance,
    RankSummary,
    RunSummary,
    Samples,
    slowest_of,
)

Row = Mapping[str, Any]
_ROUNDED = 3  # digits of a second, counted from the first


def run_row(summary: RunSummary) -> dict[str, Any]:
    answers = [rank.answer for rank in summary.ranks]
    slowest = [slowest_of(summary).answer] if summary.ranks else []  # as in a report
    suffix, what = f"@{summary.owner}", summary.what
    return {
        "id": summary.id,
        "start": summary.start,
        "run": summary.run,
        "name": summary.run.removesuffix(suffix),
        "owner": summary.owner,
        "host": summary.host,
        "state": summary.state,
        "began": summary.began,
        "ended": summary.ended,
        "seen": summary.seen,
        "summary": summary.summary,
        "world_size": what.world_size,
        "ranks": len(summary.ranks),
        "steps": _most(answers, "steps"),
        "first_step_seconds": _most(slowest, "step_seconds", "first"),
        "step_seconds": _most(slowest, "step_seconds", "typical"),
        "warmup_seconds": _most(slowest, "warmup", "first", "seconds"),
        "compile_seconds": _compile_seconds(answers),
        "compilations": _most(answers, "compile", "compilations"),
        "recompiles": _recompiles(answers),
        "script": what.script,
        "commit": what.commit,
        "code": what.code,
        "torch": what.torch,
        "gpu": ", ".join(dict.fromkeys(what.gpus)) or None,
        "mode": _mode(what),
        "what": _text(what),
    }


def _mode(what: Provenance) -> str | None:
    """The mode of ``torch.compile``; ``eager`` if compilation was disabled."""
    if what.disabled:
        return "eager"
    return ", ".join(dict.fromkeys(wrapping.mode for wrapping in what.wrappings)) or None


def rank_rows(summary: RunSummary) -> list[dict[str, Any]]:
    return [
        {
            "id": summary.id,
            "rank": rank.rank,
            "state": rank.answer.get("state"),
            "attached": rank.answer.get("attached_at"),
            "steps": rank.answer.get("steps"),
            "step_seconds": _most([rank.answer], "step_seconds", "typical"),
            "compile_seconds": _compile_seconds([rank.answer]),
            "left_out": rank.left_out,
            "first_step_bytes": rank.first_step_bytes,
            "death": None if rank.death is None else _text(rank.death),
            "outside": None if rank.outside is None else _text(rank.outside),
            "answer": _text(rank.answer),
        }
        for rank in summary.ranks
    ]


def compilation_rows(id: str, rank: RankSummary) -> list[dict[str, Any]]:
    return [
        {
            "id": id,
            "rank": rank.rank,
            "number": number,
            **{name: getattr(compilation, name) for name in COMPILED},
            "compile_id": compilation.id,
            "phase_seconds": _text(compilation.phase_seconds),
            "what": _text(_without_column(compilation)),
        }
        for number, compilation in enumerate(rank.compiled)
    ]


def sample_rows(summary: RunSummary) -> list[dict[str, Any]]:
    """The rows of ``samples``: one per series, with its columns as lists."""
    rows: list[tuple[int | None, str | None, Samples]] = [
        (rank.rank, None, rank.samples) for rank in summary.ranks if rank.samples is not None
    ]
    rows += [(None, uuid, samples) for uuid, samples in summary.gpu_samples.items()]
    return [_sampled(summary.id, *row) for row in rows if row[2].epochs]


class RowError(msgspec.ValidationError):
    """A row has invalid content."""


class _First(TypedDict):
    seconds: float | None
    ended_at: float


class _Warmup(TypedDict, total=False):
    first: _First | None


class _Compile(TypedDict, total=False):
    phase_seconds: dict[str, float] | None


class _Energy(TypedDict, total=False):
    covered_seconds: float | None


class _Answer(TypedDict, total=False):
    """The part of a rank's answer that the history reads."""

    attached_at: float | None
    warmup: _Warmup
    compile: _Compile
    energy: _Energy | None


@contextmanager
def of_run(id: str) -> Iterator[None]:
    """Raises RowError, with the run's id, if a row that is read here is invalid."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, LookupError) else error
        raise RowError(f"run {id!r}: {why}") from None


def summary_of(
    run: Row, ranks: Iterable[Row], compilations: Iterable[Row], samples: Iterable[Row]
) -> RunSummary:
    """The run summary from all rows of a run."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in compilations:
        by_rank.setdefault(row["rank"], []).append(_compiled(row))
    of_ranks, of_gpus = samples_of(samples)
    values = {name: run[name] for name in _OF_RUN}
    State(run["state"])
    return msgspec.convert(
        {
            **values,
            "what": msgspec.json.decode(run["what"], type=Provenance),
            "ranks": [
                {
                    "rank": row["rank"],
                    "answer": _answer(row["answer"]),
                    "compiled": by_rank.get(row["rank"], ()),
                    "left_out": row["left_out"],
                    "first_step_bytes": row["first_step_bytes"],
                    **seen_of(row),
                    "samples": of_ranks.get(row["rank"]),
                }
                for row in ranks
            ],
            "gpu_samples": of_gpus,
        },
        RunSummary,
    )


_SEEN: Mapping[str, type[Struct]] = {"death": Death, "outside": Outside}
_OF_RUN = ("id", "start", "run", "owner", "host", "began", "ended", "seen", "state", "summary")


def seen_of(row: Row) -> dict[str, Any]:
    """What a daemon saw of a rank, and its record does not have."""
    return {
        name: None if row[name] is None else msgspec.json.decode(row[name], type=kind)
        for name, kind in _SEEN.items()
    }


def _answer(text: str) -> dict[str, Any]:
    answer = msgspec.json.decode(text, type=dict[str, Any])
    msgspec.convert(answer, _Answer)
    return answer


class _End(Struct):
    how: str


class _Ended(Struct):
    end: _End | None = None


def end_of(answer: str) -> str | None:
    """How a rank ended, as in ``/status``; ``None`` if it did not, as far as stored."""
    end = msgspec.json.decode(answer, type=_Ended).end
    return None if end is None else end.how


def samples_of(rows: Iterable[Row]) -> tuple[dict[int, Samples], dict[str, Samples]]:
    """Samples by rank, and by GPU uuid."""
    of_ranks: dict[int, Samples] = {}
    of_gpus: dict[str, Samples] = {}
    for row in rows:
        after = msgspec.json.decode(row["after"], type=list[float])
        columns = msgspec.json.decode(row["columns"], type=dict[str, list[float | str | None]])
        samples = Samples(
            seconds=row["seconds"],
            epochs=tuple(row["began"] + passed for passed in after),
            columns={name: tuple(values) for name, values in columns.items()},
        )
        if not after or any(len(values) != len(after) for values in columns.values()):
            raise ValueError("columns of different lengths")
        if row["rank"] is not None:
            of_ranks[row["rank"]] = samples
        elif row["gpu"] is not None:
            of_gpus[row["gpu"]] = samples
    return of_ranks, of_gpus


# columns of the table of compilations
COMPILED = (
    *("ended", "seconds", "step", "kind", "name", "file", "line", "code", "reason"),
    *("category", "cache", "failure", "ops", "kernels"),
)
# All other fields, so that a new one is stored, too: a report is the same from record and history
_WITHOUT_COLUMN = {
    field.encode_name: field.default
    for field in msgspec.structs.fields(Compiled)
    if field.name not in (*COMPILED, "id", "phase_seconds")
}


def _without_column(compilation: Compiled) -> dict[str, Any]:
    values = msgspec.to_builtins(compilation)
    return {
        name: values[name] for name, default in _WITHOUT_COLUMN.items() if values[name] != default
    }


def _compiled(row: Row) -> dict[str, Any]:
    return {
        **msgspec.json.decode(row["what"], type=dict[str, Any]),
        **{name: row[name] for name in COMPILED},
        "id": row["compile_id"],
        "phase_seconds": msgspec.json.decode(row["phase_seconds"], type=dict[str, float]),
    }


def _sampled(id: str, rank: int | None, gpu: str | None, samples: Samples) -> dict[str, Any]:
    began = samples.epochs[0]
    return {
        "id": id,
        "rank": rank,
        "gpu": gpu,
        "seconds": samples.seconds,
        "began": began,
        "after": _text([round(at - began, _ROUNDED) for at in samples.epochs]),
        "columns": _text(samples.columns),
    }


def _compile_seconds(answers: Sequence[Mapping[str, Any]]) -> float | None:
    """``None`` if all of it was before the agent attached."""
    seconds: float | None = _most(answers, "compile", "seconds")
    return seconds or (None if _most(answers, "compile", "graphs_before") else seconds)


def _most(answers: Sequence[Mapping[str, Any]], *keys: str) -> Any:
    """The maximum over ranks of the value at ``keys``; ``None`` if no rank has one."""
    result = []
    for answer in answers:
        value: Any = answer
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            result.append(value)
    return max(result, default=None)


def _recompiles(answers: Sequence[Mapping[str, Any]]) -> int | None:
    """The most of any rank, with the one in progress."""
    counts = [recompiles(answer.get("compile") or {}) for answer in answers]
    return max((count for count in counts if count is not None), default=None)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
