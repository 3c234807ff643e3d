"""The time left before the timeout of a collective in which ranks wait for a compilation."""

from __future__ import annotations

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.summary import details_of
from warmwatch_monitor.pipeline.runs import Circumstances, group


def waiting(
    rank: int, quiet: float = 95, timeout: float | None = 600, backend: str = "nccl"
) -> RankView:
    """A warm rank that has made no step for so long."""
    return ranked(
        replace(b.WARM, steps=replace(b.WARM.steps, last_step_ns=b.ago(quiet))),
        rank,
        timeout,
        backend,
    )


def ranked(slot: Slot, rank: int, timeout: float | None, backend: str = "nccl") -> RankView:
    slot = b.as_rank(slot, rank, 8)
    known = {"collective_timeout": timeout, "collective_backend": backend if timeout else ""}
    return b.view(replace(slot, identity=replace(slot.identity, **known)))  # type: ignore[arg-type]


def ended(rank: int) -> RankView:
    identity = ranked(b.WARM, rank, 600).record.slot.identity
    return b.view(replace(b.ended("failed"), identity=identity), alive=False)


def compiling(seconds: float = 95, timeout: float | None = 600) -> RankView:
    counts = replace(
        b.RECOMPILING.compile,
        active_since_ns=b.ago(seconds),
        episode_began_ns=b.ago(seconds),
        accounted_ns=b.ago(seconds),
    )
    steps = replace(b.RECOMPILING.steps, last_step_ns=b.ago(seconds))
    return ranked(replace(b.RECOMPILING, compile=counts, steps=steps), 3, timeout)


def deadline_of(*views: RankView) -> tuple[str, float | None]:
    """Headline and details, and the seconds left, of ranks that are judged as one run."""
    together = group([view.record for view in views], Circumstances(now_ns=b.NOW))
    (run,) = status(replace(b.snapshot(), runs=together))["runs"]
    deadline = run["deadline"]
    words = "; ".join((run["summary"], *details_of(run)))
    return words, deadline and deadline["left_seconds"]


def seven(**how: float) -> list[RankView]:
    return [waiting(rank, **how) for rank in range(8) if rank != 3]  # type: ignore[arg-type]


def test_the_time_left_is_reported_below_half_of_the_timeout() -> None:
    sentence, left = deadline_of(compiling(), *seven())
    assert sentence.endswith(" 95 s (dynamo), rank 3 of 8; 7 ranks wait for it")
    assert left == pytest.approx(505), "the key has it all along"
    sentence, left = deadline_of(compiling(), *seven(timeout=180))
    assert "rank 3 of 8; NCCL gives up in 85 s; 7 ranks wait for it" in sentence
    assert left == pytest.approx(85)


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ([waiting(0, 95, 600), waiting(1, 95, 300, "gloo")], 205.0),
        ([waiting(0, 35, 600)], 565.0),
        ([waiting(0, 900, 600)], 505.0),
        ([waiting(0, 95, 180)], "; NCCL gives up in 85 s"),
        ([waiting(0, 95, 120, "mine")], "; their collective gives up in 25 s (init_process_group("),
        ([waiting(0, 95, 95.4)], "; NCCL gives up any moment now"),
        ([waiting(0, 95, 96.2)], "; NCCL gives up in 1 s ("),
        ([waiting(0, 95, 95)], "; NCCL has given up by now, or will: its 95 s are over"),
        ([waiting(0, 95, 60)], "; NCCL has given up by now, or will: its 60 s are over"),
    ],
    ids=[
        "the shortest",
        "came later",
        "not before",
        "less than half",
        "little",
        "none",
        "one",
        "over",
        "long over",
    ],
)
def test_the_timeout_counts_from_the_earliest_begin_of_the_wait(
    views: list[RankView], words: str | float
) -> None:
    sentence, left = deadline_of(compiling(), *views)
    if isinstance(words, str):
        assert words in sentence
    else:
        assert "gives up" not in sentence
        assert left == pytest.approx(words)


@pytest.mark.parametrize(
    "views",
    [
        [compiling()],
        [compiling(), waiting(0, timeout=None)],
        [compiling(), ended(0)],
        [ranked(b.STALLED, 3, 600), waiting(0)],
        [ranked(b.WARM, 3, 600), waiting(0, 1)],
    ],
    ids=["nobody waits", "no timeout", "ended", "nothing compiles", "all warm"],
)
def test_there_is_no_deadline_without_a_waiting_rank_or_a_known_timeout(
    views: list[RankView],
) -> None:
    sentence, left = deadline_of(*views)
    assert "gives up" not in sentence
    assert left is None


def test_the_timeout_is_in_status_with_what_raises_it_and_a_series() -> None:
    snapshot = b.snapshot(compiling(), waiting(0, backend="gloo"), ended(1))
    (run,) = status(snapshot)["runs"]
    assert "init_process_group(timeout=" in run["deadline"]["advice"]
    assert [one["collective_timeout_seconds"] for one in run["ranks"]] == [600, 600, 600]
    assert [one["collective_backend"] for one in run["ranks"]] == ["gloo", "nccl", "nccl"]
    body = render(snapshot, None)[0].decode()
    name = "warmwatch_collective_timeout_seconds"
    lines = [line for line in body.splitlines() if line.startswith(f"{name}{{")]
    assert lines == [
        f'{name}{{backend="gloo",rank="0",run="gpt2"}} 600.0',
        f'{name}{{backend="nccl",rank="3",run="gpt2"}} 600.0',
    ]
