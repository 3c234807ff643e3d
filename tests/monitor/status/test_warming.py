"""The sentence of a rank that is warming."""

from __future__ import annotations

from support import builders as b
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.words.sentence import summary

BUSY = b.gpu(utilization_ratio=1.0, power_watts=692.0)


def warming(clean: int, seconds: float, quiet: float = 0.0) -> Slot:
    """After a first step that compiled, ``clean`` steps, the last of which ended a while ago."""
    length = round(seconds * b.SECOND)
    counts = replace(b.WARMING.compile, last_end_ns=b.ago(clean * seconds + quiet + 0.3))
    steps = replace(
        b.WARMING.steps,
        steps=1 + clean,
        last_step_ns=b.ago(quiet),
        last_duration_ns=length if clean else b.WARMING.compile.first_duration_ns,
    )
    return replace(b.WARMING, steps=steps, compile=counts, clean_bins=b.bins(*[length] * clean))


def headline(view: RankView) -> str:
    return summary(b.snapshot(view))


def test_a_long_step_is_reported_with_gpu_activity_and_time_to_certainty() -> None:
    view = b.view(warming(1, 10.0), gpus=(BUSY,))
    assert headline(view) == (
        "gpt2: warming, 1 of 3 clean steps: "
        "last step 10 s, GPU 0 at 100 %, 692 W; warm in about 20 s"
    )


def test_a_rank_that_recompiled_is_estimated_from_its_earlier_speed() -> None:
    counts = replace(
        b.RECOMPILING.compile,
        active_since_ns=0,
        active_phase=0,
        ended=3,
        last_end_ns=b.ago(0.0),
        activities_seen=2,
    )
    slot = replace(
        b.RECOMPILING,
        compile=counts,
        clean_bins=b.bins(*[10 * b.SECOND] * 5),
        recent=b.ring(*[10 * b.SECOND] * 5),
        steps=replace(b.RECOMPILING.steps, last_step_ns=b.ago(11.0)),
    )
    view = b.view(slot, compilations=(b.RECOMPILATION,), gpus=(BUSY,))
    assert headline(view) == (
        "gpt2: recompiled `forward` (model.py:31), 0 of 3 clean steps since; "
        "GPU 0 at 100 %, 692 W; warm in about 30 s"
    )
    assert b.in_words(view).endswith(f"; reason: {b.WHY}")
