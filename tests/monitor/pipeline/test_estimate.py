"""The time left of a compilation, estimated from earlier runs of the same program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.documents import status
from support.sources import instead, settings
from support.sources import records as reading
from support.stored_runs import BEGAN, history_settings, rank, run_summary, store
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.figures.compile import Estimate
from warmwatch_monitor.history import earlier_runs
from warmwatch_monitor.history.comparability import (
    compiles_the_same,
    is_comparable,
    known_of,
)
from warmwatch_monitor.history.earlier_runs import EarlierRuns
from warmwatch_monitor.history.earlier_runs_source import earlier_runs_source
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.figures import Done, EarlierWarmup, RankHistory
from warmwatch_monitor.model.journal import NOTHING, Wrapping
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.run_summary import Compiled, Provenance, RunSummary
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.estimates import Now, estimate, with_estimates
from warmwatch_monitor.pipeline.poller import Poller
from warmwatch_monitor.sources.listed import RECORDS
from warmwatch_monitor.status.words.sentence import summary

FORWARD = Done(kind="forward", name="forward", code="c0de", cache="miss", seconds=80.0)
BACKWARD = Done(kind="backward", cache="miss", seconds=30.0)
PHASES = {"dynamo": 5.0, "inductor": 75.0, "kernel_compile": 30.0}
BEFORE = EarlierWarmup(seconds=113.0, phase_seconds=PHASES, compiled=(FORWARD, BACKWARD))


def now(seconds: float, activity: float | None = None, *done: Done, **known: Any) -> Now:
    """``seconds`` into a first warm-up, and ``activity`` into the compilation in progress."""
    return Now(
        seconds=seconds,
        activity_seconds=seconds if activity is None else activity,
        compiled=done,
        phase_seconds={"dynamo": 5.0, "inductor": seconds - 5.0},
        **known,
    )


def left(now: Now, *earlier: EarlierWarmup) -> float | None:
    """Each of ``earlier`` stands for three that agree."""
    found = estimate(now, [one for one in earlier for _ in range(3)])
    return None if found is None else found.left_seconds


def test_a_compilation_longer_than_in_the_earlier_runs_ends_the_estimate() -> None:
    assert left(now(79), BEFORE) is not None
    assert left(now(81), BEFORE) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_few_earlier_runs_predict_nothing(count: int) -> None:
    """Of one alone, two fifths of the estimates were right: it may have had other arguments."""
    assert estimate(now(20), [BEFORE] * count) is None
    assert estimate(now(20), [BEFORE] * 3) is not None


def test_earlier_runs_that_differ_predict_nothing() -> None:
    longer = EarlierWarmup(
        seconds=133.0,
        phase_seconds={**PHASES, "inductor": 95.0},
        compiled=(replace(FORWARD, seconds=100.0), BACKWARD),
    )
    assert estimate(now(20), [BEFORE, longer, BEFORE]) is not None
    assert estimate(now(60), [BEFORE, longer, BEFORE]) is None, "53 or 73 s"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"code": "0ther"},
        {"name": "loss"},
        {"cache": "hit"},
        {"kind": "backward"},
    ],
)
def test_a_different_compilation_gives_no_estimate(otherwise: dict[str, str]) -> None:
    assert left(now(85, 5, replace(FORWARD, **otherwise)), BEFORE) is None
    if "cache" not in otherwise:  # this is unknown while it compiles
        assert left(now(20, underway=Done(**otherwise)), BEFORE) is None


def test_a_finished_rank_of_the_run_takes_precedence_over_the_history() -> None:
    peer = replace(BEFORE, seconds=150.0, of_rank=True, compiled=None)
    found = estimate(now(20), [peer] * 3 + [BEFORE] * 3)
    assert found is not None
    assert (found.of_rank, found.last_seconds, found.precedents) == (True, 150.0, 3)


# What is remembered

COLD = {"inductor": "cold", "triton": "cold"}
WHAT = Provenance(
    script="train.py",
    torch="2.13.0",
    caches=COLD,
    compile_threads=8,
    wrappings=(Wrapping(mode="default"),),
)


def before(id: str = "abcdefgh", seconds: float = 113.0, **what: Any) -> RunSummary:
    """A run that was warm after ``seconds``."""
    first = {"ended_at": BEGAN + seconds, "seconds": seconds, "steps": 1}
    answer = {
        "state": "finished",
        "attached_at": BEGAN,
        "warmup": {"first": first},
        "compile": {"seconds": 110.0, "phase_seconds": {**PHASES, "dynamo": 6.0}},
    }
    compiled = (
        Compiled(ended=BEGAN + 81, seconds=80.0, kind="forward", name="forward", code="c0de"),
        Compiled(ended=BEGAN + 112, seconds=30.0, kind="backward"),
        Compiled(
            ended=BEGAN + 300, seconds=1.0, kind="forward", name="f", phase_seconds={"dynamo": 1.0}
        ),
    )
    return run_summary(
        id,
        run="gpt2",
        owner=None,
        host="node1",
        what=replace(WHAT, **what),
        ranks=(rank(answer=answer, compiled=compiled),),
    )


@pytest.mark.parametrize(
    ("otherwise", "comparable"),
    [
        ({"caches": {"inductor": "warm", "triton": "warm"}}, True),
        ({"caches": {}}, True),
        ({"torch": "2.12.0"}, True),
        ({"compile_threads": 2}, True),
        ({"gpus": ("NVIDIA H100",)}, False),
        ({"world_size": 8}, False),
        ({"wrappings": (Wrapping(mode="max-autotune"),)}, False),
        ({"script": "other.py"}, False),
    ],
)
def test_only_the_same_program_under_the_same_conditions_is_used(
    otherwise: dict[str, Any], comparable: bool
) -> None:
    mine = known_of(before())
    assert compiles_the_same(mine, before())
    other = before(**otherwise)
    assert (compiles_the_same(mine, other), is_comparable(mine, other)) == (False, comparable)


def compiling(**identity: Any) -> Slot:
    """43 s into its first compilation."""
    reported = {
        "script": "train.py",
        "host": "node1",
        "caches": COLD,
        "compile_threads": 8,
        "launch": "process:7:1",
        "pid": 7,
    }
    return replace(
        b.slot(compile=b.COMPILING.compile, **{**reported, **identity}),
        header=replace(b.COMPILING.header, attached_epoch_ns=round((BEGAN + 5000) * 1e9)),
    )


def test_a_poll_does_not_parse_all_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query parses a journal; parsing all in one poll took 0.2 of a core for minutes."""
    history, parsed = store(tmp_path), list[str]()
    monkeypatch.setattr(earlier_runs, "parse_journal", lambda one: parsed.append(one) or NOTHING)
    records = [
        RecordReading(folder=one, slot=compiling(), alive=True) for one in ("a", "b", "c", "d")
    ]
    source = EarlierRuns(history, lambda _: True, within=0.0)
    assert source.read(records, ()).keys() == {"a"}
    while len(source.read(records, ())) < len(records):
        pass  # it rests in proportion to its CPU time
    assert parsed == ["a", "b", "c", "d"]


