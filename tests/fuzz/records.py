"""The bytes of a record's three files, all the way to ``/metrics`` and ``/status``.

Only the clock is replaced. The source opens, tests the lock and reads; the assembly joins and
judges; the results are parsed as clients parse them. Each record is read twice: its files change
between two polls, as by its writer or by another process.
"""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fuzz.choices import Choices
from support import builders
from support.documents import status
from support.records import slot_bytes
from support.sources import settings
from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, Identity
from warmwatch.shared.record.facts import flatten
from warmwatch.shared.record.sealed_blocks import Block, store
from warmwatch_monitor import metrics
from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.pipeline.poller import Assembly
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.sources.host import HostAndProcesses
from warmwatch_monitor.sources.listed import HOST, NVML, RECORDS, Readings
from warmwatch_monitor.sources.records.source import RecordsReading, RecordsSource

# Locks the slots that it is given, one a line, until its input ends.
_HOLD = """
import fcntl, sys
files = [open(name.rstrip("\\n"), "r+b") for name in iter(sys.stdin.readline, "\\n")]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
_U64 = struct.Struct("<Q")
_SLOTS = (
    *(builders.STARTING, builders.COMPILING, builders.WARMING, builders.WARM, builders.EAGER),
    *(builders.RECOMPILING, builders.STALLED),
    *(builders.ended(how) for how in record.ENDS if how),
)
_LINES = [
    b'{"t":4999000000000,"event":"compilation","id":"0/1","kind":"forward","seconds":1.5}',
    b'{"t":4999000000000,"event":"compilation","kind":"forward","reason":"r","category":"shape"}',
    b'{"t":4999000000000,"event":"compilation","kind":"backward","name":"f","file":"m.py","line":3}',
    b'{"t":4999000000000,"event":"begin","what":"entire_backward_compile"}',
    b'{"t":4999000000000,"event":"recompile","reason":"r","category":"shape","name":"f","line":3}',
    b'{"t":4999000000000,"event":"graph_break","reason":"print","count":2}',
    b'{"t":4999000000000,"event":"fallback","steps":3,"name":"f","limit":8,"setting":"l"}',
    b'{"t":4999000000000,"event":"cudagraph_skip","reason":"r","name":"f","file":"m","line":3}',
    b'{"t":4999000000000,"event":"spill","kernel":"softmax_0","registers":1844,"seconds":0.5}',
    b'{"t":4999000000000,"event":"compilation","id":"0/1","kind":"cudagraph","new_sizes":1}',
    b'{"t":4999000000000,"event":"exit","exception":"ValueError"}',
    b'{"t":4999000000000,"event":"error","where":"ledger","message":"m"}',
]
_KEYS = (
    *("t", "event", "id", "kind", "seconds", "reason", "category", "name", "file", "line", "cache"),
    *("what", "count", "steps", "limit", "setting", "exception", "where", "message", "failure"),
)
_IDENTITY = list(Identity._fields)
_NUMBERS = range(record.COMPILE_WORDS)
_GPU = builders.gpu(energy_joules=5e6, read_energy_ns=builders.ago(0.5))


@dataclass(frozen=True, slots=True)
class Files:
    """What is in a record's files."""

    slot: bytes
    journal: bytes = b""
    exit: bytes = b""


@cache
def _image(state: int, rank: int) -> bytes:
    return slot_bytes(builders.as_rank(_SLOTS[state], rank, 64))


def files(choices: Choices, number: int) -> Files:
    """The files of a rank as an agent writes them, with changes of every kind.

    ``number``: the rank's, where it is not that of others.
    """
    rank = number if choices.below(8) else 0
    slot = bytearray(_image(choices.below(len(_SLOTS)), rank))
    for _ in range(choices.below(6)):
        choices.pick(_CHANGES)(slot, choices)
    if choices.below(16) == 15:
        del slot[choices.below(record.SIZE) :]
    journal = b"\n".join(_line(choices) for _ in range(choices.below(5)))
    end = b"" if choices.below(4) == 3 else b"\n"
    left = choices.pick((b"", b"?", b"\0\0\0\0", b"?\1\0\0\0", b"?\xff\xff\xff\xff", b"\7" * 70))
    return Files(bytes(slot), journal + end, left)


