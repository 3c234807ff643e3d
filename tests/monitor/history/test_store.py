"""The history database: summaries are read back unchanged, writers are safe, size is bounded."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from support import stored_runs as a
from support.reported import SLOWER
from support.stored_runs import BEGAN
from support.users import MALLORY
from warmwatch_monitor.base import settings
from warmwatch_monitor.base.errors import StoreError
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.history import database
from warmwatch_monitor.history.database import VERSION
from warmwatch_monitor.history.earlier_runs import earlier
from warmwatch_monitor.history.keeper import write_ended
from warmwatch_monitor.history.listing import RunQuery
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.records import Death
from warmwatch_monitor.model.run_summary import Provenance, RunSummary


def loaded(store: Store, id: str = "abcdefgh") -> RunSummary:
    found = store.load(id)
    assert found is not None
    return found


def rows(directory: Path, question: str) -> list[tuple[object, ...]]:
    """As any SQLite tool has them."""
    connection = sqlite3.connect(directory / "history.db")
    try:
        return connection.execute(question).fetchall()
    finally:
        connection.close()


def test_a_stored_summary_is_read_back_unchanged(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    whole = a.run_summary(
        ranks=(a.rank(samples=a.samples(), left_out=7), a.rank(1, compiled=())),
        gpu_samples={"GPU-1": a.samples()},
        owner=None,
    )
    store.save([whole])
    assert loaded(store) == whole


def test_the_later_summary_wins_and_an_end_is_final(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save([a.living()])
    store.save([a.living(seen=BEGAN + 10, summary="before")])
    assert loaded(store).summary == "gpt2: finished after 500 steps"
    store.save([a.run_summary()])
    store.save([a.living(seen=BEGAN + 99, state="warm")])
    assert loaded(store).state == "finished"
    lost = replace(a.run_summary(), state="lost", seen=BEGAN + 100)
    store.save([lost])
    assert loaded(store).state == "lost"
    store.save([a.living(seen=BEGAN + 101)])
    assert loaded(store).state == "warm", "it lives after all, so no loss was recorded"


def test_a_process_that_attaches_again_continues_after_the_end(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save([a.run_summary()])
    again = a.rank(answer=a.answer(attached_at=BEGAN + 50, state="warm"))
    store.save([a.living(seen=BEGAN + 99, ranks=(again,))])
    assert loaded(store).state == "warm"


def test_facts_that_only_a_daemon_measures_survive_a_later_write_by_a_command(
    tmp_path: Path,
) -> None:
    store = a.store(tmp_path)
    measured = {"compile_joules": 900.0, "covered_seconds": 18.0, "joules_per_clean_step": 12.0}
    rank = a.rank(answer=a.answer(energy=measured), samples=a.samples())
    what = Provenance(driver="580.1", torch="2.13.0", gpus=("H100",))
    gpus = {"GPU-1": a.samples()}
    store.save([a.living(ranks=(rank,), what=what, gpu_samples=gpus)])
    store.save([a.run_summary(ranks=(a.rank(compiled=()),))])
    found = loaded(store)
    assert found.state == "finished"
    assert found.ranks[0].answer["energy"] == measured
    assert found.ranks[0].samples == a.samples()
    assert found.ranks[0].compiled == a.COMPILED, "its record was gone by then"
    assert (found.what.driver, found.what.wrappings[0].mode) == ("580.1", "max-autotune")
    assert found.gpu_samples == gpus


def test_a_later_write_keeps_builds_that_only_an_earlier_daemon_saw(tmp_path: Path) -> None:
    store = a.store(tmp_path)

    def compile(seconds: float, outside: float | None) -> dict[str, Any]:
        spent = {"inductor": 18.0} if outside is None else {"inductor": 18.0, "outside": outside}
        return {"seconds": seconds, "compilations": 2, "recompiles": 1, "phase_seconds": spent}

    def save(summary: Any, **known: Any) -> dict[str, Any]:
        rank = a.rank(answer=a.answer(compile=compile(**known)))
        store.save([replace(summary, ranks=(rank,))])
        (found,) = loaded(store).ranks
        return dict(found.answer["compile"])

    save(a.living(), seconds=26.0, outside=8.0)
    assert save(a.living(seen=BEGAN + 9), seconds=20.0, outside=2.0) == compile(26.0, 8.0)
    assert save(a.run_summary(), seconds=18.0, outside=None) == compile(26.0, 8.0)
    assert save(a.run_summary(), seconds=30.0, outside=12.0) == compile(30.0, 12.0)


UNSEEN = {"began_at": None, "since_step": None}
LASTING = {"ended_at": None, "until_step": None}
EARLIER = {**SLOWER, **UNSEEN}
UNMEASURED = {**SLOWER, "causes": None}
LATER = {**SLOWER, "since_step": 500, "until_step": 999}


@pytest.mark.parametrize(
    ("daemon", "command", "found"),
    [
        ([SLOWER], [{**SLOWER, **UNSEEN, "ratio": 2.0}], [SLOWER]),
        ([SLOWER], [{**LATER, **UNSEEN}], [SLOWER, {**LATER, **UNSEEN}]),
        ([{**LATER, **LASTING}], [{**LATER, **UNSEEN, "ratio": 2.0}], [LATER]),
        ([{**LATER, **LASTING}], [LATER], [LATER]),
        ([SLOWER], [SLOWER, {**LATER, **LASTING}], [SLOWER, {**LATER, **LASTING}]),
        ([SLOWER], [], [SLOWER]),
        ([{**LATER, **LASTING, "before": 0.024}], [], [{**LATER, **LASTING, "before": 0.024}]),
        ([{**LATER, **LASTING, "before": 0.025}], [], []),
        ([{**LATER, **LASTING}], [{**LATER, "causes": []}], [LATER]),
        ([EARLIER], [{**EARLIER, "causes": []}], [EARLIER]),
        ([EARLIER], [{**EARLIER, "causes": None}], [EARLIER]),
        ([UNMEASURED], [{**UNMEASURED, "causes": []}], [{**UNMEASURED, "causes": []}]),
        (
            [{**SLOWER, **LASTING}],
            [SLOWER, {**LATER, **LASTING, "causes": []}],
            [SLOWER, {**LATER, **LASTING, "causes": []}],
        ),
        ([EARLIER], [LATER], [EARLIER, LATER]),
        ([EARLIER], [{**EARLIER, "ratio": 2.0}], [{**EARLIER, "ratio": 2.0}]),
        ([{**EARLIER, **LASTING}], [{**LATER, **UNSEEN}], [{**LATER, **UNSEEN}]),
        ([{**EARLIER, **LASTING, "before": 0.024}], [], [{**EARLIER, **LASTING, "before": 0.024}]),
    ],
)
def test_slowdowns_that_a_daemon_saw_survive_a_later_write_by_a_command(
    tmp_path: Path, daemon: list[Any], command: list[Any], found: list[Any]
) -> None:
    store = a.store(tmp_path)
    steps = {"median": 0.03, "recent": 0.037}
    for known in (daemon, command):
        store.save(
            [
                a.run_summary(
                    ranks=(a.rank(answer=a.answer(slower_periods=known, step_seconds=steps)),)
                )
            ]
        )
    assert loaded(store).ranks[0].answer["slower_periods"] == found


@pytest.mark.parametrize(
    "damaged",
    ["5", '{"signal": 9}', b"\xff", '{"x":' + "[" * 100_000],
    ids=["number", "incomplete", "binary", "nested"],
)
def test_a_damaged_signal_hides_no_other(tmp_path: Path, damaged: str | bytes) -> None:
    store, death = a.store(tmp_path), Death(signal=6, at_ns=10)
    for id in ("whole", "damaged"):
        store.save([a.run_summary(id, start=id, ranks=(a.rank(death=death),))])
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE ranks SET death = ? WHERE id = 'damaged'", (damaged,))
    assert {start for start, *_ in store.seen()} == {"whole"}
    with pytest.raises(StoreError, match="damaged"):
        store.load("damaged")


def test_a_flood_of_one_user_evicts_no_run_of_another(tmp_path: Path) -> None:
    store = Store(a.history_settings(tmp_path, runs=4))
    store.save(a.run_summary(f"honest{n}", owner="alice", seen=BEGAN + n) for n in range(2))
    store.save(
        a.run_summary(f"flood{n}", owner="mallory", seen=BEGAN + 1_000 + n) for n in range(9)
    )
    assert {one.id for one in store.listed()} == {"honest0", "honest1", "flood7", "flood8"}


def test_the_oldest_runs_are_removed_above_the_limit(tmp_path: Path) -> None:
    store = Store(a.history_settings(tmp_path, runs=3))
    store.save(a.run_summary(str(n), seen=BEGAN + n) for n in range(5))
    assert {one.id for one in store.listed()} == {"2", "3", "4"}
    assert rows(tmp_path, "SELECT DISTINCT id FROM compilations ORDER BY id") == [
        ("2",),
        ("3",),
        ("4",),
    ]


def test_runs_older_than_the_retention_are_removed(tmp_path: Path) -> None:
    store = Store(a.history_settings(tmp_path, days=2))
    now = time.time()
    store.save([a.run_summary("old", seen=now - 3 * 86400)])
    store.save(a.run_summary(f"new{n}", seen=now - n) for n in range(20))
    assert "old" not in {one.id for one in store.listed()}
    assert store.count() == 20


def test_an_oversized_file_is_reduced_to_its_limit(tmp_path: Path) -> None:
    store = Store(a.history_settings(tmp_path, megabytes=1))
    text = "x" * 20_000
    for batch in range(4):
        store.save(
            a.run_summary(f"{batch}-{n}", seen=BEGAN + batch, summary=text) for n in range(40)
        )
    assert (tmp_path / "history.db").stat().st_size <= 1_100_000
    stored = {one.id.partition("-")[0] for one in store.listed()}
    assert "3" in stored
    assert "0" not in stored


WRITE = """
import sys
from contextlib import closing
from pathlib import Path
from support import stored_runs as a
store = a.store(Path(sys.argv[1]), patience=60.0)
for n in range(25):
    store.save([a.run_summary(f"{sys.argv[2]}{n}"), a.run_summary("shared", seen=a.BEGAN + n)])
