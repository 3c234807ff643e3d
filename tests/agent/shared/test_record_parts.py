"""Parts of a record that are read separately: end, lock, sums, an identity that is too long."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, Header, Identity, Slot, StepCounts
from warmwatch.shared.record.identity import pack_identity
from warmwatch.shared.verdict import Facts, open_since_ns

HEADER = Header(warm_steps=3, attached_ns=2_000_000_000, attached_epoch_ns=10_000_000_000)
FINISHED, FAILED, DETACHED, INTERRUPTED = range(1, 5)


def status(code: int) -> bytes:
    return code.to_bytes(4, "little", signed=True)


@pytest.mark.parametrize(
    ("left", "code"),
    [
        (b"", None),
        (b"?", None),
        (b"abc", None),
        (status(0), 0),
        (b"?" + status(3), 3),
        (b"?" + status(-1), 255),
        (status(7) + status(256 + 5), 5),
    ],
)
def test_the_last_exit_code_in_the_file_counts(left: bytes, code: int | None) -> None:
    assert record.exit_code(left) == code


def test_a_promised_exit_code_that_is_missing_is_a_broken_promise() -> None:
    assert record.broken_promise(b"?")
    assert not record.broken_promise(b"")
    assert not record.broken_promise(b"?" + status(0))


@pytest.mark.parametrize(
    ("end", "exit_code", "recorded"),
    [
        (FINISHED, 0, 0),
        (FINISHED, 1, FINISHED),
        (FAILED, 0, FAILED),
        (DETACHED, 0, DETACHED),
        (0, 0, 0),
    ],
)
def test_only_finished_without_an_exit_code_is_discarded(
    end: int, exit_code: int, recorded: int
) -> None:
    counts = CompileCounts(end_code=end, exit_code=exit_code, ended_ns=5)
    assert record.without_end(counts) == counts._replace(end_code=recorded)


@pytest.mark.parametrize(
    ("end", "code", "then"),
    [
        (FINISHED, None, (FINISHED, 0)),
        (FINISHED, 0, (FINISHED, 1)),
        (FINISHED, 3, (FAILED, 4)),
        (FAILED, 0, (FINISHED, 1)),
        (0, 1, (FAILED, 2)),
        (INTERRUPTED, 1, (INTERRUPTED, 2)),
        (INTERRUPTED, 0, (INTERRUPTED, 1)),
        (DETACHED, 3, (DETACHED, 0)),
    ],
)
def test_the_exit_code_decides_how_a_process_ended(
    end: int, code: int | None, then: tuple[int, int]
) -> None:
    counts = record.with_exit_code(CompileCounts(end_code=end, ended_ns=5), code)
    assert (counts.end_code, counts.exit_code, counts.ended_ns) == (*then, 5)


def test_the_kernel_names_the_holder_of_a_write_lock_and_of_no_other(tmp_path: Path) -> None:
    path = tmp_path / "slot"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)

    def holder() -> int | None:
        return record.lock_holder(fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION))

    assert holder() is None
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, int(sys.argv[2]));"
    hold += "print(flush=True); sys.stdin.read()"
    for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        command = [sys.executable, "-c", hold, str(path), str(kind)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert holder() == (process.pid if kind == fcntl.LOCK_EX else None)
            process.communicate()
    os.close(descriptor)


@pytest.mark.parametrize("byte", [0, 1, 10_000])
def test_the_lock_query_covers_the_whole_slot(tmp_path: Path, byte: int) -> None:
    """At any file offset, and whichever part of the file is locked."""
    path = tmp_path / "slot"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    os.lseek(descriptor, 5, os.SEEK_SET)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); byte = int(sys.argv[2]);"
    hold += "fcntl.lockf(f, fcntl.LOCK_EX, 1, byte); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(path), str(byte)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, record.LOCK_QUESTION)
        assert record.lock_holder(answer) == process.pid
        process.communicate()
    os.close(descriptor)


def test_a_lock_holder_in_another_namespace_has_no_pid() -> None:
    answer = record.LOCK_QUESTION.replace(b"\0\0", (fcntl.F_WRLCK).to_bytes(2, "little"), 1)
    for pid, named in ((4711, 4711), (0, 0), (-1, 0)):
        reported = answer[:24] + pid.to_bytes(4, "little", signed=True) + answer[28:]
        assert record.lock_holder(reported) == named


def slot(steps: StepCounts, **counts: int) -> Slot:
    return Slot(
        header=HEADER,
        identity=Identity(run="gpt2"),
        steps=steps,
        compile=CompileCounts(**counts),  # type: ignore[arg-type]
        clean_bins=(),
        compile_bins=(),
    )


def test_the_time_of_day_is_counted_from_attaching() -> None:
    assert HEADER.epoch_seconds(2_000_000_000) == 10.0
    assert HEADER.epoch_seconds(5_500_000_000) == 13.5


def test_clean_steps_are_summed_up_to_the_last_mark() -> None:
    at = slot(StepCounts(last_step_ns=900), clean_sum_ns=50, irregular_step_ns=600)
    assert at.clean_sum_ns == 350
    behind = slot(StepCounts(last_step_ns=500), clean_sum_ns=50, irregular_step_ns=600)
    assert behind.clean_sum_ns == 50


def test_the_length_of_a_clean_step_follows_from_sum_and_bins() -> None:
    known = slot(StepCounts(last_step_ns=14_030_000_000), irregular_step_ns=2_000_000_000)
    bins = [0] * record.BINS
    assert known._replace(clean_bins=tuple(bins)).typical_step_ns is None
    bins[record.BOUNDS_NS.index(4_020_000_000)] = 3
    assert known._replace(clean_bins=tuple(bins)).typical_step_ns == 4_010_000_000


def test_tokens_and_samples_add_up_over_changed_values() -> None:
    steps = StepCounts(steps=12)
    worth = slot(
        steps,
        tokens_before=100,
        tokens_per_step=7,
        samples_before=3,
        samples_per_step=2,
        worth_since=10,
    )
    assert (worth.tokens, worth.samples) == (114, 7)
    assert slot(steps, worth_since=20, tokens_before=9, tokens_per_step=7).tokens == 9
    assert (slot(steps, tokens_before=9).tokens, slot(steps).samples) == (None, None)


def test_an_identity_is_cut_to_what_fits_or_refused() -> None:
    long = Identity(run="r" * 300, host="h" * 300, gpus=("GPU-1",))
    assert b'"' + b"r" * 200 + b'"' in pack_identity(long, 1000)
    assert b'"' + b"r" * 40 + b'"' in pack_identity(long, 300)
    with pytest.raises(record.RecordError, match=r"the identity takes \d+ bytes, 50 are there"):
        pack_identity(long, 50)


def test_an_identity_may_fill_its_room_exactly() -> None:
    short = Identity(run="gpt2")
    body = pack_identity(short, 1000)
    assert pack_identity(short, len(body)) == body
    with pytest.raises(record.RecordError):
        pack_identity(short, len(body) - 1)


def test_unknown_fields_of_an_identity_take_no_room() -> None:
    assert pack_identity(Identity(run="", rank=0), 1000) == (
        b'{"run": "", "rank": 0, "attempt": 0, "pid": 0}'
    )


def test_a_rank_without_activity_has_no_begin_of_activity() -> None:
    facts = Facts(attached_ns=1, warm_steps=3, steps=StepCounts(), compile=CompileCounts())
    assert open_since_ns(facts) is None
