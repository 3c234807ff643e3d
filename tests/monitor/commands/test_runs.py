"""``warmwatch runs``, how a run is named, and what commands remember where no daemon runs."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from support import stored_runs as a
from support.daemon import completed, daemon_process
from support.filesystems import NotHereError, full, mounted
from support.records import ended, environment, warm, write_record
from support.stored_runs import BEGAN
from warmwatch_monitor.base.errors import NotInHistoryError
from warmwatch_monitor.history.finding import find
from warmwatch_monitor.history.store import Store


def warmwatch(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return completed(*words, env=environment(TZ="UTC", **variables))


def filled(directory: Path) -> Store:
    store = a.store(directory)
    now = time.time()
    store.save(
        [
            a.run_summary("aaaaaaaa", began=now - 7200, ended=now - 3600, seen=now - 3599),
            a.run_summary(
                "bbbbbbbb", began=now - 600, ended=now - 500, seen=now - 499, state="failed"
            ),
            a.living("bbcccccc", began=now - 300, seen=now - 290, run="bert", host="node2"),
        ]
    )
    return store


# The command.


def test_it_lists_runs_newest_first_within_80_columns(tmp_path: Path) -> None:
    filled(tmp_path)
    done = warmwatch("runs", WARMWATCH_STATE=str(tmp_path), COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = done.stdout.splitlines()
    assert header.split()[:5] == ["id", "run", "state", "began", "took"]
    assert [row.split()[:3] for row in rows[:3]] == [
        ["bbcccccc", "bert", "warm?"],
        ["bbbbbbbb", "gpt2", "failed"],
        ["aaaaaaaa", "gpt2", "finished"],
    ]
    assert rows[3] == "?: the last known state of a run whose end no program observed"
    assert rows[4] == f"3 runs, in {tmp_path}/history.db"
    assert all(len(row) <= 80 for row in (header, *rows[:4]))


def test_filters_select_runs_and_json_has_every_field(tmp_path: Path) -> None:
    filled(tmp_path)

    def chosen(*words: str) -> list[str]:
        done = warmwatch("runs", "--json", *words, WARMWATCH_STATE=str(tmp_path))
        answer = json.loads(done.stdout)
        assert answer["database"] == f"{tmp_path}/history.db"
        return [one["id"] for one in answer["runs"]]

    assert chosen() == ["bbcccccc", "bbbbbbbb", "aaaaaaaa"]
    assert chosen("--name", "gp*", "--state", "finished") == ["aaaaaaaa"]
    assert chosen("--host", "node2") == ["bbcccccc"]
    assert chosen("--since", "30m") == ["bbcccccc", "bbbbbbbb"]
    assert chosen("--since", "2099-01-01") == []
    assert chosen("--limit", "1") == ["bbcccccc"]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ((), 0, "no run yet in .*history.db\nstart `warmwatch serve` and a training"),
        (("--name", "x"), 5, "no such run in .*history.db"),
        (("--state", "finnished"), 2, "'finnished' is no state; did you mean finished?"),
        (("--since", "yesterday"), 2, "'yesterday' is neither a day .* nor a time until now"),
    ],
)
def test_an_empty_history_comes_with_advice(
    tmp_path: Path, words: tuple[str, ...], code: int, expected: str
) -> None:
    done = warmwatch("runs", *words, WARMWATCH_STATE=str(tmp_path))
    assert done.returncode == code
    assert re.search(expected.replace("?", "[?]"), done.stdout + done.stderr)
    assert not list(tmp_path.iterdir()), "who only reads makes nothing"


def test_a_disabled_or_broken_history_is_reported(tmp_path: Path) -> None:
    off = warmwatch("runs", WARMWATCH_STATE="off")
    assert (off.returncode, "WARMWATCH_STATE is off; unset it" in off.stderr) == (2, True)
    (tmp_path / "history.db").write_text("something else" * 100)
    broken = warmwatch("runs", WARMWATCH_STATE=str(tmp_path))
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "is damaged" in broken.stderr
    assert len(broken.stderr.splitlines()) == 1


def test_a_python_without_sqlite_has_no_history_and_everything_else_works(
    memory: Path, tmp_path: Path
) -> None:
    """As some builds of Python are."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['_sqlite3'] = None\n")
    environ = {"PYTHONPATH": str(tmp_path), "WARMWATCH_STATE": str(tmp_path / "state")}
    write_record(memory, ended(warm(), "finished"))
    for command in ("status", "report"):
        done = warmwatch(command, WARMWATCH_DIR=str(memory), **environ)
        assert (done.returncode, "gpt2: finished" in done.stdout, done.stderr) == (0, True, "")
    done = warmwatch("runs", **environ)
    assert (done.returncode, done.stdout) == (1, "")
    expected = "warmwatch: there is no history: this Python was built without SQLite (it has no"
    assert done.stderr.startswith(expected)
    with daemon_process("--dir", str(memory), **environ) as (process, url):
        with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
            assert "history" not in {one["source"] for one in json.load(reply)["sources"]}
        process.terminate()
        assert process.stderr is not None
        assert process.stderr.readline().startswith(expected)