"""
DIE = """
import os, signal, sys
from contextlib import closing
from pathlib import Path
from support import stored_runs as a
from warmwatch_monitor.history import store
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
store._delete_renamed = die
a.store(Path(sys.argv[1])).save([a.run_summary(summary="half")])
"""


HALF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/history.db", isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # so that it is written before it is whole
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE runs SET summary = ?", ("half" * 50_000,))
os.kill(os.getpid(), signal.SIGKILL)
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True, env=environ
    )


def test_two_concurrent_writers_lose_no_run(tmp_path: Path) -> None:
    writers = [python(WRITE, str(tmp_path), name) for name in ("a", "b")]
    for one in writers:
        _, errors = one.communicate()
        assert one.returncode == 0, errors
    assert a.store(tmp_path).count() == 51
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]


def test_a_writer_killed_during_a_write_leaves_the_previous_content(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save([a.living(summary="whole")])
    killed = python(DIE, str(tmp_path))
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert loaded(store).summary == "whole"
    store.save([a.run_summary("another1")])
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]


def test_a_reader_finds_complete_data_after_a_writer_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "shares_memory", lambda _: False)  # as on a server
    store = a.store(tmp_path)
    store.save([a.run_summary(summary="whole")])
    python(HALF, str(tmp_path)).communicate()
    assert (tmp_path / "history.db-journal").stat().st_size
    assert loaded(store).summary == "whole"


def test_a_run_whose_compilation_was_turned_off_is_listed_as_eager(tmp_path: Path) -> None:
    one = a.run_summary()
    off = replace(one, what=replace(one.what, disabled="environment"))
    a.store(tmp_path).save([off])
    assert rows(tmp_path, "SELECT mode FROM runs") == [("eager",)]


def test_two_writers_can_create_the_database_at_the_same_moment(tmp_path: Path) -> None:
    """SQLite refuses one of them at once, in one of some twenty attempts."""
    together = threading.Barrier(2)

    def created(directory: Path) -> None:
        together.wait()
        a.store(directory).save([a.run_summary()])

    with ThreadPoolExecutor(2) as pool:
        for attempt in range(60):
            directory = tmp_path / str(attempt)
            for writer in [pool.submit(created, directory) for _ in range(2)]:
                writer.result()
            assert rows(directory, "SELECT id FROM runs") == [("abcdefgh",)]


@pytest.mark.parametrize("version", [VERSION + 1, -1])
def test_a_database_of_another_version_is_refused_with_a_message(
    tmp_path: Path, version: int
) -> None:
    a.store(tmp_path).save([a.run_summary()])
    rows(tmp_path, f"PRAGMA user_version = {version}")
    expected = rf"another warmwatch .version {version}, supported: {VERSION}.; install"
    for use in (lambda: a.store(tmp_path).listed(), lambda: a.store(tmp_path).save([])):
        with pytest.raises(StoreError, match=expected) as refused:
            use()
        assert refused.value.__traceback__, "whose frames hold what was not closed"
        open_files = [one.path for one in psutil.Process().open_files()]
        assert not [path for path in open_files if path.startswith(str(tmp_path))]


def test_selected_runs_are_listed_newest_first(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save(
        [
            a.run_summary("one", began=BEGAN),
            a.run_summary("two", began=BEGAN + 100, run="bert", state="failed", seen=BEGAN + 200),
            a.run_summary("three", began=BEGAN + 50, run="gpt2@bob", owner="bob", host="node2"),
        ]
    )

    def ids(**wanted: object) -> list[str]:
        return [one.id for one in store.listed(RunQuery(**wanted))]  # type: ignore[arg-type]

    assert ids() == ["two", "three", "one"]
    assert ids(name="gpt*") == ["three", "one"]
    assert ids(name="[!b]*2") == ["three", "one"]
    assert ids(name="gpt2@*") == ["three"]
    assert ids(host="node2") == ["three"]
    assert ids(state="failed") == ["two"]
    assert ids(since=BEGAN + 199) == ["two"]
    assert ids(limit=1, skip=1) == ["three"]
    assert store.count(RunQuery(limit=1)) == 3


# Errors of the database file: each has a message with a remedy.


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 999])
def test_a_damaged_file_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "history.db").write_bytes(content)
    for use in (
        lambda: a.store(tmp_path).listed(),
        lambda: a.store(tmp_path).save([a.run_summary()]),
    ):
        with pytest.raises(
            StoreError, match=r"is damaged .*; move it away, and a new one is created"
        ):
            use()
    assert (tmp_path / "history.db").read_bytes() == content


@pytest.mark.parametrize("column", ["ranks DROP COLUMN outside", "compilations DROP COLUMN what"])
def test_a_table_of_another_form_is_reported(tmp_path: Path, column: str) -> None:
    store = a.store(tmp_path)
    store.save([a.run_summary()])
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(f"ALTER TABLE {column}")
    with pytest.raises(StoreError, match=r"has another form; move it away, and a new one"):
        store.save([a.run_summary("later")])
    if "compilations" in column:
        with pytest.raises(StoreError, match=r"has another form; move it away, and a new one"):
            store.load("abcdefgh")


def test_foreign_values_are_reported(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save([a.run_summary()])
    connection = sqlite3.connect(tmp_path / "history.db")
    with connection:
        connection.execute("UPDATE ranks SET answer = '['")
    connection.close()
    with pytest.raises(StoreError, match="has content that warmwatch did not write"):
        store.load("abcdefgh")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("runs SET began = 'x'", "Expected `float`, got `str` - at `$.began`"),
        ("runs SET ended = 9e999", "`$.ended`"),
        ("runs SET state = 'odd'", "'odd' is not a valid State"),
        ("ranks SET answer = '{\"energy\": 1}'", "`$.energy`"),
        ("compilations SET ended = 'x'", "`$.ranks[0].compiled[0].ended`"),
        ("compilations SET what = '{\"again\": 1}'", "`$.ranks[0].compiled[0].again`"),
        ("compilations SET what = '[]'", "Expected `object`, got `array`"),
        ("samples SET after = '[]'", "columns of different lengths"),
        ("samples SET began = 'x'", "can only concatenate str"),
    ],
)
def test_a_damaged_row_is_named_and_does_not_hide_other_rows(
    tmp_path: Path, damage: str, expected: str
) -> None:
    store = a.store(tmp_path)
    store.save([a.run_summary("one", ranks=(a.rank(samples=a.samples()),)), a.run_summary("two")])
    connection = sqlite3.connect(tmp_path / "history.db")
    with connection:
        connection.execute(f"UPDATE {damage} WHERE id = 'one'")
    connection.close()
    with pytest.raises(
        StoreError, match=r"has content that warmwatch did not write: run 'one': "
    ) as reported:
        store.load("one")
    assert expected in str(reported.value)
    with pytest.raises(StoreError, match=r"\(one\) cannot be stored: run 'one': "):
        store.save([a.run_summary("one", seen=a.BEGAN + 99), a.run_summary("three")])
    found_ids = {one.id for one in store.summaries(["one", "two", "three"])}  # without samples
    assert found_ids - {"one"} == {"two", "three"}
    assert ("one" in found_ids) == ("samples" in damage)
    assert "samples" not in damage or store.samples("one") == ({}, {})
    now = a.run_summary("now", began=a.BEGAN + 60)
    assert {one.id for one in earlier(store, now)} >= {"two", "three"}


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match=r"state cannot be used .*; set WARMWATCH_STATE to a dir"):
        a.store(tmp_path / "state").save([])


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a.store(tmp_path)
    store.save([a.run_summary()])
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for use in (store.listed, lambda: store.save([])):
        with pytest.raises(StoreError, match="is another user's; set WARMWATCH_STATE to a direct"):
            use()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read another user's file")
def test_root_reads_the_history_of_the_service_and_never_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = a.store(tmp_path)
    own.save([a.run_summary(id="aaaaaaaa")])
    assert not own.is_read_only
    for file in (tmp_path, *tmp_path.iterdir()):
        os.chown(file, 12345, 12345)
    assert [one.id for one in own.listed()] == ["aaaaaaaa"]
    assert own.is_read_only
    with pytest.raises(StoreError, match="is another user's"):
        own.save([])
    write_ended([], a.history_settings(tmp_path))
    assert {file.stat().st_uid for file in tmp_path.iterdir()} == {12345}
    monkeypatch.setattr(settings, "SERVICE_STATE", str(tmp_path))
    assert load_history_settings({"HOME": "/h"}).directory == str(tmp_path)
    for_daemon = load_history_settings({"HOME": "/h"}, daemon=True)
    assert for_daemon.directory == "/h/.local/state/warmwatch"


def test_root_creates_no_file_in_the_home_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example under sudo, which may preserve HOME."""
    default = replace(a.history_settings(tmp_path / ".local" / "state" / "warmwatch"), chosen=False)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(StoreError, match="would be in another user's"):
        Store(default).save([])
    assert not list(tmp_path.iterdir())
    (place := Path(str(default.directory))).mkdir(parents=True)
    with pytest.raises(StoreError, match="would be in another user's"):
        Store(default).save([])
    assert not list(place.iterdir()), "a file of root's, which its owner could never write to"


