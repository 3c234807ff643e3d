"""Silence: no step for far longer than usual, in the condition, the sentence and the tables."""

from __future__ import annotations

from typing import Any

import pytest

from support import builders as b
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch.shared.values import PRECOMPILED
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.sentence import summary


def quiet(seconds: float, slot: Slot = b.WARM, **counts: Any) -> Slot:
    steps = replace(slot.steps, last_step_ns=b.ago(seconds))
    return replace(slot, steps=steps, compile=replace(slot.compile, **counts))


def conditions(slot: Slot) -> tuple[str, ...]:
    return b.view(slot).judgement.conditions


def slow(seconds: float, step: float) -> Slot:
    return replace(quiet(seconds), recent=b.ring(*[round(step * b.SECOND)] * 20))


@pytest.mark.parametrize(
    ("slot", "silent"),
    [
        (quiet(2.9), False),
        (quiet(3.1), True),
        (slow(9.5, 1.0), False),
        (slow(10.5, 1.0), True),
    ],
)
def test_ten_usual_steps_and_three_seconds_make_silence(slot: Slot, *, silent: bool) -> None:
    assert ("silent" in conditions(slot)) is silent


def test_silence_is_first_in_the_sentence_and_replaces_the_speed() -> None:
    text = summary(b.snapshot(b.view(quiet(38))))
    head = "gpt2: no step for 38 s (usually 36 ms) and PyTorch compiles nothing; warm"
    assert text.startswith(head)
    assert "real speed" not in text
    assert text.count("no step") == 1


STOPPED = ProcessReading(pid=1, cpu_seconds=9.0, resident_bytes=1, cpu_ratio=0.0, stopped=True)


@pytest.mark.parametrize(
    ("slots", "stopped", "words"),
    [
        ([quiet(38)], [0], "; its process is stopped"),
        ([b.COMPILING], [0], "; its process is stopped"),
        ([quiet(38), quiet(37), quiet(37)], [1], "; rank 1 is stopped"),
        ([quiet(38), quiet(37), quiet(37)], [0, 2], "; ranks 0 and 2 are stopped"),
    ],
)
def test_the_sentence_names_the_ranks_whose_process_is_stopped(
    slots: list[Slot], stopped: list[int], words: str
) -> None:
    views = [
        b.view(b.as_rank(slot, rank, len(slots)), process=STOPPED if rank in stopped else None)
        for rank, slot in enumerate(slots)
    ]
    text = summary(b.snapshot(*views))
    assert words in text
    assert "left" not in text


def test_a_frozen_process_is_not_said_to_wait_for_data() -> None:
    slot = replace(b.STALLED, steps=replace(b.STALLED.steps, batches=9, last_batch_ns=b.ago(80)))
    frozen = replace(STOPPED, thaw="0 > /sys/fs/cgroup/pod/cgroup.freeze")
    view = b.view(slot, process=frozen)
    text = summary(b.snapshot(view))
    assert text.endswith("; its process is frozen")
    assert "data" not in text
    assert evidence(view)[0].endswith(
        "docker unpause, or echo 0 > /sys/fs/cgroup/pod/cgroup.freeze, continues it"
    )


def test_steps_that_a_cuda_graph_replays_can_be_marked() -> None:
    replays = quiet(38, precompiled=1 << PRECOMPILED.index("cudagraph"))
    assert "mark each with warmwatch.step()" in b.in_words(b.view(replays))
    assert "warmwatch.step()" not in b.in_words(b.view(quiet(38)))


def test_an_eager_run_reports_silence_too() -> None:
    text = summary(b.snapshot(b.view(quiet(38, b.EAGER))))
    assert text.startswith("gpt2: no step for 38 s (usually 48 ms) and PyTorch compiles nothing")


def test_a_stall_comes_later_and_replaces_silence() -> None:
    view = b.view(quiet(75))
    assert view.judgement.state.value == "stalled"
    assert summary(b.snapshot(view)).count("no step for") == 1


@pytest.mark.parametrize(
    "explained",
    [
        {"saving_since_ns": b.ago(30), "saving_ns": 0},
        {"evaluating_since_ns": b.ago(30)},
        {"between_cells_since_ns": b.ago(30)},
        {"saved_ns": b.ago(1)},
        {"evaluated_ns": b.ago(2)},
        {"last_end_ns": b.ago(1)},
        {"background_since_ns": b.ago(60)},
        {"background_ended_ns": b.ago(1)},
        {"ended_ns": b.ago(20)},  # it exits
    ],
    ids=lambda counts: "-".join(counts),
)
def test_known_long_activity_is_not_silence(explained: dict[str, int]) -> None:
    assert "silent" not in conditions(quiet(38, **explained))


def test_silence_alone_changes_no_exit_code() -> None:
    from warmwatch.shared.states import NEEDS_ATTENTION

    assert not {"silent", "slower"} & NEEDS_ATTENTION
