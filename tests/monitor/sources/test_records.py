"""The records source: what it reads, what it refuses, and which processes live."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import builders
from support.builders import NOW, SECOND
from support.records import (
    environment,
    held,
    slot_bytes,
    update,
    wait_until,
    warm,
    write_record,
)
from support.values import replace
from warmwatch.process.process_tree import process_key
from warmwatch.shared import record
from warmwatch.shared.record import StepCounts
from warmwatch.shared.record.sealed_blocks import Block, store
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.sources.records.followed_record import CHUNK
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource

COMPILATION = {"t": 5, "event": "compilation", "id": "0/1", "kind": "forward", "seconds": 1.5}


class Hands:
    """Clocks that tests turn."""

    def __init__(self) -> None:
        self.now_ns, self.epoch = NOW, builders.EPOCH

    def turn(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND)
        self.epoch += seconds


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def source(tmp_path: Path, hands: Hands) -> RecordsSource:
    clock = Clock(monotonic_ns=lambda: hands.now_ns, epoch=lambda: hands.epoch)
    return RecordsSource([str(tmp_path)], retention=900, clock=clock, boot="here")


def only(source: RecordsSource) -> RecordReading:
    (reading,) = source.read().records
    return reading


def reasons(source: RecordsSource) -> dict[str, str]:
    return {Path(r.path).name: r.reason for r in source.read().refusals}


def test_a_record_is_read_back_unchanged(tmp_path: Path, source: RecordsSource) -> None:
    slot = builders.slot(StepCounts(steps=4, last_step_ns=NOW), clean=(10**7,) * 3)
    folder = write_record(tmp_path, slot, events=[COMPILATION])
    reading = only(source)
    # step 1 has no length; what the others took stands in the ring alone
    steps = replace(slot.steps, last_duration_ns=10**7)
    assert reading.slot == replace(slot, steps=steps, recent=(*slot.recent, 0))
    assert reading.folder == str(folder)
    assert [c.id for c in reading.compilations] == ["0/1"]


def spoil(folder: Path, block: Block) -> None:
    """Leave both places of a block as a store that stopped in the middle does."""
    with (folder / record.SLOT).open("r+b") as file:
        for sequence in (0, 1):
            file.seek(block.place(sequence) + 30)
            file.write(b"\xee" * 8)


def test_a_block_that_remains_torn_leaves_the_last_valid_numbers(
    tmp_path: Path, source: RecordsSource
) -> None:
    folder = write_record(tmp_path, builders.slot(StepCounts(steps=4)))
    with held(folder):
        only(source)
        update(folder, builders.slot(StepCounts(steps=5)))
        spoil(folder, record.COMPILE_BLOCK)
        assert only(source).slot.steps.steps == 4
        assert not source.read().refusals
        update(folder, builders.slot(StepCounts(steps=6)))
        assert only(source).slot.steps.steps == 6


def test_a_torn_block_is_read_again_until_it_is_complete(
    tmp_path: Path, source: RecordsSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt reads the file: the writer completes its store after the third one."""
    folder = write_record(tmp_path, builders.slot(StepCounts(steps=4)))
    whole = (folder / record.SLOT).read_bytes()
    spoil(folder, record.IDENTITY_BLOCK)
    looks = []

    def read(descriptor: int, size: int, offset: int) -> bytes:
        looks.append(offset)
        if looks.count(record.HOT_END) == 3:
            (folder / record.SLOT).write_bytes(whole)
        return pread(descriptor, size, offset)

    pread = os.pread
    monkeypatch.setattr(os, "pread", read)
    assert only(source).slot.steps.steps == 4
    assert {*looks[: looks.index(record.HOT_END)]} == {0}, "the hot words first"


def test_the_holder_of_the_lock_is_alive_and_named_by_its_pid(
    tmp_path: Path, source: RecordsSource
) -> None:
    folder = write_record(tmp_path, builders.slot(pid=1))
    with held(folder) as process:
        reading = only(source)
        assert (reading.alive, reading.pid, reading.gone_ns) == (True, process.pid, None)


