"""What a copy on a disk promises whoever reads in the middle of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from warmwatch import _copies, record
from warmwatch._copies import Copies
from warmwatch._record_files import make
from warmwatch.record import Header, Identity

PWRITE = os.pwrite


class Busy(bytearray):
    """A slot in which an activity begins and a step is marked whenever somebody has looked at it.

    As the agent stores them: first the block, then the words.
    """

    steps = 0

    def __getitem__(self, where: Any) -> Any:
        seen = super().__getitem__(where)
        if where in (slice(None, record.HOT_END), slice(record.HOT_END, None)):
            self.store()
        return seen

    def store(self) -> None:
        self.steps += 1
        words = [0] * record.COMPILE_WORDS
        words[record.COMPILE_INDEX["begun"]] = self.steps
        record.store_compile(self, words)
        record.hot_words(self)[record.STEPS_INDEX["steps"]] = self.steps


def test_on_a_disk_words_are_never_newer_than_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where a write was the last one that the disk took."""
    identity = Identity(run="t")
    memory = Busy(record.blank())
    header = record.pack_header(Header(warm_steps=3, attached_ns=1, attached_epoch_ns=1))
    memory[: len(header)] = header
    record.store_identity(memory, identity)
    seen: list[tuple[int, int]] = []

    def pwrite(descriptor: int, data: bytes, at: int) -> int:
        written = PWRITE(descriptor, data, at)
        slot = record.unpack(os.pread(descriptor, record.SIZE, 0))
        seen.append((slot.steps.steps, slot.compile.begun))
        return written

    monkeypatch.setattr(_copies.os, "pwrite", pwrite)
    copies = Copies(
        memory,
        lambda: make(tmp_path, bytes(memory), identity, "owner"),
        made=lambda _: None,
        failed=print,
    )
    for _ in range(10):
        assert copies.settle(60)
    assert copies.close(60)
    assert max(steps for steps, _ in seen) >= 10
    assert all(steps <= begun for steps, begun in seen), seen