def test_a_run_that_ctrl_c_ended_is_interrupted_and_in_the_state_finished(
    memory: Path, tmp_path: Path
) -> None:
    write_record(memory, ended(warm(), "interrupted"))
    environ = {"WARMWATCH_DIR": str(memory), "WARMWATCH_STATE": str(tmp_path / "state")}
    document = json.loads(warmwatch("runs", "--json", **environ).stdout)
    assert [(one["state"], one["end"]) for one in document["runs"]] == [("finished", "interrupted")]
    assert warmwatch("runs", "--state", "detached", **environ).returncode == 5
    for options in ((), ("--state", "finished"), ("--state", "interrupted")):
        _, row, _ = warmwatch("runs", *options, **environ).stdout.splitlines()
        assert row.split()[1:3] == ["gpt2", "interrupted"]
    for command in (("status",), ("report",), ("report", "--markdown")):
        assert "gpt2: interrupted after" in warmwatch(*command, **environ).stdout
    write_record(memory, ended(warm("other"), "finished"), name="other")
    table = warmwatch("compare", "gpt2", "other", **environ).stdout
    assert re.search(r"^ +state +interrupted +finished$", table, re.MULTILINE)


def test_by_default_the_history_is_in_the_users_state_directory(tmp_path: Path) -> None:
    home = str(tmp_path)
    for variables, place in (
        ({"HOME": home, "XDG_STATE_HOME": ""}, f"{home}/.local/state/warmwatch/history.db"),
        ({"HOME": home, "XDG_STATE_HOME": f"{home}/x"}, f"{home}/x/warmwatch/history.db"),
        ({"HOME": home, "XDG_STATE_HOME": "x"}, f"{home}/.local/state/warmwatch/history.db"),
    ):
        assert place in warmwatch("runs", **{"WARMWATCH_STATE": "", **variables}).stdout


# How a run is named.


def test_a_run_is_found_by_id_name_or_position(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert find(store, "aaaaaaaa").id == "aaaaaaaa"
    assert find(store, "aa").id == "aaaaaaaa"
    assert find(store, "gpt2").id == "bbbbbbbb"
    assert find(store, "gpt2~1").id == "aaaaaaaa"
    assert find(store, "gp*").id == "bbbbbbbb"
    assert find(store, "bert~0").id == "bbcccccc"


def test_a_name_is_the_users_own_run_before_anothers(tmp_path: Path) -> None:
    store = a.store(tmp_path)
    store.save(
        [a.run_summary("own", run="gpt2"), a.run_summary("bobs", run="gpt2@bob", owner="bob")]
    )
    store.save([a.run_summary("later", run="bert@bob", owner="bob", began=BEGAN + 9)])
    assert find(store, "gpt2").id == "own"
    assert find(store, "gpt2@bob").id == "bobs"
    assert find(store, "bert").id == "later"


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("gpt22", "no run 'gpt22' in the history; did you mean gpt2?"),
        ("bb", "'bb' is the prefix of several ids: bbcccccc (bert), bbbbbbbb (gpt2); give a"),
        ("gpt2~2", "the history has fewer runs named 'gpt2'; warmwatch runs --name 'gpt2'"),
        ("zzz", "no run 'zzz' in the history; `warmwatch runs` lists them"),
        ("", "no run '' in the history"),
    ],
)
def test_an_unknown_name_is_answered_with_similar_ones(
    tmp_path: Path, run: str, expected: str
) -> None:
    with pytest.raises(NotInHistoryError) as found:
        find(filled(tmp_path), run)
    assert str(found.value).startswith(expected)


def test_an_empty_history_explains_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(NotInHistoryError, match=r"the history in .*history\.db has no runs; `warm"):
        find(a.store(tmp_path), "gpt2")


# What commands remember.


def test_a_full_disk_is_reported_and_status_still_answers(memory: Path, tmp_path: Path) -> None:
    write_record(memory, ended(warm(), "finished"))
    try:
        with mounted("tmpfs") as disk:
            place = {"WARMWATCH_STATE": str(disk.place / "state")}
            with full(disk, tmp_path):
                done = warmwatch("status", "--dir", str(memory), **place)
                assert (done.returncode, done.stdout[:14]) == (0, "gpt2: finished")
                assert "disk is full" in done.stderr or "no space left" in done.stderr
            again = warmwatch("status", "--dir", str(memory), **place)
            assert again.stderr == ""
            assert len(a.store(disk.place / "state").listed()) == 1
    except NotHereError as error:
        pytest.skip(str(error))


def test_a_read_only_home_is_read_and_not_written(memory: Path, tmp_path: Path) -> None:
    write_record(memory, ended(warm(), "finished"))
    try:
        with mounted("tmpfs") as disk:
            a.store(disk.place).save([a.run_summary("abcdefgh")])
            subprocess.run(["mount", "-o", "remount,ro", disk.place], check=True)
            place = {"WARMWATCH_STATE": str(disk.place)}
            done = warmwatch("status", "--dir", str(memory), **place)
            assert (done.returncode, done.stdout[:14]) == (0, "gpt2: finished")
            assert done.stderr.startswith("warmwatch: not written to the history: ")
            listed = warmwatch("runs", **place)
            assert (listed.returncode, listed.stderr) == (0, "")
            assert listed.stdout.splitlines()[1].startswith("abcdefgh")
    except NotHereError as error:
        pytest.skip(str(error))
