"""Estimates of the time left, and what they are based on."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from warmwatch_monitor.model.records import Death


class Done(Struct, frozen=True, kw_only=True):
    """A compilation that has ended, of this run or of an earlier one.

    ``kind``, ``name``, ``code``, ``cache``, ``seconds``, ``phase_seconds``: as in
    ``run_summary.Compiled``.
    """

    kind: str | None = None
    name: str | None = None
    code: str | None = None
    cache: str | None = None
    seconds: float | None = None
    phase_seconds: Mapping[str, float] = field(default_factory=dict)


class EarlierWarmup(Struct, frozen=True, kw_only=True):
    """A first warm-up of an earlier run, or of another rank, to compare with one in progress.

    Attributes:
        seconds: wall time, from its first compile activity to the end of its last.
        phase_seconds: of that, exclusive. compiled: in order; ``None`` if not all are known.
        later: compilations after it. of_rank: it is from another rank of the same run.
    """

    seconds: float
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    compiled: tuple[Done, ...] | None = None
    later: tuple[Done, ...] = ()
    of_rank: bool = False


class RankHistory(Struct, frozen=True, kw_only=True):
    """What the history has for a rank: earlier starts of its run, newest first, and its end.

    Attributes:
        same: the first warm-ups of those that compiled the same under the same conditions.
        warmup_seconds: of the first warm-ups of all comparable ones.
        death: of its process, as an earlier daemon saw it.
    """

    same: tuple[EarlierWarmup, ...] = ()
    warmup_seconds: tuple[float, ...] = ()
    death: Death | None = None
