"""No user can report for another: real users, one of whom forges, reads, removes, replaces."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support import builders as b
from support import sources
from support.documents import status
from support.records import compiling, held, wait_until, warm, write_record
from support.users import ALICE, DAEMON, MALLORY, Process, shared, someone, training
from warmwatch.shared import record
from warmwatch.shared.record import Slot
from warmwatch_monitor.base.errors import UnknownRunError
from warmwatch_monitor.client import choice
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.figures.machine import Refusal
from warmwatch_monitor.model.records import Owner, RecordReading
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.sources.listed import RECORDS, Readings
from warmwatch_monitor.sources.records import liveness
from warmwatch_monitor.sources.records.liveness import Owners
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource
from warmwatch_monitor.status.document import chosen

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


@pytest.fixture
def directory() -> Iterator[Path]:
    with shared() as made:
        yield made


def warmwatch(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def give(folder: Path, uid: int) -> Path:
    """Make a record another user's, as if he had made it."""
    for path in (folder, *folder.iterdir()):
        os.chown(path, uid, uid)
    return folder


def forged(directory: Path, slot: Slot, uid: int = MALLORY, name: str = "forged") -> Path:
    return give(write_record(directory, slot, name=name), uid)


def read(directory: Path) -> tuple[list[RecordReading], list[Refusal]]:
    found = RecordsSource([str(directory)], retention=900).read()
    return list(found.records), list(found.refusals)


def runs(directory: Path) -> dict[str, str]:
    """State by run, as ``status --json`` has it."""
    answer = json.loads(warmwatch("status", "--json", "--dir", str(directory)).stdout)
    return {one["run"]: one["state"] for one in answer["runs"]}


# Forge: a record under another user's name.


@root
def test_another_user_s_warm_record_of_the_same_run_neither_replaces_mine_nor_ends_my_wait(
    directory: Path,
) -> None:
    """It is later than mine, lives, and contains anything."""
    mine = write_record(directory, compiling())
    theirs = forged(directory, warm(age=1))
    with held(mine), held(theirs):
        assert runs(directory) == {"gpt2": "compiling", f"gpt2@{MALLORY}": "warm"}
        place = ("--dir", str(directory))
        assert warmwatch("status", "gpt2", *place).exit_code == 3
        waited = warmwatch("wait", "gpt2", *place, "--timeout", "0")
        assert waited.exit_code == 124
        assert "not warm after 0 s: gpt2: compiling" in waited.stderr
        assert warmwatch("wait", *place, "--timeout", "0").exit_code == 124
        assert warmwatch("wait", f"gpt2@{MALLORY}", *place, "--timeout", "0").exit_code == 0
        answer = json.loads(warmwatch("status", "--json", *place).stdout)
        assert [(one["name"], one["owner"], one["owner_uid"]) for one in answer["runs"]] == [
            ("gpt2", "root", 0),
            ("gpt2", str(MALLORY), MALLORY),
        ]


@root
def test_before_my_run_starts_no_other_user_s_run_answers_my_wait(directory: Path) -> None:
    """The message names the way to select the other one."""
    with held(forged(directory, warm())):
        place = ("--dir", str(directory))
        named = warmwatch("wait", "gpt2", *place, "--timeout", "0")
        assert named.exit_code == 124
        assert "no run of yours is named 'gpt2'" in named.stderr
        assert f"name another user's with its owner: gpt2@{MALLORY}" in named.stderr
        unnamed = warmwatch("wait", *place, "--timeout", "0")
        assert unnamed.exit_code == 124
        assert f"no run of yours is alive (but another user's: gpt2@{MALLORY})" in unnamed.stderr
        assert warmwatch("wait", "*@*", *place, "--timeout", "0").exit_code == 0
        assert warmwatch("status", "gpt2", *place).exit_code == 0, "there is no other one"


@root
def test_ranks_of_two_owners_are_two_runs(directory: Path) -> None:
    """Another user's rank 1 of my run is rank 1 of that user's own run."""
    mine = write_record(directory, warm(world_size=2, launch="elastic:7"))
    theirs = forged(directory, compiling(rank=1, world_size=2, launch="elastic:7"))
    with held(mine), held(theirs):
        assert runs(directory) == {"gpt2": "warm", f"gpt2@{MALLORY}": "compiling"}


