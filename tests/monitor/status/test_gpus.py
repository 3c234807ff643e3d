"""Words about GPUs in the sentence: only what is measured."""

from __future__ import annotations

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared import record
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.snapshot import RankView, Spending
from warmwatch_monitor.status.words import gpus as silicon
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.run import run_answer

IDLE = b.gpu(utilization_ratio=0.006, power_watts=118.0, tensor_active_ratio=0.0)
MUTE = GpuReading(uuid="GPU-1", index=3, at_ns=b.NOW)


def around_a_gap(ago: float, *words: int) -> str:
    """A warm run whose last step was ``ago`` seconds ago; the lengths of its last ones follow."""
    recent = (*words, *(record.packed(36_000_000),) * 30)
    steps = replace(b.WARM.steps, last_step_ns=b.ago(ago))
    return headline(b.view(replace(b.WARM, steps=steps, recent=recent), gpus=(b.gpu(),)))


USUAL, HUNG = record.packed(36_000_000), record.packed(6 * 10**9)
SAVED = record.packed(36_000_000, 5 * 10**9)


@pytest.mark.parametrize(
    ("ago", "words", "shown"),
    [
        (0.1, (), True),
        (0.1, (USUAL, HUNG), False),
        (0.1, (USUAL, SAVED), False),
        (2.4, (HUNG,), False),
        (0.1, (record.packed(2 * 10**9), record.packed(2 * 10**9), HUNG), False),
        (0.1, (record.packed(300_000_000),) * 10, True),
        (0.1, (USUAL,) * 25 + (record.packed(300_000_000),) * 7 + (HUNG,), True),
        (1.0, (), False),
        (38.0, (), True),
    ],
    ids=[
        "steps come",
        "after a hang",
        "after a save",
        "a hang, then none",
        "after long steps",
        "a rough training",
        "a hang three seconds ago",
        "a gap now",
        "silent",
    ],
)
def test_gpu_figures_beside_the_real_speed_are_of_its_steps(
    ago: float, words: tuple[int, ...], shown: bool
) -> None:
    """NVML averages over a second, so it still shows the gap when steps resume."""
    assert ("GPU 0 at" in around_a_gap(ago, *words)) is shown


def headline(view: RankView) -> str:
    return run_answer(b.snapshot(view).runs[0]).summary


def test_a_gpu_that_works_for_the_compiler_is_not_called_waiting() -> None:
    tuned = b.gpu(utilization_ratio=0.8, power_watts=402.0)
    words = headline(b.view(b.COMPILING, gpus=(tuned,)))
    assert words.endswith("; GPU 0 at 80 %, 402 W")


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (b.gpu(), "busy: perhaps an evaluation"),
        (IDLE, "idle: perhaps it waits for data"),
        (
            b.gpu(utilization_ratio=1.0, power_watts=140.0),
            "full utilization at low power: perhaps it waits in a collective",
        ),
    ],
)
def test_a_stopped_rank_is_reported_with_its_gpu_activity(gpu: GpuReading, words: str) -> None:
    view = b.view(b.STALLED, gpus=(gpu,))
    assert b.in_words(view).endswith(words)
    assert any(line.endswith(words) for line in evidence(view))


def test_the_evidence_has_a_line_for_each_gpu() -> None:
    lost = replace(MUTE, trouble="the driver has lost it")
    assert list(silicon.evidence((b.gpu(), MUTE, lost))) == [
        "GPU 0: utilization 99 %, 686 of 700 W, SM 88 %, tensor cores 52 %, memory bandwidth 43 %",
        "GPU 3: the driver has lost it",
    ]


def test_the_energy_of_compilation_is_in_the_answer_for_each_rank_and_in_sum() -> None:
    spent = Spending(
        compile_joules=10_400.0, compile_seconds=100.0, clean_joules=500.0, clean_steps=20.0
    )
    slots = [replace(b.as_rank(b.WARM, rank, 2)) for rank in (0, 1)]
    views = [
        b.view(
            replace(slot, identity=replace(slot.identity, gpus=(b.gpu(rank).uuid,))),
            gpus=(b.gpu(rank),),
            spending=spent,
        )
        for rank, slot in enumerate(slots)
    ]
    (run,) = status(b.snapshot(*views))["runs"]
    assert run["ranks"][0]["energy"] == {
        "compile_joules": 10_400.0,
        "covered_seconds": 100.0,
        "joules_per_clean_step": 25.0,
    }
    assert run["ranks"][1]["gpus"] == [b.gpu(1).uuid]
    assert run["ranks"][0]["compile"]["gpu_seconds"] == pytest.approx(113.2)
    assert run["compile_gpu_seconds"] == pytest.approx(226.4)
    assert run["compile_joules"] == 20_800.0


def test_an_unmeasured_compilation_has_no_energy() -> None:
    (run,) = status(b.snapshot(b.view(b.WARM, spending=Spending())))["runs"]
    assert run["ranks"][0]["energy"]["compile_joules"] is None
    assert run["compile_joules"] is None


def test_a_gpu_is_not_called_waiting_before_its_power_shows_it() -> None:
    """NVML averages its figures: a second after the begin they describe the steps before it."""
    counts = replace(b.COMPILING.compile, active_since_ns=b.ago(1), episode_began_ns=b.ago(1))
    begun = b.view(replace(b.COMPILING, compile=counts), gpus=(IDLE,))
    assert headline(begun) == f"gpt2: {b.head(begun)}"
    lagging = b.gpu(utilization_ratio=0.0, power_watts=583.0)
    assert headline(b.view(b.COMPILING, gpus=(lagging,))).endswith("(inductor); the GPU waits")
    assert headline(b.view(b.COMPILING, gpus=(IDLE,))).endswith(
        "(inductor); the GPU waits at 118 W"
    )