def test_an_unreadable_history_removes_only_the_estimate(
    tmp_path: Path,
) -> None:
    (tmp_path / "history.db").write_text("no database")
    record = RecordReading(folder="/a", slot=compiling(), alive=True, pid=7)
    polled = _polled(tmp_path, record)
    assert {one.source: one.up for one in polled.sources}["precedents"] is False
    assert "left" not in summary(polled)
    assert polled.runs[0].state.value == "compiling"


def _polled(state: Path, record: RecordReading) -> Snapshot:
    sources = (instead(RECORDS, reading(record)), *earlier_runs_source(history_settings(state)))
    return Poller(settings("/nowhere"), sources=sources).poll_once()


# Its sentence


def seen(estimate: Estimate, slot: Slot = b.COMPILING) -> Snapshot:
    view = replace(b.view(slot), estimate=estimate)
    return b.snapshot(view)


MANY = Estimate(
    of="warmup",
    so_far_seconds=43.0,
    last_seconds=113.0,
    left_seconds=70.0,
    low=60.0,
    high=90.0,
    precedents=3,
)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (MANY, "last time 113 s: about 70 s left"),
        (replace(MANY, left_seconds=None), "longer than last time (113 s)"),
        (replace(MANY, of_rank=True), "another rank took 113 s: about 70 s left"),
        (
            replace(MANY, so_far_seconds=60.0),
            "last time the whole warm-up took 113 s: about 70 s left",
        ),
    ],
)
def test_the_sentence_contains_the_time_left(known: Estimate, expected: str) -> None:
    assert summary(seen(known)) == f"gpt2: {b.head(b.in_every_state()['compiling'])}; {expected}"