@root
def test_two_users_trainings_are_two_runs_for_a_third_user_s_daemon(directory: Path) -> None:
    """Children and ranks of one user remain one run; names do not depend on the order of starts."""
    with training(ALICE, directory), training(MALLORY, directory), someone(DAEMON) as daemon:
        daemon.do(f"source = RecordsSource([{str(directory)!r}], retention=900)")
        daemon.do("found = sorted((o.slot.identity.run, o.alive) for o in source.read().records)")
        daemon.do(f"assert found == [('gpt2@{ALICE}', True), ('gpt2@{MALLORY}', True)], found")


@root
def test_a_flood_of_one_user_s_records_hides_no_other_user_s(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three newer ones of his are read of five, and mine, which is older than all of them."""
    for place in ("directory", "source"):
        monkeypatch.setattr(f"warmwatch_monitor.sources.records.{place}.RECORDS_OF_A_USER", 3)
    mine = write_record(directory, warm(), name="mine")
    his = [forged(directory, warm(), name=str(number)) for number in range(5)]
    for age, folder in enumerate([*reversed(his), mine]):
        os.utime(folder, (1e9 - age, 1e9 - age))
    found = RecordsSource([str(directory)], retention=900).read()
    assert {Path(one.folder).name for one in found.records} == {"mine", "2", "3", "4"}
    assert found.refusals == ()
    assert found.left_out == {"records": 2}


@root
@pytest.mark.parametrize("what", ["hard link", "replaced slot", "replaced journal"])
def test_a_record_with_files_of_two_owners_is_refused(directory: Path, what: str) -> None:
    """A file linked or renamed into another user's folder keeps its owner and is not read there."""
    mine = write_record(directory, warm())
    theirs = forged(directory, compiling())
    name = record.JOURNAL if what == "replaced journal" else record.SLOT
    source, target = (mine, theirs) if what == "hard link" else (theirs, mine)
    (target / name).unlink()
    os.link(source / name, target / name)
    if name == record.JOURNAL:
        (target / name).write_text("{}\n")
    found, (refused,) = read(directory)
    assert [one.folder for one in found] == [str(source)]
    assert refused.path == str(target)
    assert refused.reason.startswith(f"its {name} belongs to user ")
    assert refused.reason.endswith("a record has one owner")


@root
def test_a_folder_that_is_replaced_by_a_link_between_two_polls_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cached listing of a second ago still has it as a folder."""
    mine = write_record(directory, warm(), name="mine")
    theirs = forged(directory, compiling("x"), name="theirs")
    source = RecordsSource([str(directory)], retention=900)
    listing = source._directories[0].poll()
    monkeypatch.setattr(source._directories[0], "poll", lambda *_: listing)
    assert len(source.read().records) == 2
    theirs.rename(directory / ".away")
    theirs.symlink_to(mine)
    (found,) = source.read().records
    assert found.folder == str(mine)


@root
@pytest.mark.parametrize("name", ["", record.SLOT, record.JOURNAL])
def test_a_world_writable_record_is_refused(directory: Path, name: str) -> None:
    folder = write_record(directory, warm(), events=[{"t": 1, "event": "x"}])
    (folder / name).chmod(0o777 if not name else 0o666)
    found, (refused,) = read(directory)
    assert found == []
    assert "so its writer is unknown: chmod o-w" in refused.reason


@root
def test_a_record_that_names_another_user_s_process_does_not_get_its_state(directory: Path) -> None:
    """The user has it open, and the pid matches: only the owner of the record differs."""
    with someone(ALICE) as alice:
        pid = alice.process.pid
        claimed = forged(directory, warm(pid=pid))
        alice.do(f"slot = open({str(claimed / record.SLOT)!r})")
        (reading,), _ = read(directory)
        assert not reading.alive
    with someone(MALLORY) as mallory:
        own = forged(directory, warm("own", pid=mallory.process.pid), name="own")
        mallory.do(f"slot = open({str(own / record.SLOT)!r})")
        alive = {one.slot.identity.run: one.alive for one in read(directory)[0]}
        assert alive == {f"gpt2@{MALLORY}": False, f"own@{MALLORY}": True}, "or this proves nothing"


# A lock of another user's.


def lock_by(process: Process, slot: Path, how: str) -> None:
    mode = "r+b" if how == "LOCK_EX" else "rb"
    process.do(f"slot = open({str(slot)!r}, {mode!r})")
    process.do(f"fcntl.lockf(slot, fcntl.{how})")


@root
def test_another_user_s_shared_lock_does_not_keep_a_killed_rank_alive(directory: Path) -> None:
    with training(ALICE, directory) as (victim, folder), someone(MALLORY) as mallory:
        source = RecordsSource([str(directory)], retention=900)
        assert source.read().records[0].alive
        victim.process.kill()
        victim.process.wait()
        lock_by(mallory, folder / record.SLOT, "LOCK_SH")
        (reading,) = source.read().records
        assert (reading.alive, reading.pid) == (False, None)


@root
def test_another_user_s_write_lock_on_a_group_writable_record_is_not_a_sign_of_life(
    directory: Path,
) -> None:
    """Without that, no other user can lock it: only the owner can write the agent's files."""
    with training(ALICE, directory) as (victim, folder), someone(MALLORY) as mallory:
        slot = folder / record.SLOT
        source = RecordsSource([str(directory)], retention=900)
        assert source.read().records[0].alive
        mallory.do(f"assert not os.access({str(slot)!r}, os.W_OK)")
        os.chown(slot, ALICE, MALLORY)
        slot.chmod(0o664)
        victim.process.kill()
        victim.process.wait()
        lock_by(mallory, slot, "LOCK_EX")
        (reading,) = source.read().records
        assert (reading.alive, reading.pid) == (False, None)
        assert not RecordsSource([str(directory)], retention=900).read().records[0].alive


# Another program in the same process, read by a user without permission to inspect it.


@root
def test_a_training_that_executed_another_program_is_gone_for_another_user_s_daemon(
    directory: Path,
) -> None:
    """Pid and start time are the same and open files are unreadable; the address space differs."""
    with training(ALICE, directory) as (process, _), someone(DAEMON) as daemon:
        daemon.do(f"source = RecordsSource([{str(directory)!r}], retention=900)")
        daemon.do("assert source.read().records[0].alive")
        process.begin("os.execv('/bin/sleep', ['sleep', '1000'])")
        wait_until(lambda: _became_another(process.process.pid))
        daemon.do("assert not source.read().records[0].alive")
        assert process.process.poll() is None


def _became_another(pid: int) -> bool:
    """Its new arguments are there, which is after it closed what it had open."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes()
    return bool(line) and not line.startswith(sys.executable.encode())


_LATER = (  # past the time after which what is not known is gone
    "kind = type(source._clock); source._clock = type('Later', (kind,), "
    "{'monotonic_ns': lambda self: time.monotonic_ns() + 30 * 10**9})()"
)


@root
def test_a_training_that_only_lost_its_lock_is_alive_for_another_user_s_daemon(
    directory: Path,
) -> None:
    with training(ALICE, directory) as (process, folder), someone(DAEMON) as daemon:
        daemon.do(f"source = RecordsSource([{str(directory)!r}], retention=900)")
        daemon.do("assert source.read().records[0].alive")
        process.do(f"open({str(folder / record.SLOT)!r}).close(); grown = bytearray(50_000_000)")
        daemon.do("assert source.read().records[0].alive")
        daemon.do(_LATER)
        daemon.do("assert source.read().records[0].alive")


# The default directories.


@root
@pytest.mark.parametrize(
    ("uid", "mode", "words"),
    [
        (MALLORY, 0o755, f"it belongs to user {MALLORY}"),
        (ALICE, 0o777, "everybody may remove what is in it"),
        (ALICE, 0o1777, None),
        (ALICE, 0o755, None),
    ],
)
@pytest.mark.skipif(Path("/run/warmwatch").exists(), reason="this machine has one of its own")
def test_a_default_directory_of_another_user_is_refused_by_agent_and_reader(
    directory: Path, uid: int, mode: int, words: str | None
) -> None:
    place = directory / f"warmwatch-{ALICE}"
    place.mkdir()
    os.chown(place, uid, uid)
    place.chmod(mode)
    forged(place, warm(), uid)
    default = {"WARMWATCH_DIR": "", "XDG_RUNTIME_DIR": "/nonexistent", "TMPDIR": str(directory)}
    with someone(ALICE, **default) as alice:
        alice.do("os.environ.pop('WARMWATCH_DIR')")
        alice.do("warmwatch.shared.places._MEMORY = '/nonexistent'")  # as in some containers
        alice.do(f"places = warmwatch.shared.places.directories(os.environ, {ALICE})")
        alice.do("found = RecordsSource(places, retention=900).read()")
        alice.begin("print(len(found.records), *(r.reason for r in found.refusals), flush=True)")
        output = alice.line()
        assert alice.line() == "done"
        alice.do("import warnings; warnings.simplefilter('ignore')")
        alice.do("warmwatch.attach(run='new'); warmwatch.step()")
        made = [folder.name for folder in place.iterdir() if folder.name.startswith("new-")]
    if words is None:
        assert (output, len(made)) == ("1", 1)
    else:
        assert (output.startswith(f"0 no records are looked for in it: {words}"), made) == (
            True,
            [],
        )


# Names.

ROOT, BOB = Owner(uid=0, name="root", own=True), Owner(uid=7, name="bob", own=False)
CAROL = Owner(uid=8, name="carol", own=False)


def owned(owner: Owner, folder: str, run: str = "gpt2", **slot: object) -> RecordReading:
    known = b.slot(run=owner.shown(run), **slot)  # type: ignore[arg-type]
    return RecordReading(folder=f"/d/{folder}", slot=known, alive=True, owner=owner, pid=1)


def answer_of(*records: RecordReading) -> dict[str, object]:
    readings = Readings(values={RECORDS.name: RecordsReading(records=records)})
    assembly = Assembly(sources.settings("/d"))
    return status(assembly.make(readings, (), b.NOW, b.EPOCH).snapshot)


@pytest.mark.parametrize(
    ("run", "uid", "own", "found"),
    [
        ("gpt2", 7, True, ["gpt2@bob"]),
        ("gpt2", 0, True, ["gpt2"]),
        ("gpt2", 9, True, None),
        ("gpt2", 9, False, ["gpt2", "gpt2@bob", "gpt2@carol"]),
        ("gpt2", None, False, ["gpt2", "gpt2@bob", "gpt2@carol"]),
        ("gpt*", 7, True, ["gpt2@bob"]),
        ("gpt2@bob", 9, True, ["gpt2@bob"]),
        ("gpt2@root", 9, True, ["gpt2"]),
        ("*@*", 7, True, ["gpt2", "gpt2@bob", "gpt2@carol"]),
        ("*@carol", 7, True, ["gpt2@carol"]),
        ("bert", 7, False, None),
    ],
)
def test_a_name_means_the_caller_s_own_run(
    run: str, uid: int | None, own: bool, found: list[str] | None
) -> None:
    answer = answer_of(owned(ROOT, "a"), owned(BOB, "b"), owned(CAROL, "c"))
    if found is None:
        with pytest.raises(UnknownRunError):
            choice.choose(answer, run, uid, own=own)
    else:
        runs = choice.choose(answer, run, uid, own=own)["runs"]
        assert [one["run"] for one in runs] == found


def test_over_http_a_name_is_the_displayed_one_or_selects_every_owner() -> None:
    readings = Readings(
        values={
            RECORDS.name: RecordsReading(
                records=(
                    owned(BOB, "a"),
                    owned(CAROL, "b"),
                    owned(ROOT, "c", "bert"),
                    owned(CAROL, "d", "bert@root"),
                    owned(CAROL, "e", "bert"),
                )
            )
        }
    )
    snapshot = Assembly(sources.settings("/d")).make(readings, (), b.NOW, b.EPOCH).snapshot

    def named(run: str) -> list[str]:
        return [one.run for one in chosen(snapshot, run)]

    assert named("gpt2") == ["gpt2@bob", "gpt2@carol"]
    assert named("bert") == ["bert"]
    assert named("bert@root") == ["bert"], "not what carol calls hers"
    assert named("bert@carol") == ["bert@carol"]
    assert status(snapshot, "gpt2")["summary"].startswith("2 runs: gpt2@bob ")


def test_a_hung_directory_service_delays_no_lookup_and_renames_no_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested: list[int] = []
    answered = threading.Event()

    def ask(uid: int) -> str:
        requested.append(uid)
        answered.wait()
        return "late"

    monkeypatch.setattr(liveness, "login", ask)
    monkeypatch.setattr(liveness, "_PATIENCE_SECONDS", 0.01)
    who = Owners()
    assert [who.of(uid).name for uid in (5, 6)] == ["5", "6"]
    wait_until(lambda: requested)
    assert requested == [5], "one lookup is in progress"
    answered.set()
    wait_until(lambda: requested == [5, 6])
    monkeypatch.setattr(liveness, "_PATIENCE_SECONDS", 60.0)  # for a slow answer
    assert [who.of(uid).name for uid in (5, 7)] == ["5", "late"]
