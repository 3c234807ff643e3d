"""Floods of forged records: many, growing, and empty ones, owned by users who do not exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import builders
from support.records import slot_bytes
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.clock_origin import boot_id, clock_offset_ns

FIRST_UID = 20_001
WHOLE = 1_024  # records of a user with a file of their own; the others are links to these
LINE = {"event": "compilation", "id": "0/0", "kind": "forward", "seconds": 1.0, "category": "shape"}
PLACE = {"name": "forward", "file": "m.py", "line": 3}


def records(
    directory: Path,
    users: int,
    count: int,
    *,
    journal: int = 0,
    world_size: int | None = None,
    gpus: int = 0,
) -> None:
    """``count`` records for each of ``users``, with journals of so many bytes."""
    now, epoch = time.monotonic_ns(), time.time_ns()
    line = json.dumps({"t": now, **LINE, **PLACE, "reason": "x" * 3000}) + "\n"
    lines = line * (journal // len(line))
    for user in range(users):
        for number in range(count):
            made = builders.moved(builders.WARM, now, epoch)
            known = replace(
                made.identity,
                run=f"flood{user}x{number}",
                pid=100 + number,
                boot_id=boot_id(),
                clock_offset_ns=clock_offset_ns(),
                world_size=world_size,
                gpus=tuple(f"GPU-{number}-{gpu:04d}" for gpu in range(gpus)),
            )
            folder = directory / f".{user}-{number}"
            folder.mkdir()
            slot = folder / record.SLOT
            if number < WHOLE:
                slot.write_bytes(slot_bytes(replace(made, identity=known)))
                (folder / record.JOURNAL).write_text(lines)
                _own(FIRST_UID + user, slot, folder / record.JOURNAL)
            else:
                os.link(directory / f"{user}-{number % WHOLE}" / record.SLOT, slot)
            _own(FIRST_UID + user, folder)
            folder.rename(directory / folder.name[1:])


def _own(uid: int, *paths: Path) -> None:
    for path in paths:
        os.chown(path, uid, uid)


def empty_folders(directory: Path, count: int) -> None:
    """Folders without anything, of one user."""
    for number in range(count):
        folder = directory / f"empty{number}"
        folder.mkdir()
        _own(FIRST_UID, folder)


_GROW = """
import fcntl, json, sys, time
from pathlib import Path
place, size, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
line = (sys.argv[4] + "\\n").encode()
lines = line * (size // len(line))
slots = [open(one, "r+b") for one in place.glob("[0-9]*/" + sys.argv[5])]
for slot in slots:
    fcntl.lockf(slot, fcntl.LOCK_EX)
journals = [open(one, "ab", 0) for one in place.glob("[0-9]*/" + sys.argv[6])]
print(len(journals), flush=True)
grown = 0
while grown < 1 << 30:
    for journal in journals:
        grown += journal.write(lines)
    time.sleep(pause)
sys.stdin.read()
"""


@contextmanager
def growing(directory: Path, size: int, pause: float) -> Iterator[None]:
    """A process holds all records, so that they live, and adds ``size`` bytes to each journal.

    It stops at 1 GiB in all: the files are in memory.
    """
    line = json.dumps({"t": time.monotonic_ns(), **LINE, **PLACE, "reason": "x" * 3000})
    command = [sys.executable, "-c", _GROW, str(directory), str(size), str(pause), line]
    with subprocess.Popen(
        [*command, record.SLOT, record.JOURNAL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_many_files,
    ) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) > 0
            yield
        finally:
            process.kill()


def _many_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
