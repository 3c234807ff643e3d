"""The status line under a notebook's cell."""

from __future__ import annotations

from support import builders as b
from warmwatch.frameworks.ipython import answer

STEPS = b.WARM.steps.steps


def test_a_stalled_rank_is_shown_without_clean_steps() -> None:
    assert answer(b.WARM, "stalled") == f"stalled; {STEPS} steps, 36 ms a step"


def test_all_steps_of_a_new_record_count() -> None:
    assert answer(b.WARM, "warm", STEPS - 5).endswith("; 5 steps")
    assert answer(b.WARM, "warm", STEPS - 5, 2.1).endswith("; 5 steps, 2.1 s of compiling")
    assert answer(b.WARM, "warm", STEPS + 90).endswith(f"; {STEPS} steps")
