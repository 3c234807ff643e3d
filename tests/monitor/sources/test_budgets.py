"""Budgets per user and in total: the effect of one user's flood on others, and the messages."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from support import builders as b
from support.documents import status
from support.records import ended, held, warm, write_record
from support.users import ALICE, MALLORY, shared
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.base.errors import NO_RECENT_RUN, UnknownRunError, UnreadRunError
from warmwatch_monitor.base.settings import Settings, parse_address
from warmwatch_monitor.client.choice import choose
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.model.snapshot import Snapshot, incomplete, why_left_out
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.sources.listed import RECORDS, Readings
from warmwatch_monitor.sources.records import directory as directories
from warmwatch_monitor.sources.records import source as records
from warmwatch_monitor.sources.records.folder import Folder, SlotFile
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
HEALTH = SourceHealth(source="records", up=True, last_success=b.EPOCH)


@pytest.fixture
def directory() -> Iterator[Path]:
    with shared() as made:
        yield made


def settings(path: Path) -> Settings:
    return Settings(
        directories=(str(path),),
        chosen=True,
        address=parse_address("address", "127.0.0.1:0"),
        gpu_interval=None,
        observe=False,
    )


class Turned:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def turn(self, seconds: float) -> None:
        self.ahead += seconds

    @property
    def clock(self) -> Clock:
        ahead = lambda: self.ahead  # noqa: E731
        return Clock(
            monotonic_ns=lambda: time.monotonic_ns() + round(ahead() * 1e9),
            epoch=lambda: time.time() + ahead(),
        )


def later(slot: Slot, seconds: int) -> Slot:
    """``slot`` of a process that attached so much later."""
    header = slot.header
    return replace(slot, header=replace(header, attached_ns=header.attached_ns + seconds * 10**6))


def forge(directory: Path, slot: Slot, name: str, uid: int = MALLORY) -> Path:
    folder = write_record(directory, slot, name=name)
    for path in (folder, *folder.iterdir()):
        os.chown(path, uid, uid)
    return folder


def names(found: RecordsReading) -> set[str]:
    return {Path(one.folder).name for one in found.records}


@root
def test_live_ranks_are_shown_first_if_not_all_fit(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SHOWN", 5)
    monkeypatch.setattr(records, "SHOWN_OF_A_USER", 3)
    living = forge(directory, warm("living"), "living")
    for number in range(6):
        forge(directory, warm(f"flood{number}"), f"flood{number}")
    for number in range(2):
        forge(directory, warm(f"alice{number}"), f"alice{number}", ALICE)
    source = RecordsSource([str(directory)], retention=900)
    with held(living):
        found = source.read()
    assert {"living", "alice0", "alice1"} <= names(found)
    assert len(found.records) == 5
    assert found.left_out == {"ranks": 4}
    assert not found.unread


def snapshot(**found: object) -> Snapshot:
    reading = RecordsReading(**found)  # type: ignore[arg-type]
    readings = Readings(values={RECORDS.name: reading})
    made = Assembly(settings(Path("/nowhere"))).make(readings, (HEALTH,), b.NOW, b.EPOCH)
    assert not made.problems
    return made.snapshot


def test_a_run_is_unknown_only_if_all_records_were_read() -> None:
    with pytest.raises(UnknownRunError, match=f"no run named 'gpt2'; {NO_RECENT_RUN}") as error:
        status(snapshot(), "gpt2")
    assert not isinstance(error.value, UnreadRunError)
    for found, why in (
        ({"unread": 7}, "not all records have been read yet (7 are left)"),
        (
            {"left_out": {"records": 3, "ranks": 2}, "crowded": True},
            "more users have records than an answer has room for (5 are left out)",
        ),
    ):
        made = snapshot(**found)
        assert str(incomplete(made)).startswith(why)
        assert status(made)["incomplete"] == incomplete(made)
        assert status(made)["summary"] == f"{incomplete(made)}; no run is known so far"
        with pytest.raises(UnreadRunError) as unread:
            status(made, "gpt2")
        assert unread.value.exit_code == 6
        assert str(unread.value).startswith(why)


def test_a_user_over_their_limit_blocks_no_other_user_s_answer() -> None:
    """The user's own run may be among what is left out; another user's is not there."""
    made = snapshot(left_out={"records": 3, "ranks": 2}, over=frozenset({MALLORY}))
    with pytest.raises(UnknownRunError) as error:
        status(made, "gpt2")
    assert not isinstance(error.value, UnreadRunError)
    answer = status(made)
    assert (answer["incomplete"], answer["left_out_uids"]) == (None, [MALLORY])
    with pytest.raises(UnknownRunError) as error:
        choose(answer, "gpt2", ALICE)
    assert error.value.exit_code == 5
    with pytest.raises(UnreadRunError, match="you have more records than an answer") as unread:
        choose(answer, "gpt2", MALLORY)
    assert unread.value.exit_code == 6


@root
def test_users_over_a_limit_are_named_and_what_the_total_leaves_out_is_reported(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records that are not followed, and of ranks that are not shown."""
    for number in range(100):
        forge(directory, warm(f"flood{number}"), f"flood{number}")
    forge(directory, warm("alice"), "alice", ALICE)
    for limit in ("SHOWN", "RECORDS"):
        with monkeypatch.context() as patch:
            patch.setattr(records, f"{limit}_OF_A_USER", 34)
            found = RecordsSource([str(directory)], retention=900).read()
            assert (found.over, found.crowded) == ({MALLORY}, False)
            assert "alice" in names(found)
            assert len(found.records) == 35
        with monkeypatch.context() as patch:
            patch.setattr(records, limit, 34)
            found = RecordsSource([str(directory)], retention=900).read()
            assert (len(found.records), found.crowded) == (34, True)


