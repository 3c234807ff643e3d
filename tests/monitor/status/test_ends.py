"""How a run ended: in its sentence, in the evidence, and in /status."""

from __future__ import annotations

from signal import Signals
from typing import Any

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.figures.rank import Place
from warmwatch_monitor.model.figures import RankHistory
from warmwatch_monitor.model.records import Death, RecordReading
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.summary import details_of
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.pipeline.runs import ended_together
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.run import run_answer
from warmwatch_monitor.status.words.sentence import summary

TRAINED = replace(b.WARM, steps=replace(b.WARM.steps, steps=12))


def ended(how: str, *, code: int | None = None, **journal: Any) -> RankView:
    slot = b.ended(how, TRAINED)
    counts = replace(slot.compile, exit_code=0 if code is None else 1 + code)
    return b.view(replace(slot, compile=counts), alive=False, journal=journal)


def lost(*, base: Slot = TRAINED, gone: float | None = 3.0) -> RankView:
    return b.view(base, alive=False, gone=gone)


def killed(number: int, *, base: Slot = TRAINED, gone: float = 3.0) -> RankView:
    death = Death(signal=number, at_ns=b.ago(gone))
    return b.view(base, alive=False, gone=gone, journal={"death": death})


def end(view: RankView) -> dict[str, Any]:
    (rank,) = status(b.snapshot(view))["runs"][0]["ranks"]
    found: dict[str, Any] = rank["end"]
    return found


ENDS = {
    "exception": (
        ended("failed", code=1, exception="RuntimeError"),
        "failed after 12 steps: RuntimeError",
        ("failed", 1, "RuntimeError"),
    ),
    "exception of a known line": (
        ended("failed", code=1, exception="OSError", raised=Place(name="s", file="t.py", line=9)),
        "failed after 12 steps: OSError; raised in `s` (t.py:9)",
        ("failed", 1, "OSError"),
    ),
    "what compiled code refuses": (
        ended(
            "failed",
            code=1,
            exception="RuntimeError",
            raised=Place(name="s", file="t.py", line=9),
            refusal="double_backward",
        ),
        (
            "failed after 12 steps: RuntimeError; raised in `s` (t.py:9): "
            "compiled code has no second derivative"
        ),
        ("failed", 1, "RuntimeError"),
    ),
    "exit code": (
        ended("failed", code=3),
        "failed after 12 steps with exit code 3",
        ("failed", 3, None),
    ),
    "how is unknown": (
        ended("failed"),
        "failed after 12 steps with an uncaught exception",
        ("failed", None, None),
    ),
    "finished": (ended("finished", code=0), "finished after 12 steps", ("finished", 0, None)),
    "interrupted": (
        ended("interrupted", exception="KeyboardInterrupt"),
        "interrupted after 12 steps",
        ("interrupted", None, "KeyboardInterrupt"),
    ),
    "detached": (ended("detached"), "detached after 12 steps", ("detached", None, None)),
    "out of memory": (
        replace(lost(), oom_killed=True),
        "lost after 12 steps: out of memory",
        ("lost", None, None),
    ),
    "killed": (
        lost(),
        "lost after 12 steps; no exit record: killed by a signal, or ended by os._exit or os.exec",
        ("lost", None, None),
    ),
}


@pytest.mark.parametrize(("view", "sentence", "cause"), ENDS.values(), ids=ENDS)
def test_each_end_has_its_words_and_facts(
    view: RankView, sentence: str, cause: tuple[object, ...]
) -> None:
    assert summary(b.snapshot(view)) == f"gpt2: {sentence}"
    text = end(view)
    assert (text["how"], text["exit_code"], text["exception"]) == cause
    assert text["out_of_memory"] is (True if view.oom_killed else None)


def ranks(*gone: float | None, living: int = 0) -> tuple[str, dict[str, Any]]:
    """The sentence and the run of ranks that were lost so long ago, and of more that live."""
    number = living + len(gone)
    slots = [b.as_rank(TRAINED, rank, number) for rank in range(number)]
    views = [b.view(slot) for slot in slots[:living]]
    views += [lost(base=slot, gone=ago) for slot, ago in zip(slots[living:], gone, strict=True)]
    (run,) = b.runs(*views)
    run = replace(run, ended_together=ended_together([view.record for view in views]))
    snapshot = replace(b.snapshot(), runs=(run,))
    return summary(snapshot), status(snapshot)["runs"][0]


