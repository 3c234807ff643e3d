"""An Account as rows of the tables, and read again from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from warmwatch_monitor.model.account import Account, Compiled, Provenance, RankAccount, Samples

Row = Mapping[str, Any]
_ROUNDED = 3  # digits of a second, counted from the first


def run_row(account: Account) -> dict[str, Any]:
    """The row of ``runs``."""
    answers = [one.answer for one in account.ranks]
    suffix, what = f"@{account.owner}", account.what
    return {
        "id": account.id,
        "start": account.start,
        "run": account.run,
        "name": account.run.removesuffix(suffix),
        "owner": account.owner,
        "host": account.host,
        "state": account.state,
        "began": account.began,
        "ended": account.ended,
        "seen": account.seen,
        "summary": account.summary,
        "world_size": what.world_size,
        "ranks": len(account.ranks),
        "steps": _most(answers, "steps"),
        "first_step_seconds": _most(answers, "step_seconds", "first"),
        "step_seconds": _most(answers, "step_seconds", "median"),
        "warmup_seconds": _most(answers, "warmup", "first", "seconds"),
        "compile_seconds": _most(answers, "compile", "seconds"),
        "compilations": _most(answers, "compile", "compilations"),
        "recompiles": _most(answers, "compile", "recompiles"),
        "script": what.script,
        "commit": what.commit,
        "code": what.code,
        "torch": what.torch,
        "gpu": ", ".join(dict.fromkeys(what.gpus)) or None,
        "mode": _mode(what),
        "what": _text(what),
    }


def _mode(what: Provenance) -> str | None:
    """How it was compiled, in a word: turned off, it ran eagerly whatever was asked for."""
    if what.disabled:
        return "eager"
    return ", ".join(dict.fromkeys(one.mode for one in what.wrappings)) or None


def rank_rows(account: Account) -> list[dict[str, Any]]:
    """The rows of ``ranks``."""
    return [
        {
            "id": account.id,
            "rank": one.rank,
            "state": one.answer.get("state"),
            "attached": one.answer.get("attached_at"),
            "steps": one.answer.get("steps"),
            "step_seconds": _most([one.answer], "step_seconds", "median"),
            "compile_seconds": _most([one.answer], "compile", "seconds"),
            "left_out": one.left_out,
            "first_step_bytes": one.first_step_bytes,
            "answer": _text(one.answer),
        }
        for one in account.ranks
    ]


def compilation_rows(id: str, rank: RankAccount) -> list[dict[str, Any]]:
    """The rows of ``compilations`` of one rank."""
    return [
        {
            "id": id,
            "rank": rank.rank,
            "number": number,
            **{name: getattr(one, name) for name in _COMPILED},
            "compile_id": one.id,
            "phase_seconds": _text(one.phase_seconds),
        }
        for number, one in enumerate(rank.compiled)
    ]


def sample_rows(account: Account) -> list[dict[str, Any]]:
    """The rows of ``samples``: one for each series, its columns as lists."""
    known: list[tuple[int | None, str | None, Samples]] = [
        (one.rank, None, one.samples) for one in account.ranks if one.samples is not None
    ]
    known += [(None, uuid, samples) for uuid, samples in account.gpu_samples.items()]
    return [_sampled(account.id, *one) for one in known if one[2].epochs]


def account(
    run: Row, ranks: Iterable[Row], compilations: Iterable[Row], samples: Iterable[Row]
) -> Account:
    """The Account of which these are all rows. Raises msgspec.MsgspecError: they are not ours."""
    by_rank: dict[int, list[Compiled]] = {}
    for row in compilations:
        by_rank.setdefault(row["rank"], []).append(_compiled(row))
    of_ranks, of_gpus = samples_of(samples)
    return Account(
        id=run["id"],
        start=run["start"],
        run=run["run"],
        owner=run["owner"],
        host=run["host"],
        began=run["began"],
        ended=run["ended"],
        seen=run["seen"],
        state=run["state"],
        summary=run["summary"],
        what=msgspec.json.decode(run["what"], type=Provenance),
        ranks=tuple(
            RankAccount(
                rank=row["rank"],
                answer=msgspec.json.decode(row["answer"], type=dict[str, Any]),
                compiled=tuple(by_rank.get(row["rank"], ())),
                left_out=row["left_out"],
                first_step_bytes=row["first_step_bytes"],
                samples=of_ranks.get(row["rank"]),
            )
            for row in ranks
        ),
        gpu_samples=of_gpus,
    )


def samples_of(rows: Iterable[Row]) -> tuple[dict[int, Samples], dict[str, Samples]]:
    """Those of ranks, and those of GPUs. Raises msgspec.MsgspecError."""
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
        if row["rank"] is not None:
            of_ranks[row["rank"]] = samples
        elif row["gpu"] is not None:
            of_gpus[row["gpu"]] = samples
    return of_ranks, of_gpus


_COMPILED = (
    *("ended", "seconds", "step", "kind", "name", "file", "line", "code", "reason"),
    *("category", "cache", "failure", "ops", "kernels"),
)


def _compiled(row: Row) -> Compiled:
    phases = msgspec.json.decode(row["phase_seconds"], type=dict[str, float])
    known = {name: row[name] for name in _COMPILED}
    return Compiled(id=row["compile_id"], phase_seconds=phases, **known)


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


def _most(answers: Sequence[Mapping[str, Any]], *keys: str) -> Any:
    """The greatest of what the ranks say; ``None`` where none says."""
    found = []
    for one in answers:
        value: Any = one
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            found.append(value)
    return max(found, default=None)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
