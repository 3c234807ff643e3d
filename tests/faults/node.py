"""A busy node: runs that begin, compile, step, recompile and end, on a clock that its caller sets.

``python -m faults.node DIRECTORY`` reads lines of ``NOW BUSY`` (nanoseconds; 1 or 0). It answers
``RUNS`` (begun so far) when the records in ``DIRECTORY`` are up to date. Each run has a process of
its own, which only holds the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from pathlib import Path

from support.ranks import SECOND, Rank
from warmwatch.process.ending import End
from warmwatch.recorder.other_records import prune
from warmwatch.shared import record

RANKS = int(os.environ.get("RANKS", "8"))
LIFE, COMPILES, SHAPE_EVERY = 600, 60, 120  # seconds
_ENDS = (End(how="finished", code=0), End(how="failed", code=1), None)


class Run:
    """One run of one rank, from its first compilation to its end."""

    def __init__(self, number: int, directory: Path, now: int) -> None:
        self._rank, self._number = Rank(), number
        self._rank.now = self._rank.attached = self._began = now
        self._identity = record.Identity(
            run=f"run-{number}", launch=f"process:{number}", gpus=(f"GPU-{number % RANKS}",)
        )
        self._rank.ledger.begin("dynamo")
        self._compiles = True
        hidden = directory / f".{number}"
        hidden.mkdir()
        self._slot = os.open(hidden / record.SLOT, os.O_RDWR | os.O_CREAT)
        self._journal = os.open(hidden / record.JOURNAL, os.O_WRONLY | os.O_CREAT)
        self._write()
        self._process = _holding(self._slot)
        self._folder = hidden.rename(directory / f"run-{number}")

    def goes_on(self, now: int) -> bool:
        """Until ``now``; whether it does after that."""
        age = (now - self._began) // SECOND
        if age >= LIFE:
            self.end()
            return False
        if self._compiles and age >= COMPILES:
            self._compiled("0/0", {})
        while not self._compiles and self._rank.now < now:
            self._rank.wait(1)
            self._rank.step()
            if (self._rank.now - self._began) // SECOND % SHAPE_EVERY == 0:
                self._recompile()
        self._rank.now = now
        self._write()
        return True

    def _recompile(self) -> None:
        where = {"name": "forward", "file": "train.py", "line": 7}
        why = {"reason": "tensor 'x' size mismatch at index 0", "category": "shape"}
        self._rank.ledger.post("recompile", {**why, **where})
        self._rank.ledger.begin("dynamo")
        self._rank.wait(3)
        self._compiled("0/1", {"category": "shape", "reason": "tensor 'x' size mismatch"})

    def _compiled(self, compile_id: str, why: dict[str, str]) -> None:
        self._rank.ledger.post(
            "compilation", {"kind": "forward", "id": compile_id, "seconds": 3.0, **why}
        )
        self._rank.ledger.end("dynamo")
        self._compiles = False

    def end(self) -> None:
        if (end := _ENDS[self._number % len(_ENDS)]) is not None:
            self._rank.ledger.exit(end)
            (self._folder / record.EXIT).write_bytes((end.code or 0).to_bytes(4, "little"))
        self._write()
        os.close(self._journal)
        os.close(self._slot)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def _write(self) -> None:
        os.pwrite(self._slot, self._image(), 0)
        notes, self._rank.store.notes = self._rank.store.notes, []
        for event, at, values in notes:
            known = {name: value for name, value in values.items() if value is not None}
            line = json.dumps({"t": at, "event": event, **known}) + "\n"
            os.write(self._journal, line.encode())

    def _image(self) -> bytes:
        image = bytearray(self._rank.store.buffer)
        header = record.Header(warm_steps=3, attached_ns=self._began, attached_epoch_ns=self._began)
        packed = record.pack_header(header)
        image[: len(packed)] = packed
        record.store_identity(image, self._identity)
        return bytes(image)


def _holding(slot: int) -> int:
    """A process that holds the lock of ``slot`` until it is killed."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        assert os.read(reading, 1), "it has the lock"
        os.close(reading)
        return child
    os.close(reading)
    fcntl.lockf(slot, fcntl.LOCK_EX)
    os.write(writing, b".")
    while True:
        signal.pause()


class Node:
    """``RANKS`` runs at any time; each that ends is followed by another."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._runs = directory, list[Run]()
        self.begun = 0

    def go_on(self, now: int, *, busy: bool) -> None:
        self._runs = [run for run in self._runs if run.goes_on(now)]
        while busy and len(self._runs) < RANKS:
            self._runs.append(Run(self.begun, self._directory, now))
            self.begun += 1
            prune(self._directory, own=None)
            if self.begun <= RANKS:
                break  # so that they do not end together

    def end(self) -> None:
        """Leave no process behind."""
        for run in self._runs:
            run.end()


def main() -> None:
    node = Node(Path(sys.argv[1]))
    for line in sys.stdin:
        now, busy = map(int, line.split())
        node.go_on(now, busy=bool(busy))
        print(node.begun, flush=True)
    node.end()


if __name__ == "__main__":
    main()