def test_a_killed_holder_is_gone_since_this_reader_first_detected_it(
    tmp_path: Path, source: RecordsSource, hands: Hands
) -> None:
    folder = write_record(tmp_path, builders.slot())
    with held(folder) as process:
        assert only(source).alive
        process.kill()
        process.wait()
        gone = hands.now_ns
        hands.turn(1)
        gone += SECOND
        reading = only(source)
        assert (reading.alive, reading.pid, reading.gone_ns) == (False, None, gone)
        hands.turn(5)
        assert only(source).gone_ns == gone


def test_a_record_of_another_boot_is_never_alive(tmp_path: Path, source: RecordsSource) -> None:
    folder = write_record(tmp_path, builders.slot(boot_id="earlier"))
    with held(folder):
        reading = only(source)
        assert (reading.alive, reading.pid) == (False, None)


def ending(how: str, seconds_ago: float, **identity: object) -> record.Slot:
    counts = record.CompileCounts(
        end_code=record.ENDS.index(how), ended_ns=builders.ago(seconds_ago)
    )
    return builders.slot(compile=counts, **identity)  # type: ignore[arg-type]


def test_an_ended_record_is_removed_after_the_retention(
    tmp_path: Path, source: RecordsSource, hands: Hands
) -> None:
    write_record(tmp_path, ending("finished", 880))
    assert only(source).slot.compile.end_code
    hands.turn(30)
    assert source.read().records == ()


def test_a_lost_record_is_removed_after_the_retention(
    tmp_path: Path, source: RecordsSource, hands: Hands
) -> None:
    folder = write_record(tmp_path, builders.slot())
    with held(folder):
        only(source)
    hands.turn(1)
    assert not only(source).alive
    hands.turn(899)
    only(source)
    hands.turn(2)
    assert source.read().records == ()


def test_a_failed_rank_remains_as_long_as_its_launcher_may_start_it_again(
    tmp_path: Path, source: RecordsSource, hands: Hands
) -> None:
    """The new process may hang before it has a record, in ``init_process_group()``."""
    launcher = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with launcher:
        by = {"launch": f"parent:{process_key(launcher.pid)}", "launcher": "torchelastic"}
        for attempt in (0, 1):
            slot = ending("failed", 880, rank=1, attempt=attempt, **by)
            write_record(tmp_path, slot, name=f"attempt-{attempt}")
        write_record(tmp_path, ending("finished", 880, rank=0, run="done", **by), name="done")
        shell = by | {"launcher": "env"}  # what started it lives on
        write_record(tmp_path, ending("failed", 880, rank=0, run="shell", **shell), name="shell")
        other = by | {"launch": "parent:1:2:3"}  # of another pid namespace
        write_record(tmp_path, ending("failed", 880, rank=0, run="pod", **other), name="pod")
        records = source.read().records
        assert {
            (one.slot.identity.run, one.slot.identity.attempt): one.restart_possible
            for one in records
        } == {
            ("gpt2", 0): True,
            ("gpt2", 1): True,
            ("pod", 0): True,
            ("done", 0): False,
            ("shell", 0): False,
        }
        for _ in range(2):
            hands.turn(600)
            source.read()  # the next poll takes the earlier attempt out
            (left,) = source.read().records
            assert (left.slot.identity.run, left.slot.identity.attempt) == ("gpt2", 1)
        launcher.communicate(b"\n")
        hands.turn(11)
        assert source.read().records == ()


def test_only_the_newest_process_of_a_missing_rank_remains(
    tmp_path: Path, source: RecordsSource
) -> None:
    for number in range(3):
        for rank in (0, 1):
            old = ending("failed", 1000 + number, rank=rank, launch="a")
            began = replace(old.header, attached_ns=old.header.attached_ns - number - 1)
            write_record(tmp_path, replace(old, header=began), name=f"{rank}-{number}")
    write_record(tmp_path, ending("finished", 10, rank=0, launch="a"), name="last")
    source.read()
    for _ in range(2):
        shown = sorted(Path(one.folder).name for one in source.read().records)
        assert shown == ["1-0", "last"]


def test_an_earlier_boot_s_record_is_removed_by_the_wall_clock(
    tmp_path: Path, source: RecordsSource, hands: Hands
) -> None:
    """Its monotonic times may lie in this boot's future."""
    write_record(tmp_path, ending("finished", 800, boot_id="earlier"))
    hands.now_ns = SECOND  # this boot is young
    only(source)
    hands.epoch += 200
    assert source.read().records == ()


