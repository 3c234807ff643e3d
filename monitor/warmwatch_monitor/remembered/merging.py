"""What is kept of an earlier look at a run when it is looked at again. Pure.

Later wins, with three exceptions. What only one of two monitors can know (a daemon's samples, the
energy that it measured, the driver) is not lost because another, which cannot, came after it. And a
run that has said its end is over, whatever somebody else still takes it for. And an
end is taken also where it seems to have been seen before: the clock was set back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict, replace

from warmwatch.states import ENDED_STATES
from warmwatch_monitor.model.account import Account, Provenance, RankAccount

_SAID = ENDED_STATES - {"lost"}


def is_news(before: Account, now: Account) -> bool:
    """Whether ``now`` says more than ``before``, which is of the same run."""
    if now.seen < before.seen:  # a look that is older, or a clock that was set back meanwhile
        return (
            before.state not in ENDED_STATES
            and now.state in ENDED_STATES
            and _attached(before) <= _attached(now)
        )
    if before.state not in _SAID or now.state in ENDED_STATES:
        return True
    attached = (one.answer.get("attached_at") for one in now.ranks)
    return before.ended is not None and any(at is not None and at > before.ended for at in attached)


def _attached(account: Account) -> float:
    """When the last of its ranks did."""
    known = (one.answer.get("attached_at") for one in account.ranks)
    return max((at for at in known if at is not None), default=0.0)


def merged(before: Account, now: Account) -> Account:
    """``now``, with what ``before`` knew beyond it."""
    earlier = {one.rank: one for one in before.ranks}
    return replace(
        now,
        began=min(before.began, now.began),
        what=_provenance(before.what, now.what),
        ranks=tuple(_rank(earlier.get(one.rank), one) for one in now.ranks),
        gpu_samples={**before.gpu_samples, **now.gpu_samples},
    )


def _rank(before: RankAccount | None, now: RankAccount) -> RankAccount:
    if before is None or before.answer.get("attached_at") != now.answer.get("attached_at"):
        return now
    gone = len(now.compiled) < len(before.compiled)  # the record is, and its journal with it
    return replace(
        now,
        answer=_answer(before.answer, now.answer),
        compiled=before.compiled if gone else now.compiled,
        left_out=max(before.left_out, now.left_out),
        samples=before.samples if now.samples is None else now.samples,
        first_step_bytes=before.first_step_bytes if gone else now.first_step_bytes,
    )


def _answer(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """Energy is measured by who was there: whose account covers more of the compile time."""
    if _covered(before) <= _covered(now):
        return now
    return {**now, "energy": before["energy"]}


def _covered(answer: Mapping[str, Any]) -> float:
    energy = answer.get("energy")
    return -1.0 if not energy else float(energy.get("covered_seconds") or 0.0)


def _provenance(before: Provenance, now: Provenance) -> Provenance:
    known = {name: value for name, value in asdict(now).items() if value}
    return replace(before, **known)
