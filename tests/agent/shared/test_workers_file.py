"""The file ``workers``: another program may have written it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from warmwatch.shared.record.workers_file import (
    MOST,
    SIZE,
    Entry,
    is_held,
    lock_question,
    pack,
    unpack,
)
from warmwatch.shared.values import LARGEST

NUMBERS = st.tuples(*[st.integers(0, LARGEST)] * 5)
NAMES = st.from_regex(r"[a-z_]{0,20}", fullmatch=True)
ENTRIES = st.builds(lambda numbers, name: Entry._make((*numbers, name)), NUMBERS, NAMES)


@given(st.lists(ENTRIES, max_size=MOST))
def test_what_was_written_is_read(entries: list[Entry]) -> None:
    assert unpack(b"".join(map(pack, entries))) == tuple(entries)


@given(st.integers(0, 4), st.integers(LARGEST + 1, 2**64 - 1))
def test_an_entry_with_an_impossible_number_is_empty(at: int, number: int) -> None:
    numbers = [1] * 5
    numbers[at] = number
    bad, good = Entry._make((*numbers, "f")), Entry(1, 1, 0, 5, 5, "f")
    assert unpack(pack(bad) + pack(good)) == (Entry(), good)


@given(st.binary(max_size=3 * SIZE))
def test_any_bytes_are_read(data: bytes) -> None:
    assert all(max(one[:-1]) <= LARGEST for one in unpack(data))


def test_a_worker_that_lives_holds_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "workers"
    path.write_bytes(pack(Entry()) * 2)
    holds = f"import fcntl, sys; f = open({str(path)!r}, 'r+b')\n"
    holds += f"fcntl.lockf(f, fcntl.LOCK_EX, {SIZE}, {SIZE}); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, "-c", holds], **pipes) as worker,
        path.open("rb") as file,
    ):
        assert worker.stdout
        worker.stdout.readline()
        for at in range(2):
            assert is_held(fcntl.fcntl(file, fcntl.F_GETLK, lock_question(at))) == (at == 1)
        worker.kill()
        worker.wait()
        assert not is_held(fcntl.fcntl(file, fcntl.F_GETLK, lock_question(1)))