def test_a_record_that_disappears_after_the_listing_is_not_an_error(
    tmp_path: Path, source: RecordsSource
) -> None:
    """The directory's mtime is put back, so that the listing of before is used."""
    folder = write_record(tmp_path, builders.slot())
    with held(folder):
        only(source)
        listed = tmp_path.stat().st_mtime_ns
        folder.rename(tmp_path / ".gone")
        os.utime(tmp_path, ns=(listed, listed))
        assert replace(source.read(), rooms=()) == RecordsReading()


def test_a_directory_that_disappears_with_its_records_is_a_problem_until_it_is_back(
    tmp_path: Path, hands: Hands
) -> None:
    """One among the default ones, where it was empty, is not missed."""
    full, empty = tmp_path / "full", tmp_path / "empty"
    slot = builders.slot()
    empty.mkdir()
    clock = Clock(monotonic_ns=lambda: hands.now_ns, epoch=lambda: hands.epoch)
    folder = write_record(full, slot)
    for directory in (full, empty):
        directory.chmod(0o755)
    several = RecordsSource([str(full), str(empty)], retention=900, clock=clock, boot="here")
    chosen = RecordsSource([str(empty)], retention=900, clock=clock, boot="here")
    with held(folder):
        assert len(several.read().records) == 1
        assert several.read().problem is chosen.read().problem is None
        full.rename(tmp_path / "away")
        empty.rmdir()
        found = several.read()
        assert (found.records, found.problem) == ((), f"{full} has disappeared")
        assert chosen.read().problem == f"{empty} has disappeared"
        (tmp_path / "away").rename(full)
        assert (len(several.read().records), several.read().problem) == (1, None)


def test_an_explicit_directory_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = RecordsSource([str(tmp_path / "file")], retention=900).read()
    assert found.problem == found.refusals[0].path + ": " + found.refusals[0].reason