def test_a_busy_writer_is_awaited_and_then_reported(tmp_path: Path) -> None:
    a.store(tmp_path).save([a.run_summary()])
    other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="is being written by another program; will retry"):
        a.store(tmp_path, patience=0.05).save([a.run_summary()])
    other.execute("ROLLBACK")
    other.close()
    a.store(tmp_path, patience=0.05).save([a.run_summary()])


def test_an_end_is_stored_even_if_the_clock_was_set_back(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save([a.living(seen=BEGAN + 3600)])
    store.save([a.run_summary()])
    assert (loaded(store).state, loaded(store).ended) == ("finished", BEGAN + 40)


@pytest.mark.parametrize("ending", ["-journal", "-wal"])
def test_a_pipe_in_place_of_a_sqlite_side_file_does_not_block(tmp_path: Path, ending: str) -> None:
    a.store(tmp_path).save([a.run_summary()])
    beside = tmp_path / f"history.db{ending}"
    beside.unlink(missing_ok=True)
    os.mkfifo(beside)
    for act in (
        lambda: a.store(tmp_path).listed(),
        lambda: a.store(tmp_path).save([a.run_summary()]),
    ):
        with pytest.raises(
            StoreError, match=f"history.db{ending} is not a regular file; remove it"
        ):
            act()


def test_a_link_in_place_of_the_database_creates_no_other_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (tmp_path / "history.db").symlink_to(other)
    with pytest.raises(StoreError, match="is a link to a file that does not exist; remove it"):
        a.store(tmp_path).save([a.run_summary()])
    assert not other.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_user_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    other = a.store(tmp_path / "other")
    other.save([])
    link = tmp_path / "history.db"
    link.symlink_to(tmp_path / "other" / "history.db")
    os.lchown(link, MALLORY, MALLORY)
    with pytest.raises(StoreError, match=f"is a link of user {MALLORY}; set WARMWATCH_STATE"):
        a.store(tmp_path).save([a.run_summary()])
