"""Long steps without a compilation, and the causes in their sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch_monitor.model.journal import LongStep
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal
from warmwatch_monitor.status.words.evidence import evidence, long_step_words
from warmwatch_monitor.status.words.sentence import summary

LONG = LongStep(at_ns=b.ago(60), step=400, seconds=41.0, usual_seconds=0.036)
UNKNOWN = "no compile event in it, and what it went to is not known"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, UNKNOWN),
        ({"saving_seconds": 38.0}, "38 s of it saving a checkpoint"),
        ({"saving_seconds": 3.0, "data_seconds": 2.0}, UNKNOWN),
        ({"data_seconds": 40.0, "batches": 1}, "40 s of it waiting for data"),
        (
            {"saving_seconds": 10.0, "data_seconds": 6.0},
            (
                "10 s of it saving a checkpoint, 6 s of it waiting for data, "
                "no compile event in it, and what the rest went to is not known"
            ),
        ),
        ({"batches": 51, "batches_before": 399}, "51 batches in it: an evaluation?"),
        (
            {"batches": 51, "batches_before": 399, "data_seconds": 30.0},
            "30 s of it waiting for data, 51 batches in it: an evaluation?",
        ),
        ({"evaluating_seconds": 40.0}, "40 s of it evaluating"),
        (
            {
                "evaluating_seconds": 40.0,
                "saving_seconds": 8.0,
                "batches": 51,
                "batches_before": 399,
            },
            "8 s of it saving a checkpoint, 40 s of it evaluating",
        ),
        ({"between_cells_seconds": 40.9}, "40.9 s of it between the cells of a notebook"),
        ({"prompt": True}, f"{UNKNOWN}; Python may have waited at its prompt"),
        ({"batches": 4, "batches_before": 4 * 399}, UNKNOWN),
        ({"batches": 2, "batches_before": 40}, UNKNOWN),
        ({"batches": 9}, UNKNOWN),
    ],
)
def test_a_long_step_is_reported_with_its_known_causes_only(
    known: dict[str, float], expected: str
) -> None:
    words = long_step_words(replace(LONG, **known))
    assert words == f"step 400 came after 41 s, 36 ms are usual: {expected}"


def test_a_long_step_is_in_the_evidence_and_the_answer_and_not_in_the_state() -> None:
    longest = replace(LONG, saving_seconds=38.0)
    last = replace(LONG, at_ns=b.ago(9), step=800, seconds=5.0, data_seconds=4.9, batches=1)
    view = b.view(b.WARM, journal={"long_steps": (longest, longest, last)})
    assert evidence(view)[-2:] == [
        "step 800 came after 5 s, 36 ms are usual: 4.9 s of it waiting for data",
        (
            "the longest of them: step 400 came after 41 s, 36 ms are usual: 38 s of it saving "
            "a checkpoint"
        ),
    ]
    snapshot = b.snapshot(view)
    assert b.head(view) in summary(snapshot)
    reported = status(snapshot)["runs"][0]["ranks"][0]["long_steps"]
    assert [(one["step"], one["evaluation"]) for one in reported] == [(400, False), (800, False)]
    assert reported[0]["checkpoint_seconds"] == 38.0
    assert reported[1]["words"] in evidence(view)


LINE = {"t": 5, "event": "long_step", "n": 400, "seconds": 41.0, "usual": 0.5, "saving": 38.0}


def follow(tmp_path: Path, *lines: dict[str, object]) -> Journal:
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    journal = Journal()
    with Folder(str(tmp_path)) as folder:
        journal.follow(folder)
    return journal


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": None},
        {"seconds": "41"},
        {"seconds": float("inf")},
        {"usual": -1},
        {"saving": []},
        {"data": float("nan")},
        {"evaluating": -5},
        {"batches": 1.5},
        {"batches_before": -1},
        {"left_out": True},
    ],
)
def test_an_impossible_journal_line_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    journal = follow(tmp_path, {**LINE, **wrong})
    assert (journal.sums.long_steps, journal.broken_lines) == ((), 1)