READ_TWICE_AS_NOBODY = """
import os, sys
sys.path[:0] = sys.argv[2:]
from warmwatch_monitor.sources.records import followed_record  # loaded with the first record
from warmwatch_monitor.sources.records.source import RecordsSource
os.setgroups([]); os.setgid(65534); os.setuid(65534)
source = RecordsSource([sys.argv[1], "/nowhere"], retention=1e9)
for _ in sys.stdin:
    found = source.read()
    print(len(found.records), found.problem, flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_directory_that_became_unreadable_is_a_problem(tmp_path: Path) -> None:
    """``chmod 700 /run/warmwatch`` under living runs."""
    records = tmp_path / "records"
    folder = write_record(records, builders.slot())
    (folder / record.SLOT).chmod(0o644)
    for path in (folder, records, tmp_path, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o055)
    with subprocess.Popen(
        [sys.executable, "-c", READ_TWICE_AS_NOBODY, str(records), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def look() -> str:
            print(file=child.stdin, flush=True)
            return child.stdout.readline().strip()

        assert look() == "1 None"
        records.chmod(0o700)
        assert look() == f"0 {records}: it cannot be listed: Permission denied"
        records.chmod(0o755)
        assert look() == "1 None"
        child.stdin.close()


@pytest.fixture
def good(tmp_path: Path, source: RecordsSource) -> Iterator[None]:
    """A good record next to bad ones, which must still be read."""
    write_record(tmp_path, builders.slot(run="good"), name="good")
    yield
    assert only(source).slot.identity.run == "good"


def patched(offset: int, value: bytes) -> bytes:
    data = bytearray(slot_bytes(builders.slot()))
    data[offset : offset + len(value)] = value
    return bytes(data)


def claiming(**known: object) -> bytes:
    """A slot with an identity that no agent writes."""
    data = bytearray(slot_bytes(builders.slot()))
    store(data, record.IDENTITY_BLOCK, json.dumps({"run": "bad", **known}).encode())
    return bytes(data)


def resealed(**counts: int) -> bytes:
    """A slot with a compile block that no agent writes."""
    return slot_bytes(builders.slot(compile=record.CompileCounts(**counts)))


BAD_SLOTS = {
    "foreign": (b"something else" * 2000, "magic number"),
    "empty": (b"", "magic number"),
    "short": (slot_bytes(builders.slot())[:5000], "5000 bytes of 24576"),
    "cut in a block": (slot_bytes(builders.slot())[:-1], "24575 bytes of 24576"),
    "other version": (
        patched(8, b"\x07"),
        "record of version 7, this warmwatch reads version 1",
    ),
    "zeroed blocks": (patched(record.HOT_END, bytes(12288)), "both places of a block"),
    "rank": (claiming(rank="x"), "its identity's rank is not a whole number: 'x'"),
    "run": (claiming(run=""), "no name"),
    "gpus": (claiming(gpus=[1]), "its identity's gpus is not text: [1]"),
    "world_size": (claiming(world_size="x"), "its identity's world_size is not a whole number"),
    "many": (claiming(world_size=30_000_000), "world_size is not between 0 and 1000000"),
    "host": (claiming(host=7), "its identity's host is not text: 7"),
    "infinite": (claiming(flops_per_step=float("inf")), "flops_per_step is not positive and"),
    "nested": (claiming(run={}), "no name"),
    "end": (resealed(end_code=len(record.ENDS)), "its end is unknown"),
    "what ended the warm-up": (resealed(settled_by=256), "its end is unknown"),
    "phase": (resealed(active_phase=256), "a code of its phase or its end is unknown"),
}


@pytest.mark.parametrize("name", BAD_SLOTS)
@pytest.mark.usefixtures("good")
def test_an_unreadable_slot_is_refused_with_a_message_and_the_others_are_read(
    tmp_path: Path, source: RecordsSource, name: str
) -> None:
    data, reason = BAD_SLOTS[name]
    folder = write_record(tmp_path, builders.slot(), name="bad")
    (folder / record.SLOT).write_bytes(data)
    assert reason in reasons(source)["bad"]


@settings(max_examples=100, deadline=None)
@given(
    places=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 200), st.integers(record.HOT_END, record.SIZE - 1)),
            st.binary(min_size=1, max_size=40),
        ),
        max_size=4,
    ),
    reseal=st.booleans(),
)
def test_a_damaged_slot_is_one_refusal_or_one_typed_reading(
    places: list[tuple[int, bytes]], *, reseal: bool
) -> None:
    """The reading that the source makes of the bytes on the disk.

    With ``reseal`` the checksums are recomputed, as by a deliberate change.
    """
    data = bytearray(slot_bytes(builders.in_every_state()["warm"].reading.slot))
    for at, value in places:
        data[at : at + len(value)] = value[: record.SIZE - at]
    if reseal:
        for block in (record.COMPILE_BLOCK, record.IDENTITY_BLOCK):
            begin = block.place(1) + 24
            length = int.from_bytes(data[begin - 16 : begin - 8], "little")
            store(data, block, bytes(data[begin : begin + min(length, block.limit)]))
    with tempfile.TemporaryDirectory() as directory:
        folder = write_record(Path(directory), builders.slot())
        (folder / record.SLOT).write_bytes(data)
        clock = Clock(monotonic_ns=lambda: NOW, epoch=lambda: builders.EPOCH)
        found = RecordsSource([directory], retention=1e30, clock=clock, boot="here").read()
    assert len(found.records) + len(found.refusals) == 1
    for reading in found.records:
        assert slot_bytes(reading.slot), "numbers where numbers are, text where text is"
    for refusal in found.refusals:
        assert refusal.reason.isprintable()


@pytest.mark.usefixtures("good")
def test_a_file_that_is_not_a_record_is_refused_and_the_others_are_read(
    tmp_path: Path, source: RecordsSource
) -> None:
    elsewhere = write_record(tmp_path / ".hidden", builders.slot())
    (tmp_path / "file").write_text("hello")
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / "empty").mkdir()
    os.mkfifo((tmp_path / "empty").with_name("fifo-folder").with_suffix(".tmp"))
    for name, make in (
        ("fifo", os.mkfifo),
        ("slot-link", lambda path: path.symlink_to(elsewhere / record.SLOT)),
        ("slot-folder", Path.mkdir),
    ):
        (tmp_path / name).mkdir()
        make(tmp_path / name / record.SLOT)
    found = reasons(source)
    assert found.pop("file") == "a file, not a record; it can be removed"
    assert found.pop("link") == "a link, not a record; it can be removed"
    assert found.pop("empty") == "it holds no 'slot'"
    assert found.pop("fifo") == "its slot is not a regular file"
    assert "symbolic link" in found.pop("slot-link")
    assert found.pop("slot-folder") == "its slot is not a regular file"
    assert found.pop("fifo-folder.tmp") == "a file, not a record; it can be removed"
    assert not found


READ_AS_NOBODY = """
import os, sys
sys.path[:0] = sys.argv[2:]
from warmwatch_monitor.sources.records import followed_record  # loaded with the first record
from warmwatch_monitor.sources.records.source import RecordsSource
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for refusal in RecordsSource([sys.argv[1]], retention=1e9).read().refusals:
    print(refusal.path, refusal.reason)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_s_private_record_is_refused_with_advice() -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own directory is private
        Path(made).chmod(0o755)
        folder = write_record(Path(made), builders.slot())
        (folder / record.SLOT).chmod(0o600)
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_NOBODY, made, *sys.path],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
    assert done.stdout == (
        f"{folder} it cannot be read: permission denied; run warmwatch as the user who trains\n"
    )