def test_an_omitted_run_is_unread_for_every_client() -> None:
    made = snapshot(left_out_runs=frozenset({(MALLORY, "gpt2")}), over=frozenset({MALLORY}))
    for name in ("gpt2", "gpt2@mallory"):
        with pytest.raises(UnreadRunError, match=f"user {MALLORY}, who has a run of that name"):
            status(made, name)
    assert why_left_out(made, "bert") is None
    assert (
        why_left_out(made, "bert", MALLORY) == "you have more records than an answer has room for"
    )


def test_an_omitted_record_returns_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then only its bytes and its lock are looked at."""
    monkeypatch.setattr(records, "SHOWN", 2)
    clock = Turned()
    for number in range(3):
        slot = later(warm(f"run{number}"), number)
        write_record(tmp_path, slot, name=f"{number}")
    source = RecordsSource([str(tmp_path)], retention=1e6, clock=clock.clock)
    assert names(source.read()) == {"1", "2"}
    whole = SlotFile.read
    unpacked: list[Folder] = []
    monkeypatch.setattr(SlotFile, "read", lambda s, f: unpacked.append(f) or whole(s, f))
    source._records[str(tmp_path / "1")].due_ns = source._records[str(tmp_path / "2")].due_ns = (
        2**62
    )
    clock.turn(11.0)
    assert names(source.read()) == {"1", "2"}
    assert unpacked == []
    shutil.rmtree(tmp_path / "2")
    clock.turn(11.0)
    source.read()
    clock.turn(11.0)
    assert names(source.read()) == {"0", "1"}


def test_an_omitted_record_whose_process_is_alive_again_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SHOWN", 1)
    clock = Turned()
    for number in range(2):
        slot = later(warm(f"run{number}"), number)
        write_record(tmp_path, slot, name=f"{number}")
    source = RecordsSource([str(tmp_path)], retention=1e6, clock=clock.clock)
    assert names(source.read()) == {"1"}
    with held(tmp_path / "0"):
        clock.turn(11.0)
        assert names(source.read()) == {"0"}


def test_live_records_are_followed_although_their_user_has_many_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_record(tmp_path, warm("living"), name="living")
    os.utime(folder, (1, 1))
    source = RecordsSource([str(tmp_path)], retention=900)
    monkeypatch.setattr(directories, "RECORDS_OF_A_USER", 2)
    monkeypatch.setattr(directories, "_LISTED_FOR_NS", -1)
    with held(folder):
        assert names(source.read()) == {"living"}
        for number in range(5):
            write_record(tmp_path, warm(f"new{number}"), name=f"new{number}")
        assert "living" in names(source.read())


@root
def test_status_exits_with_6_if_the_callers_own_records_are_omitted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(directory, warm("nano"), name="a")
    arguments = ["status", "gpt2", "--dir", str(directory)]
    assert CliRunner().invoke(cli, arguments).exit_code == 5
    monkeypatch.setattr("warmwatch_monitor.sources.records.directory.RECORDS_OF_A_USER", 1)
    write_record(directory, warm("bert"), name="b")
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 6
    assert "you have more records than an answer has room for" in result.output


@root
def test_wait_and_runs_exit_with_6_if_the_callers_own_records_are_omitted(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warmwatch_monitor.commands.wait.APPEARS_SECONDS", 0.1)
    monkeypatch.setenv("WARMWATCH_DIR", str(directory))
    monkeypatch.setenv("WARMWATCH_STATE", str(tmp_path / "state"))

    def codes() -> list[int]:
        commands = (["wait", "gpt2"], ["wait"], ["runs", "--name", "gpt2"], ["runs"])
        found = [CliRunner().invoke(cli, command) for command in commands]
        assert {why in one.stderr for one in found} == {noted}
        return [one.exit_code for one in found]

    why, noted = "you have more records than an answer has room for", False
    for name in "ab":
        write_record(directory, ended(warm("nano"), "finished"), name=name)
    assert codes() == [5, 5, 5, 0]
    monkeypatch.setattr("warmwatch_monitor.sources.records.directory.RECORDS_OF_A_USER", 1)
    noted = True
    assert codes() == [6, 6, 6, 0]
