"""Run summaries: one id for each start of a run, and bounds for hostile journals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.builders import EPOCH, NOW
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.history.summaries import id_of, summarize_run
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.model.records import Owner
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot
from warmwatch_monitor.pipeline.figures import forget_gone
from warmwatch_monitor.sources.records import parsed_journal
from warmwatch_monitor.sources.records.parsed_journal import Journals, parse_journal


@pytest.fixture(autouse=True)
def _no_record_is_known() -> None:
    """These are of one folder, and of several owners, which no record is."""
    forget_gone(())


ALICE = Owner(uid=1000, name="alice", own=True)
LAUNCH = "parent:4000:4026531836:777"


def run_of(*slots: Slot, **how: Any) -> tuple[RunView, Snapshot]:
    owner = how.get("owner", ALICE)
    views = [
        b.view(slot, alive=not slot.compile.end_code, journal={"owner": owner}) for slot in slots
    ]
    return seen(*views)


def seen(*views: RankView) -> tuple[RunView, Snapshot]:
    (run,) = b.runs(*views)
    return run, Snapshot(epoch=EPOCH, now_ns=NOW, runs=(run,))


def made(slot: Slot, lines: list[dict[str, Any]], folder: Path) -> RunSummary:
    write(folder, lines)
    run, snapshot = run_of(slot)
    return summarize_run(run, snapshot, read=lambda _: parse_journal(str(folder)))


def write(folder: Path, lines: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "events.jsonl").write_text(text)


def as_named(slot: Slot, **identity: Any) -> Slot:
    return replace(slot, identity=replace(slot.identity, **identity))


COMPILATION = {"t": b.ago(130), "event": "compilation", "kind": "forward", "id": "0/0"}


def test_a_summary_describes_the_run_and_what_each_rank_compiled(tmp_path: Path) -> None:
    lines = [
        {"t": b.ago(200), "event": "wrapped", "mode": "max-autotune", "options": ["x=ab12"]},
        {"t": b.ago(200), "event": "wrapped", "mode": "max-autotune", "options": ["x=ab12"]},
        {**COMPILATION, "name": "forward", "seconds": 30.5, "code": "c0de", "steps": 4, "ops": 12},
        {**COMPILATION, "phase_us": {"inductor": 2_000_000}, "cache": "miss"},
    ]
    account = made(b.ended("finished"), lines, tmp_path)
    (rank,) = account.ranks
    assert (account.run, account.state, account.owner) == ("gpt2", "finished", "alice")
    assert account.began == pytest.approx(EPOCH - 300)
    assert account.ended == pytest.approx(EPOCH - 12)
    assert account.seen == EPOCH
    assert account.what.torch == "2.13.0"
    assert account.what.tokens_per_step == 16384
    assert account.what.wrappings == (Wrapping(mode="max-autotune", options=("x=ab12",)),)
    assert account.what.code is not None
    first, second = rank.compiled
    assert (first.ended, first.step, first.code) == (pytest.approx(EPOCH - 130), 4, "c0de")
    assert (first.ops, first.seconds) == (12, 30.5)
    assert second.phase_seconds == {"inductor": 2.0}
    assert rank.answer["state"] == "finished"


def test_one_start_of_a_run_has_one_id_for_every_reader_at_any_time() -> None:
    slots = [as_named(b.as_rank(b.WARM, rank, 2), launch=LAUNCH) for rank in (0, 1)]
    run, _ = run_of(*slots)
    known = id_of(run)
    assert len(known) == 8
    assert known.isalnum()
    one, _ = run_of(slots[1])  # a look at which rank 0 had not attached
    foreign = [as_named(slot, run="gpt2@alice") for slot in slots]
    other, _ = run_of(*foreign, owner=replace(ALICE, own=False))
    numbered = [
        b.view(as_named(slot, run="gpt2-2"), journal={"owner": ALICE, "reported_run": "gpt2"})
        for slot in slots
    ]
    assert {id_of(one), id_of(other), id_of(seen(*numbered)[0])} == {known}


def test_another_start_launch_owner_or_name_has_another_id() -> None:
    base = as_named(b.as_rank(b.WARM, 0, 2), launch=LAUNCH)
    slots = [
        base,
        as_named(base, attempt=1),
        as_named(base, launch="parent:4000:4026531836:778"),
        as_named(base, boot_id="another"),
        as_named(base, run="bert"),
    ]
    ids = {id_of(run_of(slot)[0]) for slot in slots}
    ids.add(id_of(run_of(base, owner=replace(ALICE, uid=1001))[0]))
    assert len(ids) == 6


@pytest.mark.parametrize(
    "bad",
    [
        {**COMPILATION, "seconds": -1},
        {**COMPILATION, "seconds": float("inf")},
        {**COMPILATION, "t": "yesterday"},
        {**COMPILATION, "code": ["x"]},
        {**COMPILATION, "phase_us": [1]},
        {"t": 1, "event": "wrapped", "mode": 7},
        {"t": 1, "event": "wrapped", "fullgraph": "yes"},
        {"t": 1, "event": "wrapped", "dynamic": 1},
        {"t": 1, "event": "wrapped", "options": 5},
        {"t": 1, "event": "wrapped", "options": [{}]},
        {"t": 1, "event": ["compilation"]},
    ],
)
def test_a_line_that_no_agent_writes_is_ignored(tmp_path: Path, bad: dict[str, Any]) -> None:
    write(tmp_path, [bad, COMPILATION])
    found = parse_journal(str(tmp_path))
    assert [one.id for one in found.compilations] == ["0/0"]
    assert found.calls == ()


@pytest.mark.parametrize(("dropped", "left_out"), [(310, 78), (0, 0)])
def test_compilations_that_a_full_journal_omitted_are_counted(
    tmp_path: Path, dropped: int, left_out: int
) -> None:
    """Without a dropped line, the missing compilations are still being written."""
    done = b.ended("finished")
    counted = {"compilations": b.kinds(forward=40, backward=40), "journal_dropped": dropped}
    full = replace(done, compile=replace(done.compile, **counted))
    (rank,) = made(full, [COMPILATION, {**COMPILATION, "kind": "backward"}], tmp_path).ranks
    assert (len(rank.compiled), rank.left_out) == (2, left_out)


def test_the_journals_in_memory_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsed_journal, "JOURNALS_CACHED", 10_000)
    journals, folders = Journals(), [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
        write(folder, [{**COMPILATION, "reason": "x" * 3_000}] * 1)
    first, *_, last = (journals.of(str(folder)) for folder in folders)
    assert journals.of(str(folders[2])) is last
    write(folders[1], [{**COMPILATION, "reason": "x" * 3_000}] * 3)
    assert len(journals.of(str(folders[1])).compilations) == 3
    assert journals.of(str(folders[0])) is not first
