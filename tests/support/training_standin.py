"""A stand-in for a training: a process holds its record, and the test changes the record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import slots
from support.records import compiling, held, update, warm, write_record
from support.values import replace
from warmwatch.shared.record import Slot


@contextmanager
def training(place: Path, run: str = "gpt2", name: str | None = None) -> Iterator[Training]:
    folder = write_record(place, compiling(run), name=name or run)
    with held(folder):
        yield Training(folder)


class Training:
    """The record, and what the test can make of it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._slot = folder, slots.read(folder)

    def becomes(self, slot: Slot) -> None:
        update(self._folder, replace(slot, header=self._slot.header, identity=self._slot.identity))

    def warm(self) -> None:
        self.becomes(warm())

    def counts(self, done: int, total: int) -> None:
        """Its compilation has finished ``done`` of ``total`` kernels."""
        was = slots.read(self._folder)
        far = {"progress_of": 1, "progress_done": done, "progress_total": total}
        self.becomes(replace(was, compile=replace(was.compile, **far)))

    def compiles(self, phase: int = 3) -> None:
        """It begins another compilation, in ``phase``."""
        now, was = time.monotonic_ns(), slots.read(self._folder)
        open = {"active_since_ns": now, "active_phase": phase, "accounted_ns": now}
        self.becomes(
            replace(was, compile=replace(was.compile, begun=was.compile.begun + 1, **open))
        )