def _compile_words(slot: bytearray, choices: Choices) -> None:
    words = list(flatten(CompileCounts()))
    for _ in range(1 + choices.below(8)):
        words[choices.pick(_NUMBERS)] = _moment(choices)
    record.store_compile(slot, words)


def _compile_word(slot: bytearray, choices: Choices) -> None:
    """One, of those that are there."""
    if len(slot) != record.SIZE:
        return
    try:
        words = flatten(record.unpack(bytes(slot)).compile)
    except record.RecordError:
        return
    words[choices.pick(_NUMBERS)] = _moment(choices)
    record.store_compile(slot, words)


def _hot_word(slot: bytearray, choices: Choices) -> None:
    record.hot_words(slot)[choices.below(len(record.STEPS_INDEX))] = _moment(choices)


def _bin(slot: bytearray, choices: Choices) -> None:
    record.histograms(slot)[choices.below(2)][choices.below(record.BINS)] = choices.number()


def _header(slot: bytearray, choices: Choices) -> None:
    _U64.pack_into(slot, choices.pick((0, 8, 16, 24, 32)), _moment(choices))


def _identity(slot: bytearray, choices: Choices) -> None:
    """With some of its fields, each any JSON."""
    known = {"run": b'"gpt2"', "rank": b"%d" % choices.below(64)}
    for _ in range(1 + choices.below(4)):
        known[choices.pick(_IDENTITY)] = choices.literal()
    body = b",".join(b'"%b":%b' % (name.encode(), value) for name, value in known.items())
    _seal(slot, record.IDENTITY_BLOCK, b"{%b}" % body)


def _payload(slot: bytearray, choices: Choices) -> None:
    """A block of any bytes."""
    _seal(slot, choices.pick((record.COMPILE_BLOCK, record.IDENTITY_BLOCK)), choices.bytes())


def _damage(slot: bytearray, choices: Choices) -> None:
    at, damage = choices.below(record.SIZE), choices.bytes()
    slot[at : at + len(damage)] = damage[: record.SIZE - at]


def _seal(slot: bytearray, block: Block, payload: bytes) -> None:
    try:
        store(slot, block, payload)
    except (record.RecordError, struct.error):  # too long, or a sequence that is at its end
        return


def _moment(choices: Choices) -> int:
    """A word: any number, or a moment near now."""
    kind = choices.below(3)
    if kind == 0:
        return choices.number()
    return max(0, builders.ago((choices.below(256) - (20 if kind == 1 else 0)) ** kind))


_CHANGES: tuple[Callable[[bytearray, Choices], None], ...] = (
    *(_compile_word, _compile_words, _hot_word, _bin, _header, _identity, _payload, _damage),
)


def _line(choices: Choices) -> bytes:
    kind = choices.below(4)
    if kind == 3:
        return choices.bytes()
    line = choices.pick(_LINES)
    for _ in range(kind):  # the last of two equal keys counts
        line = b'%b,"%b":%b}' % (line[:-1], choices.pick(_KEYS).encode(), choices.literal())
    return line