def append(folder: Path, text: str) -> None:
    with (folder / record.JOURNAL).open("a") as file:
        file.write(text)


def test_torn_and_foreign_lines_are_counted_and_skipped(
    tmp_path: Path, source: RecordsSource
) -> None:
    folder = write_record(tmp_path, builders.slot())
    append(
        folder, 'not JSON\n[]\n7\n{"t": 1}\n{"t": 1, "event": "warm"}\n{"event": "compilation"}\n'
    )
    append(folder, '{"t": 9, "event": "compilation", "id": "0/0", "kind": "unheard"}\n{"t": 1')
    with held(folder):
        reading = only(source)
        assert reading.broken_lines == 5
        assert [c.kind for c in reading.compilations] == ["other"]
    wait_until(lambda: not only(source).alive)
    assert only(source).broken_lines == 6, "nobody will complete the last line"


def test_an_endless_line_does_not_stop_the_journal(tmp_path: Path, source: RecordsSource) -> None:
    folder = write_record(tmp_path, builders.slot())
    with held(folder):
        append(folder, "{}\n")
        only(source)
        append(folder, "x" * (2 * CHUNK) + "\n")
        append(folder, '{"t": 9, "event": "compilation", "id": "0/0", "kind": "forward"}\n')
        assert [c.id for c in only(source).compilations] == ["0/0"]


def test_a_record_whose_journal_is_missing_is_read(tmp_path: Path, source: RecordsSource) -> None:
    folder = write_record(tmp_path, builders.slot())
    (folder / record.JOURNAL).unlink()
    assert only(source).compilations == ()


@pytest.mark.parametrize(
    ("block", "word", "number"),
    [
        ("steps", "steps", 2**63),
        ("steps", "last_step_ns", 2**62),
        ("compile", "graph_breaks", 2**63),
        ("compile", "phase_ns", (2**62,) + (0,) * (len(record.PHASES) - 1)),
        ("compile", "last_warmup", record.Warmup(ended_ns=2**62)),
        ("header", "attached_ns", 2**62),
        ("header", "attached_epoch_ns", 2**63),
    ],
)
def test_an_impossibly_large_number_refuses_the_record(
    tmp_path: Path, block: str, word: str, number: Any
) -> None:
    """It would stand in a sentence; what an agent lets stand at the largest word does not."""
    slot = warm()
    reported = replace(slot.compile, tokens_per_step=2, tokens_before=2**64 - 1)
    write_record(tmp_path, replace(slot, compile=reported), name="good")
    damaged = replace(getattr(slot, block), **{word: number})
    write_record(tmp_path, replace(slot, **{block: damaged}), name="bad")
    found = RecordsSource([str(tmp_path)], retention=900).read()
    assert [Path(one.folder).name for one in found.records] == ["good"]
    (refusal,) = found.refusals
    assert "too large to be a count" in refusal.reason
