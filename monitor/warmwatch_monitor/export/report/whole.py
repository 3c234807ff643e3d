"""The whole report of an Account. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from warmwatch.states import ENDED_STATES
from warmwatch_monitor.export.lengths import clean_step
from warmwatch_monitor.export.report.changed import changed
from warmwatch_monitor.export.report.compilations import (
    added,
    functions,
    places,
    priced,
    recompiled,
)
from warmwatch_monitor.export.report.costs import costs
from warmwatch_monitor.export.report.first import to_do
from warmwatch_monitor.export.report.goodput import after_warm_seconds, goodput
from warmwatch_monitor.export.report.parts import Break, Priced, Report, Steady
from warmwatch_monitor.export.report.ranks import differences, line
from warmwatch_monitor.export.words.breaks import remedy
from warmwatch_monitor.export.words.wording import counted
from warmwatch_monitor.model.account import OUT_OF_SIGHT, Account, RankAccount

UNSEEN = "it is as it was when it was seen last: nobody saw how it ended"


def report(
    account: Account,
    price: float | None = None,
    before: Account | None = None,
    *,
    now: float | None = None,
) -> Report:
    """``price``: of an hour of one GPU; ``None`` where none is set. ``before``: the last run like
    it, where one is remembered. ``now``: where it may have been looked at long before that.
    """
    lives = account.state not in ENDED_STATES
    unseen = lives and now is not None and now - account.seen > OUT_OF_SIGHT
    whole = Report(
        id=account.id,
        run=account.run,
        owner=account.owner,
        host=account.host,
        began=account.began,
        ended=account.ended,
        seen=account.seen,
        state=account.state,
        living=lives and not unseen,
        summary=account.summary,
        what=account.what,
        world_size=account.what.world_size,
        price_per_gpu_hour=price,
        doubts=(UNSEEN,) if unseen else (),
    )
    if not account.ranks:
        return whole
    made = _with_ranks(whole, account, price)
    return made if before is None else replace(made, changed=changed(account, before, made.rank))


def slowest_of(account: Account) -> RankAccount:
    """The rank that compiled longest: the others waited for it. Where none did, the first."""
    return max(account.ranks, key=lambda one: (one.answer["compile"]["seconds"], -one.rank))


def _with_ranks(whole: Report, account: Account, price: float | None) -> Report:
    ordered = sorted(account.ranks, key=lambda one: -one.answer["compile"]["seconds"])
    slowest = slowest_of(account)
    each = {one.rank: priced(one.compiled) for one in account.ranks}
    again = [after_warm_seconds(one.answer, each[one.rank]) for one in account.ranks]
    found = costs([one.answer for one in account.ranks], again, account.ranks.index(slowest), price)
    return replace(
        _of_rank(whole, slowest, each[slowest.rank]),
        conditions=_conditions(account, slowest),
        costs=found,
        ranks=tuple(line(one) for one in ordered),
        differences=tuple(differences(account.ranks)),
        left_out=sum(one.left_out for one in account.ranks),
        doubts=(*whole.doubts, *_doubts(account)),
    )


def _of_rank(whole: Report, account: RankAccount, compiled: tuple[Priced, ...]) -> Report:
    rank, compile = account.answer, account.answer["compile"]
    first, worth = rank["warmup"].get("first"), rank["worth"] or {}
    steady = _steady(rank)
    again = recompiled(compiled, compile["varying"], first["ended_at"] if first else None)
    breaks = tuple(
        Break(reason=one["reason"], count=one["count"], advice=remedy(one["reason"]))
        for one in compile["breaks"]
    )
    memory = rank["torch_memory_bytes"] or {}
    return replace(
        whole,
        rank=account.rank,
        steps=rank["steps"],
        evidence=tuple(rank["evidence"]),
        end=rank["end"],
        first_step_seconds=rank["step_seconds"]["first"],
        compile_seconds=compile["seconds"],
        compilations=compile["compilations"],
        graphs=compile["graphs"],
        graphs_before=compile.get("graphs_before"),
        precompiled=tuple(compile.get("precompiled") or ()),
        recompiles=compile["recompiles"],
        recompiles_after_warm=compile["recompiles_after_warm"],
        warmup_seconds=first["seconds"] if first else None,
        warmup_steps=first["steps"] if first else None,
        goodput=goodput(rank, compiled, whole.seen),
        steady=steady,
        baseline=rank.get("baseline"),
        joules_per_step=(rank["energy"] or {}).get("joules_per_clean_step"),
        **_rates(worth, steady.seconds),
        peak_memory_bytes=memory.get("peak_allocated"),
        phases=added((compile["phase_seconds"],)),
        functions=functions(compiled),
        recompiled=again,
        breaks=breaks,
        places=places(compiled),
        graph_breaks=compile["graph_breaks"],
        fallbacks=compile["fallbacks"],
        failures=compile["failures"],
        cudagraph_skips=compile["cudagraph_skips"],
        do=to_do(rank, compiled, again, breaks, whole.what),
    )


def _rates(worth: Mapping[str, Any], seconds: float | None) -> dict[str, float | None]:
    """What a step is worth, at the whole run's speed; the answer's own rates are recent ones."""

    def over(name: str, by: float | None) -> float | None:
        amount = worth.get(name)
        return amount / by if amount and by else None

    peak = worth.get("peak_flops")
    return {
        "tokens_per_second": over("tokens_per_step", seconds),
        "samples_per_second": over("samples_per_step", seconds),
        "mfu_ratio": over("flops_per_step", seconds * peak if seconds and peak else None),
    }


def _steady(rank: Mapping[str, Any]) -> Steady:
    steps = rank["step_seconds"]
    return Steady(
        count=steps.get("clean_count"),
        seconds=clean_step(rank),
        median=steps["median"],
        p99=steps["p99"],
        low=steps.get("median_low"),
        high=steps.get("median_high"),
    )


def _conditions(account: Account, slowest: RankAccount) -> dict[str, str]:
    """Each once, in the words of the rank that the report speaks of where it holds for that."""
    found: dict[str, str] = {}
    for one in (slowest, *account.ranks):
        for held in one.answer["conditions"]:
            found.setdefault(held["condition"], held["words"])
    return found


def _doubts(account: Account) -> list[str]:
    """What makes this less than the whole truth."""
    left = sum(one.left_out for one in account.ranks)
    errors = sum(one.answer["agent_errors"] or 0 for one in account.ranks)
    seen, world = len(account.ranks), account.what.world_size
    return [
        words
        for words, holds in (
            (f"{counted(left, 'compilation')} more were made than are kept", left),
            (f"the agent swallowed {counted(errors, 'error')} of its own", errors),
            (f"{seen} of {world} ranks were seen here", world is not None and seen < world),
        )
        if holds
    ]