class Way:
    """Record directories in ``folder`` with ``size`` records, every other of which is held."""

    def __init__(self, folder: Path, size: int = 1) -> None:
        self._directory = folder
        self._folders = [folder / f"record-{number:03}" for number in range(size)]
        self._files: list[tuple[int, int, int]] = []
        self._now_ns, self._epoch = builders.NOW, builders.EPOCH
        for place in self._folders:
            place.mkdir(mode=0o700)
            names = (record.SLOT, record.JOURNAL, record.EXIT)
            opened = [os.open(place / n, os.O_RDWR | os.O_CREAT, 0o600) for n in names]
            self._files.append((opened[0], opened[1], opened[2]))

    def slots(self) -> Sequence[Path]:
        """Of those that are to be held."""
        return [place / record.SLOT for place in self._folders[::2]]

    def close(self) -> None:
        for opened in self._files:
            for descriptor in opened:
                os.close(descriptor)

    def __call__(self, inputs: Sequence[bytes]) -> None:
        """Look at one input in each record, and at what becomes of it."""
        self._now_ns, self._epoch = builders.NOW, builders.EPOCH
        source = RecordsSource(
            [str(self._directory)], retention=900, clock=self._clock(), boot="here"
        )
        assembly = Assembly(settings(str(self._directory)))
        made = [Choices(data) for data in inputs]
        self._look(source, assembly, made)
        passed = made[0].pick((0, 1, 3, 70, 1000))
        self._now_ns += passed * builders.SECOND
        self._epoch += passed
        self._look(source, assembly, made)

    def _clock(self) -> Clock:
        return Clock(monotonic_ns=lambda: self._now_ns, epoch=lambda: self._epoch)

    def _look(self, source: RecordsSource, assembly: Assembly, made: Sequence[Choices]) -> None:
        for number, opened in enumerate(self._files):
            content = files(made[number], number)
            for descriptor, data in zip(
                opened, (content.slot, content.journal, content.exit), strict=True
            ):
                os.ftruncate(descriptor, len(data))
                os.pwrite(descriptor, data, 0)
        found = source.read()
        pids = {one.pid for one in found.records if one.pid is not None}
        processes = {
            pid: ProcessReading(pid=pid, cpu_seconds=1.0, resident_bytes=2) for pid in pids
        }
        host = HostAndProcesses(machine=None, processes=processes)
        values = {RECORDS.name: found, HOST.name: host, NVML.name: (_GPU,)}
        readings = Readings(values=values)
        assembled = assembly.make(readings, (builders.HEALTH,), self._now_ns, self._epoch)
        assert not assembled.problems, assembled.problems
        check(assembled.snapshot, found)


def check(snapshot: Snapshot, found: RecordsReading) -> None:
    """All output is well formed, and every refusal is clean and counted."""
    refusals = [*snapshot.refusals]
    for refusal in refusals:
        assert "cannot be judged" not in refusal.reason, refusal
        assert refusal.reason.isprintable(), refusal
        assert len(refusal.reason) < 500, refusal
    text = rendered(snapshot)
    assert f"\nwarmwatch_records_refused {len(found.refusals)}.0\n" in text
    broken = sum(one.broken_lines for one in found.records)
    shown = sum(view.figures.agent.lines_broken or 0 for run in snapshot.runs for view in run.ranks)
    counted = sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("warmwatch_journal_lines_refused{")
    )
    assert shown == counted <= broken


def rendered(snapshot: Snapshot) -> str:
    """The text of ``/metrics``, once it and the JSON of ``/status`` are found to be right."""
    body, _ = metrics.render(snapshot, None, version="0.1.0")
    text = body.decode()
    assert text.replace("\n", "").isprintable()
    for line in text.split("\n"):
        if line and not line.startswith("#") and not line.endswith(" 0.0"):
            value = float(line.rpartition(" ")[2])
            assert math.isfinite(value), line
            assert value >= 0 or "timestamp" in line, line
    json.loads(json_body(status(snapshot)).plain, parse_constant=_refuse)
    return text


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in the JSON of /status")


@contextmanager
def way(folder: Path, size: int = 1, *, held: bool = True) -> Iterator[Way]:
    """One over a directory, with a process that holds its slots."""
    made = Way(folder, size)
    command = [sys.executable, "-c", _HOLD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        names = made.slots() if held else []
        process.stdin.write("".join(f"{name}\n" for name in names) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "held\n"
        try:
            yield made
        finally:
            made.close()
            process.kill()