@pytest.mark.parametrize(
    ("gone", "when", "together"),
    [
        ((3.0, 4.2, 5.0), " within 2.0 s", True),
        ((None, None), "", None),
        ((3.0, None), "", None),
    ],
)
def test_ranks_lost_together_without_a_signal_were_cancelled_or_one_of_them_was_killed(
    gone: tuple[float | None, ...], when: str, together: bool | None
) -> None:
    sentence, run = ranks(*gone)
    assert sentence == (
        f"gpt2: lost after 12 steps; all ranks ended{when}: "
        "cancelled, or one was killed and then the others"
    )
    assert {rank["end"]["ended_together"] for rank in run["ranks"]} == {together}
    unseen = gone.count(None) == len(gone)
    assert (
        "a daemon or `warmwatch wait` that runs at the end sees which signal it was"
        in details_of(run)
    ) is unseen


def test_ranks_that_were_lost_one_after_another_were_not_ended_together() -> None:
    sentence, run = ranks(3.0, 400.0)
    assert sentence == "gpt2: lost after 12 steps"
    assert [rank["end"]["ended_together"] for rank in run["ranks"]] == [False] * 2


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (ended("failed", exception="ValueError"), "rank 0 failed: ValueError"),
        (ended("failed", code=3), "rank 0 failed with exit code 3"),
        (replace(lost(), oom_killed=True), "rank 0 is lost (out of memory)"),
        (killed(15), "rank 0 was killed by SIGTERM"),
        (ended("interrupted"), "rank 0 was interrupted (SIGINT, Ctrl-C)"),
        (ended("finished"), "rank 0 finished first"),
    ],
)
def test_with_living_ranks_the_end_of_another_is_reported(view: RankView, words: str) -> None:
    """One that finishes may leave the others in a collective."""
    living = b.view(b.as_rank(b.WARM, 1, 2))
    assert summary(b.snapshot(view, living)).endswith(f"; {words}")


@pytest.mark.parametrize(("seconds_ago", "first"), [(13, True), (11, False)])
def test_a_rank_that_finished_before_another_failed_is_reported(
    seconds_ago: float, first: bool
) -> None:
    done = b.view(b.as_rank(b.ended("finished", TRAINED, seconds_ago), 1, 2), alive=False)
    words = summary(b.snapshot(ended("failed", exception="RuntimeError"), done))
    assert words.endswith("; rank 1 finished first") is first


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (["failed"], "the start before failed after 12 steps with exit code 1"),
        (["", "failed"], "2 starts before failed, the last failed after 12 steps with exit code 1"),
        (["failed", ""], "2 starts before failed, the last was lost after 12 steps"),
        (["failed", "finished"], ""),
    ],
)
def test_a_new_start_reports_how_the_one_before_failed_until_it_is_warm(
    ends: list[str], words: str
) -> None:
    readings = []
    for attempt, how in enumerate([*ends, None]):
        slot = b.ended(how, TRAINED) if how else TRAINED if how == "" else b.STARTING
        header = replace(slot.header, attached_ns=b.ago(900 - attempt))
        identity = replace(slot.identity, attempt=attempt, launch="x")
        counts = replace(slot.compile, exit_code=2) if how == "failed" else slot.compile
        slot = replace(slot, header=header, identity=identity, compile=counts)
        readings.append(RecordReading(folder=f"/{attempt}", slot=slot, alive=how is None))
    (run,), _ = Judging().of(readings, OtherReadings(now_ns=b.NOW), {"/0", "/1", "/2"})
    starts = run_answer(run)
    assert ("before failed" in starts.summary) is bool(words)
    assert words in "; ".join(starts.details)
    (warm,) = run.ranks
    warm = replace(warm, figures=b.view(b.WARM).figures)
    assert "before" not in str(run_answer(run.with_ranks([warm])))


