"""The disk flusher: what a reader sees at any time, and what happens if the disk fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from warmwatch.recorder import disk_flusher
from warmwatch.recorder.disk_flusher import DiskFlusher
from warmwatch.recorder.files import create
from warmwatch.shared import record
from warmwatch.shared.record import Header, Identity

PWRITE = os.pwrite
RUN = Identity(run="t")


def slot_in_memory() -> bytearray:
    """One in which nothing has happened yet."""
    memory = record.blank()
    header = record.pack_header(Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1))
    memory[: len(header)] = header
    record.store_identity(memory, RUN)
    return memory


class Busy(bytearray):
    """A slot in which an activity begins and a step is marked at each read.

    As the agent stores them: first the block, then the words.
    """

    steps = 0

    def __getitem__(self, where: Any) -> Any:
        counters = super().__getitem__(where)
        if where in (slice(None, record.HOT_END), slice(record.HOT_END, None)):
            self.store()
        return counters

    def store(self) -> None:
        self.steps += 1
        words = [0] * record.COMPILE_WORDS
        words[record.COMPILE_INDEX["begun"]] = self.steps
        record.store_compile(self, words)
        record.hot_words(self)[record.STEPS_INDEX["steps"]] = self.steps


def test_on_a_disk_counters_are_never_newer_than_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where a write was the last one that the disk took."""
    memory = Busy(slot_in_memory())
    counters: list[tuple[int, int]] = []

    def pwrite(descriptor: int, data: bytes, at: int) -> int:
        written = PWRITE(descriptor, data, at)
        slot = record.unpack(os.pread(descriptor, record.SIZE, 0))
        counters.append((slot.steps.steps, slot.compile.begun))
        return written

    monkeypatch.setattr(disk_flusher.os, "pwrite", pwrite)
    copies = DiskFlusher(
        memory,
        lambda: create(tmp_path, bytes(memory), RUN, "owner"),
        made=lambda _: None,
        failed=print,
    )
    for _ in range(10):
        assert copies.flush(60)
    assert copies.close(60)
    assert max(steps for steps, _ in counters) >= 10
    assert all(steps <= begun for steps, begun in counters), counters
