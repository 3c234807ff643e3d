"""Clean steps far longer than usual: which ones are reported, with which facts, and how many."""

from __future__ import annotations

import sys
from array import array
from threading import Thread, get_ident
from types import SimpleNamespace
from typing import Any

import pytest

from support.ranks import Rank
from warmwatch.shared.record import COMPILE_WORDS, STEPS_INDEX, blank, hot_words
from warmwatch.steps.attribution import LeftOut
from warmwatch.steps.batches import Behind, make_batches

MINUTE = 60 * 10**9


def stepped(rank: Rank, *lengths: float) -> Rank:
    for seconds in lengths:
        rank.wait(seconds)
        rank.step()
    return rank


def long_steps(rank: Rank) -> list[dict[str, Any]]:
    return [dict(values) for event, _, values in rank.store.notes if event == "long_step"]


def warm() -> Rank:
    """A rank that has compiled, and made 20 steps of 0.5 s."""
    rank = Rank()
    rank.ledger.begin("dynamo")
    rank.wait(9)
    rank.ledger.end("dynamo")
    return stepped(rank, *[0.5] * 20)


@pytest.mark.parametrize("seconds", [0.6, 1.9])
def test_a_slightly_longer_step_is_not_reported(seconds: float) -> None:
    assert long_steps(stepped(warm(), seconds, 0.5)) == []


def test_reads_of_memory_end_in_a_training_that_remains_slow() -> None:
    rank = warm()
    rank.pytorch.bytes = (1, 2, 3, 4, 0)
    stepped(rank, *[0.8] * 70)
    looked = rank.slot().compile.memory_ns
    assert stepped(rank, *[0.8] * 20).slot().compile.memory_ns == looked


def test_a_long_step_is_reported_with_its_number_and_the_usual_length() -> None:
    (one,) = long_steps(stepped(warm(), 41, 0.5))
    assert (one["n"], one["seconds"]) == (21, 41)
    assert one["usual"] == pytest.approx(0.5, rel=0.03)
    assert one["left_out"] == 0


@pytest.mark.parametrize("cells", [False, True])
def test_a_wait_at_the_prompt_of_python_is_possible_where_no_cells_are_reported(
    monkeypatch: pytest.MonkeyPatch, *, cells: bool
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # IPython has one, too
    shell = SimpleNamespace(get_ipython=lambda: object() if cells else None)
    monkeypatch.setitem(sys.modules, "IPython", shell)  # a library may import it, too
    (one,) = long_steps(stepped(warm(), 41))
    assert one.get("prompt", False) is not cells


def test_pauses_within_the_step_are_reported() -> None:
    rank = warm()
    for what, seconds in (("saving", 20), ("saving", 18), ("evaluating", 9)):
        rank.ledger.post("pause_began", {"what": what})
        rank.wait(seconds)
        rank.ledger.post("pause_ended", {"what": what})
    (one,) = long_steps(stepped(rank, 3))
    assert (one["seconds"], one["saving"], one["evaluating"]) == (50, 38, 9)
    (_, later) = long_steps(stepped(rank, 0.5, 41))
    assert (later["saving"], later["evaluating"]) == (0, 0)


def test_batches_within_the_step_are_reported_next_to_earlier_ones() -> None:
    rank = warm()
    rank.behind = Behind(batches=50, all_batches=70, wait_ns=7 * 10**9)
    (one,) = long_steps(stepped(rank, 41))
    assert (one["batches"], one["batches_before"], one["data"]) == (50, 20, 7)


def test_frequent_lines_are_limited_and_count_the_omitted_ones() -> None:
    left_out = LeftOut()
    first = [left_out.before(n * MINUTE) for n in range(100)]
    assert first == [0] * 100
    later = [left_out.before((100 + n) * MINUTE) for n in range(30)]
    assert [n for n, one in enumerate(later) if one is not None] == [14, 29]
    assert later[14] == later[29] == 14


class _Clock:
    now = 10**9

    def __call__(self) -> int:
        return self.now


def ledger(training: int | None = None) -> Any:
    block = array("Q", bytes(8 * COMPILE_WORDS))
    return SimpleNamespace(block=block, pausing=SimpleNamespace(training=training))


def test_batches_are_counted_between_steps_and_waits_on_the_training_thread() -> None:
    buffer, clock = blank(), _Clock()
    batches = make_batches(buffer, ledger(), clock=clock)
    hot = hot_words(buffer)

    def batch(wait: float) -> None:
        requested, clock.now = clock.now, clock.now + round(wait * 1e9)
        batches.on_batch(requested)

    assert batches.behind(0) is None
    batch(5)
    hot[0] = 1
    assert batches.behind(1) is None
    for wait in (0.001, 3, 4):
        batch(wait)
    found = batches.behind(1)
    assert found == Behind(batches=3, all_batches=4, wait_ns=7 * 10**9)
    assert batches.behind(2) is None
    hot[0] = 2
    batch(0.001)
    assert batches.behind(2) == Behind(batches=1, all_batches=5, wait_ns=0)


@pytest.mark.parametrize("started", [False, True])
def test_waits_of_other_threads_do_not_count_as_waits_of_the_training(started: bool) -> None:
    """A thread that evaluates fetches batches of its own. Before the first step none is known."""
    buffer, clock = blank(), _Clock()
    batches = make_batches(buffer, ledger(get_ident() if started else None), clock=clock)
    clock.now += 10**10
    fetcher = Thread(target=batches.on_batch, args=(10**9,))
    fetcher.start()
    fetcher.join()
    assert batches.behind(0) == Behind(batches=1, all_batches=1, wait_ns=0)
    assert hot_words(buffer)[STEPS_INDEX["batch_wait_ns"]] == (0 if started else 10**10)