SIGNALS = {
    "SIGABRT": (6, "failed after 12 steps: killed by SIGABRT", "failed"),
    "SIGTERM": (15, "lost after 12 steps; killed by SIGTERM", "lost"),
    "signal 40": (40, "lost after 12 steps; killed by signal 40", "lost"),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_the_signal_that_killed_a_rank_is_reported(name: str) -> None:
    number, words, how = SIGNALS[name]
    death = Death(signal=number, at_ns=b.NOW)
    view = b.view(TRAINED, alive=False, gone=3.0, journal={"death": death})
    assert summary(b.snapshot(view)) == f"gpt2: {words}"
    assert (end(view)["how"], end(view)["signal"]) == (how, name)
    assert f"{name} killed the process" in evidence(view)


@pytest.mark.parametrize(("number", "memory"), [(6, None), (9, False), (9, True)])
def test_a_death_that_an_earlier_daemon_saw_is_the_end(number: int, memory: bool | None) -> None:
    one = RecordReading(folder="/a", slot=TRAINED, alive=False)
    known = RankHistory(death=Death(signal=number, at_ns=b.ago(3), out_of_memory=memory))
    around = OtherReadings(now_ns=b.NOW, histories={"/a": known})
    (run,), _ = Judging().of([one], around, {"/a"})
    (view,) = run.ranks
    assert (end(view)["signal"], end(view)["out_of_memory"]) == (Signals(number).name, memory)
    assert view.figures.progress.state_since == pytest.approx(b.EPOCH - 3, abs=0.01)


def test_the_rank_that_failed_first_is_named_and_those_that_failed_of_it_after_it() -> None:
    """A daemon sees a killed rank end later than the exception that this raises in its peers."""

    def raised(rank: int, seconds_ago: float, exception: str) -> RankView:
        slot = b.as_rank(b.ended("failed", TRAINED, seconds_ago), rank, 3)
        where = Place(name="s", file="t.py", line=9) if exception == "ValueError" else None
        return b.view(slot, alive=False, journal={"exception": exception, "raised": where})

    def segfault(rank: int, seconds_ago: float) -> RankView:
        return killed(11, base=b.as_rank(TRAINED, rank, 3), gone=seconds_ago)

    closed, missing = raised(0, 3, "RuntimeError"), lost(base=b.as_rank(TRAINED, 2, 3))
    snapshot = b.snapshot(closed, raised(1, 20, "ValueError"), missing)
    texts = [clause["text"] for clause in status(snapshot)["runs"][0]["clauses"]]
    assert "rank 1 raised in `s` (t.py:9)" in texts
    of_one = summary(snapshot)
    assert of_one == (
        "gpt2: failed after 12 steps: ValueError, rank 1 of 3; rank 0 failed: RuntimeError; "
        "rank 2 is lost"
    )
    soon = summary(b.snapshot(closed, segfault(1, 2.7), raised(2, 3.1, "RuntimeError")))
    assert soon == (
        "gpt2: failed after 12 steps: killed by SIGSEGV, rank 1 of 3; ranks 0 and 2 failed: "
        "RuntimeError"
    )
    leaves = b.as_rank(b.ended("failed", TRAINED, 2.7), 1, 3)
    leaves = b.view(replace(leaves, compile=replace(leaves.compile, exit_code=1 + 3)), alive=False)
    left = summary(b.snapshot(closed, leaves, raised(2, 3.1, "RuntimeError")))
    assert left == (
        "gpt2: failed after 12 steps with exit code 3, rank 1 of 3; ranks 0 and 2 failed: "
        "RuntimeError"
    )
    late = summary(b.snapshot(closed, segfault(1, 1.5), raised(2, 3.1, "RuntimeError")))
    assert late == (
        "gpt2: failed after 12 steps: RuntimeError, 2 of 3 ranks; rank 1 failed: killed by SIGSEGV"
    )


def test_a_signal_that_the_process_caught_and_exited_after_is_not_its_end() -> None:
    """The recorded end counts; a launcher may kill the process during its exit."""
    slot = b.ended("finished", TRAINED)
    view = b.view(slot, alive=False, journal={"death": Death(signal=15, at_ns=b.NOW)})
    assert (end(view)["how"], end(view)["signal"]) == ("finished", None)
