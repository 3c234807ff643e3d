"""Diffs of two snapshots, as events, and the ring that stores them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from support import builders as b
from support.values import replace
from warmwatch_monitor.model.snapshot import RankView, Snapshot
from warmwatch_monitor.server.api.changes import (
    ForgottenError,
    Recent,
    Wanted,
    changes,
)
from warmwatch_monitor.server.api.openapi import EVENTS
from warmwatch_monitor.status.schema.events import KINDS
from warmwatch_monitor.status.schema.json_schema import definitions

STATES = b.in_every_state()


def changed(before: Snapshot, now: Snapshot) -> list[tuple[str, dict[str, Any]]]:
    return [(event.kind, to_builtins(event)) for event, _ in changes(before, now)]


def between(before: str | RankView, now: str | RankView) -> dict[str, dict[str, Any]]:
    views = [STATES[one] if isinstance(one, str) else one for one in (before, now)]
    first, second = (b.snapshot(view) for view in views)
    found = changed(first, second)
    assert len({kind for kind, _ in found}) == len(found), found
    return dict(found)


def test_an_unchanged_snapshot_makes_no_event() -> None:
    for state in STATES:
        assert between(state, state) == {}


def test_every_event_and_each_of_its_keys_has_a_description() -> None:
    schemas = definitions(*EVENTS.values(), ref_template="{name}")
    assert EVENTS.keys() == {"snapshot", "reset", "sample", "stopping", *KINDS}
    for type in EVENTS.values():
        schema = schemas[type.__name__]
        assert schema["description"]
        assert all(key["description"] for key in schema["properties"].values())


def test_a_new_run_is_reported_with_its_rank_and_a_removed_run_by_name() -> None:
    nothing = b.snapshot()
    came = dict(changed(nothing, b.snapshot(STATES["starting"])))
    assert came.keys() == {"attached", "state", "run"}
    assert (came["run"]["state"], came["run"]["before"]) == ("starting", None)
    (gone,) = changed(b.snapshot(STATES["finished"]), nothing)
    assert gone == ("gone", {"at": b.EPOCH, "run": "gpt2"})


def test_compiling_starts_with_the_name_of_the_function() -> None:
    starting = replace(b.STARTING, header=b.COMPILING.header)
    found = between(b.view(starting), "compiling")
    assert found.keys() == {"state", "compile_begin", "run"}
    assert found["compile_begin"]["phase"] == "inductor"
    assert (found["run"]["compiling"], found["run"]["warm"]) == (True, False)
    assert found["state"]["summary"].startswith(f"gpt2: {b.head(STATES['compiling'])}")


def test_a_recompile_between_two_polls_is_inferred_from_its_traces() -> None:
    counts = b.WARM.compile
    again = replace(
        b.WARM,
        compile=replace(
            counts,
            warmups=2,
            phase_ns=tuple(ns + 10**8 for ns in counts.phase_ns),
        ),
    )
    found = changed(b.snapshot(STATES["warm"]), b.snapshot(b.view(again)))
    assert [kind for kind, _ in found] == ["compile_begin", "compile_end", "reopened", "warm"]


@pytest.mark.parametrize("state", ["finished", "failed", "lost"])
def test_an_end_is_reported_with_its_cause(state: str) -> None:
    found = between("compiling" if state == "lost" else "warm", state)
    assert found["ended"]["end"]["how"] is not None
    assert "warm" not in found
    assert "reopened" not in found


def events(recent: Recent, number: int, run: str | None = None) -> list[dict[str, str]]:
    _, found = recent.after(number, Wanted(run))
    parsed = [line.split(": ", 1) for one in found for line in one.decode().splitlines() if line]
    return [dict(parsed[at : at + 3]) for at in range(0, len(parsed), 3)]


def fed(*states: str) -> Recent:
    recent = Recent()
    recent.life = "life"
    for state in states:
        recent.take(b.snapshot(STATES[state]))
    return recent


def test_event_kinds_can_be_selected() -> None:
    recent = fed("warm", "recompiling", "warm")
    number, found = recent.after(0, Wanted(kinds=frozenset(("run", "gone"))))
    assert [event.split(b"\n", 1)[0] for event in found] == [b"event: run"] * 2
    assert number == recent.number


def test_the_ring_is_bounded_and_reports_lost_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmwatch_monitor.server.api.changes.MOST", 10)
    recent = fed(*("warm", "recompiling") * 20)
    assert len(events(recent, recent.number - 10)) == 10
    with pytest.raises(ForgottenError, match="too_old"):
        recent.after(recent.number - 11, Wanted())
    monkeypatch.undo()
    monkeypatch.setattr("warmwatch_monitor.server.api.changes.MOST_BYTES", 4000)
    small = fed(*("warm", "recompiling") * 20)
    assert sum(map(len, small.after(small.number - 2, Wanted())[1])) <= 4000
    with pytest.raises(ForgottenError):
        small.after(0, Wanted())


@pytest.mark.parametrize("id", ["other-1", "1", "", "life-", "life--1", "life-9999", "life-1e3"])
def test_an_unknown_id_belongs_to_another_daemon(id: str) -> None:
    with pytest.raises(ForgottenError, match="another_daemon"):
        fed("warm", "recompiling").number_of(id)


def test_runs_that_are_temporarily_unreadable_are_not_removed() -> None:
    recent = fed("warm")
    recent.take(b.snapshot(sources=(replace(b.HEALTH, up=False, error="gone"),)))
    recent.take(b.snapshot(STATES["recompiling"]))
    kinds = [one["event"] for one in events(recent, 0)]
    assert kinds[0] == "source"
    assert "gone" not in kinds
    assert "attached" not in kinds
    assert "reopened" in kinds
