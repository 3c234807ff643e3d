"""Numerical drift: the losses of a mode compared with eager's at the same backward passes.

The agent records each scalar that is passed to ``backward()`` (``hooks/training/losses.py``). Two
runs are compared pass by pass, in order, for each rank. The difference is relative to the mean
magnitude of eager's losses. So a factor that scales all of them changes nothing, and a loss near
zero does not count more than others. A second eager run gives the noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from warmwatch.shared.record.loss_file import GUARDS, rank_of, rows_of, unpack_guards

Losses = Mapping[int, tuple[tuple[int, float], ...]]  # by rank: step and loss of each pass


class Drift(Struct, frozen=True, kw_only=True):
    """How far the losses of one mode are from eager's."""

    relative: float | None
    """The largest difference, divided by the mean magnitude of eager's losses; null if a loss is
    finite in one run and not in the other."""
    step: int
    """Where the largest difference is, or the first loss that is not finite."""
    rank: int
    """The rank of that loss."""
    loss: float | None
    """The loss there; null if not finite."""
    eager_loss: float | None
    """Eager's loss there; null if not finite."""
    last_step: int
    """The last step that was compared."""
    passes: int
    """Number of backward passes compared."""
    noise: float | None = None
    """The same figure of a second eager run; null without one, or if its losses are not finite
    where eager's are."""
    noise_passes: int = 0
    """Number of backward passes compared for it."""


def read_losses(folder: Path) -> Losses:
    """The losses that the processes of one launch recorded. Of a rank's files, the longest one."""
    groups: dict[int, tuple[tuple[int, float], ...]] = {}
    for file in folder.iterdir():
        rank = rank_of(file.name)
        if rank is None:
            continue
        rows = rows_of(file.read_bytes())
        if len(rows) > len(groups.get(rank, ())):
            groups[rank] = rows
    return groups


class Guards(NamedTuple):
    """Seconds of guard checks in a step of ``rank``, and those of each frame by its number."""

    seconds: float
    frames: Mapping[str, float]
    rank: int


def read_guards(folder: Path) -> Guards | None:
    """The guard checks of the rank with the most; ``None`` if none were measured."""
    guardses = [
        Guards(*unpack_guards(file.read_text()), int(file.name.partition("-")[0]))
        for file in folder.glob(f"*{GUARDS}")
    ]
    return max(guardses, key=lambda guardse: guardse.seconds, default=None)


def drift(losses: Losses, eager: Losses, again: Losses | None = None) -> Drift | None:
    """``losses`` of a mode against ``eager``'s; ``None`` if no rank has losses in both.

    ``again``: of the second eager run; it is compared over the same backward passes.
    """
    ranks = sorted(losses.keys() & eager.keys())
    drifts = [drift for rank in ranks if (drift := _of_rank(rank, losses[rank], eager[rank]))]
    if not drifts:
        return None
    worst = max(drifts, key=_size)
    if again is None:
        return worst
    cut = {rank: again[rank][: len(losses[rank])] for rank in ranks if rank in again}
    noises = [drift for rank, rows in cut.items() if (drift := _of_rank(rank, rows, eager[rank]))]
    if not noises:
        return worst
    noise = max(noises, key=_size)
    passes = min(item.passes for item in noises)
    return Drift(
        **{name: getattr(worst, name) for name in worst.__struct_fields__[:7]},
        noise=noise.relative,
        noise_passes=passes,
    )


def _size(drift: Drift) -> float:
    return math.inf if drift.relative is None else drift.relative


def _of_rank(
    rank: int, losses: Sequence[tuple[int, float]], eager: Sequence[tuple[int, float]]
) -> Drift | None:
    """Passes whose losses are finite in neither run are not compared: nothing is known of them."""
    pairs = [
        (step, eager_loss, loss)
        for (step, eager_loss), (_, loss) in zip(eager, losses)  # noqa: B905 - one run may be longer
        if math.isfinite(eager_loss) or math.isfinite(loss)
    ]
    finite = [abs(eager_loss) for _, eager_loss, _ in pairs if math.isfinite(eager_loss)]
    if not finite:
        return None
    scale = sum(finite) / len(finite)
    step, eager_loss, loss = max(pairs, key=lambda pair: _difference(*pair[1:]))
    difference = _difference(eager_loss, loss)
    return Drift(
        relative=difference / (scale or 1.0) if math.isfinite(difference) else None,
        step=step,
        rank=rank,
        loss=loss if math.isfinite(loss) else None,
        eager_loss=eager_loss if math.isfinite(eager_loss) else None,
        last_step=pairs[-1][0],
        passes=len(pairs),
    )


def _difference(eager_loss: float, loss: float) -> float:
    """Infinite if only one is finite."""
    difference = abs(loss - eager_loss)
    return difference if math.isfinite(difference) else math.inf
