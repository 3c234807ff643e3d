"""The eager baseline in the answers, and the speedup over it."""

from __future__ import annotations

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.record import CompileCounts, Slot, StepCounts
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.sentence import summary


def with_baseline(slot: Slot, steps: int, seconds: float | None = None) -> Slot:
    reported = {"baseline_steps": steps, "baseline_seconds": seconds}
    return replace(slot, identity=replace(slot.identity, **reported))


def answer(slot: Slot) -> dict[str, object] | None:
    found: dict[str, object] | None
    found = status(b.snapshot(b.view(slot)))["runs"][0]["ranks"][0]["baseline"]
    return found


def test_the_baseline_in_progress_is_the_sentence() -> None:
    eager = b.slot(
        StepCounts(steps=6, last_step_ns=b.ago(0.02)),
        CompileCounts(first_step_ns=b.ago(1), clean_after=6),
    )
    view = b.view(with_baseline(eager, 20))
    assert view.judgement.state.value == "warming"
    assert summary(b.snapshot(view)) == "gpt2: baseline: step 7 of 20, eager on purpose"
    assert answer(with_baseline(eager, 20)) == {
        "steps": 20,
        "seconds": None,
        "speed_up": None,
        "break_even_steps": None,
        "paid_back_at_step": None,
    }
    starting = summary(b.snapshot(b.view(with_baseline(b.STARTING, 20))))
    assert starting.endswith("; baseline: step 1 of 20, eager on purpose")


def test_a_warm_rank_reports_gain_and_break_even() -> None:
    """120.3 s in the one step that compiled, 36 ms a step instead of 48: 10,022 of them."""
    slot = with_baseline(b.WARM, 20, 0.048)
    known = answer(slot)
    assert known is not None
    assert known["speed_up"] == pytest.approx(0.048 / 0.036, rel=0.03)
    needed = (120.3 - 0.036) / (0.048 - 0.036)
    assert known["break_even_steps"] == pytest.approx(needed, rel=0.1)
    assert known["paid_back_at_step"] == 20 + known["break_even_steps"]  # type: ignore[operator]
    text = summary(b.snapshot(b.view(slot)))
    assert f"1.3x as fast as eager; break-even at step {known['paid_back_at_step']:,}" in text
    assert "the first 20 steps ran eagerly on purpose, 48 ms each" in evidence(b.view(slot))


def test_without_a_speed_up_there_is_no_break_even() -> None:
    slot = with_baseline(b.WARM, 20, 0.030)
    known = answer(slot)
    assert known is not None
    assert (known["break_even_steps"], known["paid_back_at_step"]) == (None, None)
    text = summary(b.snapshot(b.view(slot)))
    assert "1.2 times slower than eager, so compiling never breaks even" in text