def test_the_time_left_is_in_status_and_in_series_if_known() -> None:
    reported = status(seen(MANY))["runs"][0]["ranks"][0]["compile"]["estimate"]
    assert reported == {
        "of": "warmup",
        "so_far_seconds": 43.0,
        "last_seconds": 113.0,
        "left_seconds": 70.0,
        "low": 60.0,
        "high": 90.0,
        "phases": {},
        "precedents": 3,
        "of_rank": False,
    }
    series = 'warmwatch_compile_left_seconds{rank="0",run="gpt2"} 70'
    assert series in _metrics(seen(MANY))
    assert "\nwarmwatch_compile_left_seconds{" not in _metrics(
        seen(replace(MANY, left_seconds=None))
    )
    none = status(b.snapshot(b.view(b.COMPILING)))
    assert none["runs"][0]["ranks"][0]["compile"]["estimate"] is None


def _metrics(snapshot: Snapshot) -> str:
    return render(snapshot, None)[0].decode()


def test_finished_peers_give_the_estimate_of_a_compiling_rank() -> None:
    slow = b.view(b.as_rank(b.COMPILING, 3, 4))
    done = replace(
        b.WARMING.compile, first_begin_ns=b.ago(120), last_end_ns=b.ago(60), ended=2, begun=2
    )
    ready = [b.view(b.as_rank(replace(b.WARMING, compile=done), rank, 4)) for rank in range(3)]
    (run,) = with_estimates(b.runs(*ready, slow), b.NOW)
    known = run.ranks[3].estimate
    assert known is not None
    assert (known.of_rank, known.last_seconds) == (True, 60.0)
    assert known.left_seconds is not None
    assert run.ranks[0].estimate is None
    loading = replace(slow, judgement=replace(slow.judgement, phase="cache_load"))
    (run,) = with_estimates(b.runs(*ready, loading), b.NOW)
    assert run.ranks[3].estimate is None
    warm_before = replace(b.COMPILING, compile=replace(b.COMPILING.compile, warmups=1))
    again = b.view(b.as_rank(warm_before, 3, 4))
    (run,) = with_estimates(b.runs(*ready, again), b.NOW)
    assert run.ranks[3].estimate is None, "a recompile"
    (alone,) = with_estimates(b.runs(slow), b.NOW)
    assert alone.ranks[0].estimate is None


@pytest.mark.parametrize(
    ("state", "lookup", "estimated"),
    [
        *(("cold", None, True), ("cold", "miss", False)),
        *(("warm", None, False), ("warm", "hit", True), ("warm", "miss", False)),
    ],
)
def test_a_cache_with_entries_gives_an_estimate_once_it_is_known_to_hit(
    state: str, lookup: str | None, estimated: bool
) -> None:
    """Its directory may have graphs of other programs only. All earlier runs hit."""
    slot = replace(b.COMPILING, identity=replace(b.COMPILING.identity, caches={"inductor": state}))
    view = b.view(slot, journal={"lookup": lookup})
    loaded = (replace(FORWARD, cache="hit"), replace(BACKWARD, cache="hit"))
    history = RankHistory(same=(replace(BEFORE, compiled=loaded),) * 3)
    for seconds in (0, 120):  # then it is longer than last time
        (run,) = with_estimates(
            b.runs(view), b.NOW + seconds * 10**9, {view.record.folder: history}
        )
        assert (run.ranks[0].estimate is not None) is estimated
