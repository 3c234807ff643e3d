"""The daemon's history writer: live and ended runs are stored even after failures."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support import stored_runs as a
from support.daemon import daemon_process
from support.nvml.clock import Time
from support.records import compiling, ended, held, update, wait_until, warm, write_record
from support.values import replace
from warmwatch_monitor.base.errors import SourceError
from warmwatch_monitor.history import keeper as keepers
from warmwatch_monitor.history.keeper import Keeper
from warmwatch_monitor.history.traces import TRACED_OF_RANK, Trace
from warmwatch_monitor.last_hour.ring import LastHour
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.model.snapshot import RunView, Snapshot


def remembered(directory: Path) -> list[RunSummary]:
    store = a.store(directory)
    found = (store.load(one.id) for one in store.listed())
    return [one for one in found if one is not None]


def seen(slot: Any, *, alive: bool = True, epoch: float = b.EPOCH) -> Snapshot:
    """A look at one run, whose record is none that is on a disk."""
    view = b.view(slot, alive=alive)
    return Snapshot(epoch=epoch, now_ns=b.NOW, runs=b.runs(view))


def test_a_live_run_is_written_immediately_then_every_minute_and_at_its_end(
    tmp_path: Path,
) -> None:
    time = Time()
    keeper = Keeper(a.store(tmp_path), LastHour(), time.clock())
    keeper.write_due()
    assert (tmp_path / "history.db").exists(), "what is wrong would show before a run ends"
    keeper.take(seen(b.COMPILING))
    keeper.write_due()
    assert [one.state for one in remembered(tmp_path)] == ["compiling"]
    keeper.take(seen(b.WARM, epoch=b.EPOCH + 1))
    time.passes(59)
    keeper.write_due()
    assert [one.state for one in remembered(tmp_path)] == ["compiling"]
    time.passes(2)
    keeper.write_due()
    assert [one.state for one in remembered(tmp_path)] == ["warm"]
    keeper.take(seen(b.ended("finished"), alive=False, epoch=b.EPOCH + 2))
    keeper.write_due()
    (found,) = remembered(tmp_path)
    assert (found.state, found.ended) == ("finished", pytest.approx(b.EPOCH - 12))


def test_a_failed_write_is_reported_and_retried(tmp_path: Path) -> None:
    time = Time()
    keeper = Keeper(a.store(tmp_path), LastHour(), time.clock())
    (tmp_path / "history.db").mkdir()
    keeper.take(seen(b.ended("finished"), alive=False))
    for _ in range(3):
        with pytest.raises(SourceError, match=r"history\.db is a directory"):
            keeper.write_due()
    (tmp_path / "history.db").rmdir()
    time.passes(6)
    keeper.write_due()
    assert [one.state for one in remembered(tmp_path)] == ["finished"]


def owned(uid: int, run: str, *, alive: bool = False) -> RunView:
    slot = b.WARM if alive else b.ended("finished")
    known = replace(slot.identity, run=run, launch=f"job:{run}")
    view = b.view(replace(slot, identity=known), alive=alive)
    who = replace(view.figures.who, owner_uid=uid)
    return b.runs(replace(view, figures=replace(view.figures, who=who)))[0]


def test_a_poll_writes_runs_within_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepers, "HISTORY_SECONDS", 0.0)  # one run a poll
    time = Time()
    keeper = Keeper(a.store(tmp_path), LastHour(), time.clock())
    runs = tuple(owned(1_000, f"run{number}") for number in range(6))
    keeper.take(Snapshot(epoch=b.EPOCH, now_ns=b.NOW, runs=runs))
    keeper.write_due()
    keeper.write_due()  # it pauses: what the first one took is its share of a longer time
    assert len(remembered(tmp_path)) == 1
    time.passes(60)
    keeper.write_due()
    assert {one.run for one in remembered(tmp_path)} == {"run0", "run1"}
    keeper.finish()
    assert len(remembered(tmp_path)) == 6


def test_a_long_run_is_stored_more_coarsely_and_loses_no_compile_time() -> None:
    trace = Trace(TRACED_OF_RANK, 100)
    for second in range(5_000):  # one step in each, after ten that compiled
        compiles = second < 10
        values = {
            "steps": second,
            "step_seconds": 0.5,
            "compile_seconds": float(compiles),
            "state": "compiling" if compiles else "warm",
            "phase": "inductor" if compiles else None,
        }
        trace.add(64_000.0 + second, values)
    found = trace.samples()
    assert found is not None
    assert found.seconds == 64.0
    assert 50 <= len(found.epochs) <= 100
    assert found.columns["steps"][-1] == 4_999
    assert found.columns["state"][0] == "compiling"
    assert found.columns["compile_seconds"][0] == pytest.approx(10 / 64)
    assert all(one == 0.5 for one in found.columns["step_seconds"])


# With a real daemon.


@contextmanager
def keeping(records: Path, state: Path) -> Iterator[tuple[Any, str]]:
    with daemon_process(
        "--dir", str(records), "--interval", "0.05", WARMWATCH_STATE=str(state)
    ) as found:
        yield found


def health(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
        sources: list[dict[str, Any]] = json.load(reply)["sources"]
    return next(one for one in sources if one["source"] == "history")


def states(state: Path) -> list[str]:
    return [one.state for one in a.store(state).listed()]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_daemon_stores_live_runs_when_it_is_terminated(memory: Path, state: Path) -> None:
    slot = compiling()
    folder = write_record(memory, slot)
    with held(folder), keeping(memory, state) as (process, url):
        wait_until(lambda: health(url)["up"] and states(state) == ["compiling"])
        update(folder, replace(warm(), header=slot.header))
        wait_until(lambda: _state(url) == "warm")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == 0
        assert states(state) == ["warm"]


def test_a_killed_daemon_loses_at_most_a_minute_and_continues_after_a_restart(
    memory: Path, state: Path
) -> None:
    slot = warm()
    folder = write_record(memory, slot)
    with held(folder) as training:
        with keeping(memory, state) as (process, url):
            wait_until(lambda: states(state) == ["warm"])
            process.kill()
            process.wait()
        update(folder, ended(slot, "finished"))
        training.kill()
        training.wait()
    with keeping(memory, state) as (_, url):
        wait_until(lambda: health(url)["up"] and states(state) == ["finished"])
    assert a.store(state).count() == 1


@pytest.mark.slow
def test_an_unwritable_history_is_only_a_failed_source(memory: Path, state: Path) -> None:
    write_record(memory, ended(warm(), "finished"))
    (state / "history.db").mkdir(parents=True)
    with keeping(memory, state) as (process, url):
        wait_until(lambda: "is a directory" in str(health(url)["error"]))
        wait_until(lambda: _state(url) == "finished")
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
            assert b'warmwatch_source_up{source="history"} 0' in reply.read()
        (state / "history.db").rmdir()
        wait_until(lambda: health(url)["up"] and states(state) == ["finished"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == 0
        assert process.stderr.read() == ""


def _state(url: str) -> str:
    with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
        runs = json.load(reply)["runs"]
    return str(runs[0]["state"]) if runs else ""
