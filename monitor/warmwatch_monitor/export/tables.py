"""An Account as tables of plain values: ranks, compilations, and what was seen meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from warmwatch_monitor.export.report.ranks import line
from warmwatch_monitor.model import PHASES
from warmwatch_monitor.model.account import Account, Compiled, Samples

Value = str | int | float | None
_RANK = (
    *("rank", "state", "steps", "compile_seconds", "warmup_seconds", "recompiles"),
    *("graphs", "step_seconds"),
)
_COMPILED = (
    *("ended", "seconds", "step", "id", "kind", "name", "file", "line", "code"),
    *("reason", "category", "cache", "failure", "ops", "kernels"),
)


class Rows(Struct, frozen=True):
    """``columns`` are the same in each row; a value that is not known is ``None``."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def tables(account: Account) -> tuple[Rows, ...]:
    """Those of which there is something to tell; ranks and compilations in any case."""
    found = (_ranks(account), _compilations(account), _steps(account), _gpus(account))
    return tuple(one for one in found if one.rows or one.name in ("ranks", "compilations"))


def _ranks(account: Account) -> Rows:
    lines = [line(one) for one in account.ranks]
    rows = tuple(tuple(getattr(one, name) for name in _RANK) for one in lines)
    return Rows(
        "ranks", ("run", "id", *_RANK), tuple((account.run, account.id, *row) for row in rows)
    )


def _compilations(account: Account) -> Rows:
    columns = ("rank", *_COMPILED, *(f"{phase}_seconds" for phase in PHASES))
    rows = tuple((one.rank, *_compiled(each)) for one in account.ranks for each in one.compiled)
    return Rows("compilations", columns, rows)


def _compiled(one: Compiled) -> tuple[Value, ...]:
    own = tuple(getattr(one, name) for name in _COMPILED)
    return (*own, *(one.phase_seconds.get(phase) for phase in PHASES))


def _steps(account: Account) -> Rows:
    """What a daemon saw of each rank, second by second or more coarsely."""
    seen = {one.rank: one.samples for one in account.ranks if one.samples is not None}
    return _sampled("samples", "rank", seen)


def _gpus(account: Account) -> Rows:
    return _sampled("gpus", "uuid", account.gpu_samples)


def _sampled(name: str, of: str, seen: Mapping[int, Samples] | Mapping[str, Samples]) -> Rows:
    names = tuple(dict.fromkeys(column for one in seen.values() for column in one.columns))
    rows = tuple(row for key, one in seen.items() for row in _rows(key, one, names))
    return Rows(name, (of, "epoch", "seconds", *names), rows)


def _rows(key: Value, seen: Samples, names: tuple[str, ...]) -> Iterator[tuple[Value, ...]]:
    empty = (None,) * len(seen.epochs)
    columns = [seen.columns.get(name, empty) for name in names]
    for at, epoch in enumerate(seen.epochs):
        yield (key, epoch, seen.seconds, *(column[at] for column in columns))
