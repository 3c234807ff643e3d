"""A process that writes to a slot, and a reader that checks each read.

Each value shows whether it is torn: a hot word is one byte, not 0, repeated eight times; a compile
block is one number in all its words; an identity is one name in several fields. Sealed blocks are
stored eight bytes at a time and in any order, as a processor without ordering would show them, and
without a pause, so that nearly every read meets a half-written block. Steps have the pauses of a
training: the reader needs two reads that agree. ``python -m support.protocol 1000000`` from
``tests/`` runs until it has seen that many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support import builders
from support.records import write_record
from warmwatch.shared import record
from warmwatch.shared.record.facts import flatten
from warmwatch_monitor.sources.records.folder import Folder, SlotFile

WRITE = """
import mmap, os, random, sys, time
from warmwatch.shared import record
file = os.open(sys.argv[1], os.O_RDWR)
slot = mmap.mmap(file, record.SIZE)
hot, (clean, touched) = record.hot_words(slot), record.histograms(slot)
class Pieces(mmap.mmap):
    def __setitem__(self, where, value):
        for at in range(0, len(value), 8):
            waiting.append((where.start + at, value[at : at + 8]))
pieces, waiting = Pieces(file, record.SIZE), []
def seen():
    random.shuffle(waiting)  # head and payload
    for at, piece in waiting:
        slot[at : at + len(piece)] = piece
    waiting.clear()
def steps(n):
    word = (1 + n % 7) * 0x0101010101010101  # more is refused: nothing counts to it
    for place in range(len(hot)):
        hot[place] = word
    clean[7] = touched[8] = word
    time.sleep(0.0001)
def blocks(n):
    words = [n] * record.COMPILE_WORDS
    for name in ("active_phase", "end_code"):  # these are checked: a code beyond the lists is none
        words[record.COMPILE_INDEX[name]] = 0
    record.store_compile(pieces, words)
    seen()
    name = str(n) * (1 + n % 7)
    record.store_identity(pieces, record.Identity(run=name, host=name, torch=name))
    seen()
write = {"steps": steps, "blocks": blocks}[sys.argv[2]]
n = 1
write(n)
print("begun", flush=True)
while True:
    n += 1
    write(n)
"""
BYTES = 0x0101010101010101


@dataclass(kw_only=True)
class Reads:
    """Counts of reads by their result, until enough ``different`` values were read.

    ``torn`` and ``backwards`` are errors. ``refused``: reads that found neither copy whole.
    """

    reads: int = 0
    refused: int = 0
    torn: int = 0
    backwards: int = 0
    different: int = 0


@contextmanager
def written(kind: str) -> Iterator[Path]:
    """A slot that a process writes to all the time: its ``steps`` or its ``blocks``."""
    with TemporaryDirectory() as place:
        slot = write_record(Path(place), builders.slot()) / record.SLOT
        with subprocess.Popen(
            [sys.executable, "-c", WRITE, str(slot), kind], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "begun\n"
                yield slot
                assert process.poll() is None, "the writer must be at it to the end"
            finally:
                process.kill()


def read_steps(slot: Path, different: int) -> Reads:
    """Read hot words and bins as the monitor does."""
    found, before, file = Reads(), 0, SlotFile()
    while found.different < different:
        found.reads += 1
        with Folder(str(slot.parent)) as folder:
            seen = file.read(folder).slot
        words = (*flatten(seen.steps), seen.clean_bins[7], seen.compile_bins[8])
        found.torn += any(word % BYTES or not word for word in words)
        found.different += words[0] != before
        before = words[0]
    return found


def read_blocks(slot: Path, different: int) -> Reads:
    """Take one image after another, each by itself, and unpack the sealed blocks."""
    found, before, descriptor = Reads(), 0, os.open(slot, os.O_RDONLY)
    while found.different < different:
        found.reads += 1
        image = os.pread(descriptor, record.HOT_END, 0)
        image += os.pread(descriptor, record.SIZE - record.HOT_END, record.HOT_END)
        try:
            seen = record.unpack(image)
        except record.TornError:
            found.refused += 1
            continue
        who, number = seen.identity, seen.compile.begun
        torn = {*flatten(seen.compile)} - {0} != {number}
        found.torn += torn or not who.run == who.host == who.torch
        found.backwards += number < before
        found.different += number != before
        before = number
    os.close(descriptor)
    return found


if __name__ == "__main__":
    for kind, read in (("steps", read_steps), ("blocks", read_blocks)):
        with written(kind) as slot:
            print(kind, read(slot, int(sys.argv[1])))
