"""Drift of losses: pure functions over recorded losses, and the file that holds them."""

from __future__ import annotations

import math
from pathlib import Path

from warmwatch.shared.record import loss_file
from warmwatch_monitor.commands.modes.drift import Drift, Losses, drift, read_losses


def losses(*values: float, rank: int = 0) -> Losses:
    """One backward pass for each step."""
    return {rank: tuple(enumerate(values, 1))}


def found(mode: Losses, eager: Losses, again: Losses | None = None) -> Drift:
    known = drift(mode, eager, again)
    assert known is not None
    return known


def test_drift_is_the_largest_difference_by_the_mean_magnitude_of_eager() -> None:
    eager = losses(4.0, 2.0, -1.0, 1.0)  # mean magnitude 2
    known = found(losses(4.0, 2.5, -1.25, 1.0), eager)
    assert (known.relative, known.step, known.loss, known.eager_loss) == (0.25, 2, 2.5, 2.0)
    assert (known.last_step, known.passes, known.noise) == (4, 4, None)


def test_the_worst_rank_counts() -> None:
    eager = {**losses(1.0, 1.0), **losses(2.0, 2.0, rank=1)}
    mode = {**losses(1.0, 1.1), **losses(2.0, 3.0, rank=1), **losses(9.0, rank=2)}
    assert (found(mode, eager).relative, found(mode, eager).rank) == (0.5, 1)


def test_without_losses_of_both_runs_the_drift_is_unknown() -> None:
    assert drift({}, losses(1.0)) is None
    assert drift(losses(1.0), losses(1.0, rank=3)) is None
    assert drift(losses(1.0), losses(math.nan)) is None


def rows(*values: tuple[int, float]) -> bytes:
    return b"".join(loss_file.ROW.pack(*one) for one in values) + loss_file.UNUSED_ROW * 3


def test_a_file_is_read_up_to_the_first_missing_loss(tmp_path: Path) -> None:
    """NaN is a valid loss; the longest file of a rank counts."""
    late = loss_file.STEP.pack(3) + loss_file.UNUSED_ROW[loss_file.STEP.size :]
    (tmp_path / loss_file.name_of(0, 7)).write_bytes(
        rows((1, 2.5), (2, math.nan))[: 2 * loss_file.ROW.size] + late + rows((4, 1.0))
    )
    (tmp_path / loss_file.name_of(0, 8)).write_bytes(rows((1, 9.0)))
    (tmp_path / loss_file.name_of(12, 9)).write_bytes(rows((1, 1.0)))
    (tmp_path / "other").write_bytes(b"x")
    read = read_losses(tmp_path)
    assert read.keys() == {0, 12}
    assert read[0][0] == (1, 2.5)
    assert [step for step, _ in read[0]] == [1, 2]
    assert math.isnan(read[0][1][1])
