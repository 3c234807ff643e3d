"""The record: the bytes by which a training process tells a monitor what it does.

A record is one folder for each attached process, holding three files:

``slot``
    Fixed size, little endian, 8-byte words. The agent maps it; readers use ``pread``. ::

        0      header    magic 8s, version u32, size u32, warm_steps u64,
                         attached_ns u64 (monotonic), attached_epoch_ns u64 (wall clock)
        64     identity  u32 length, then that many bytes of UTF-8 JSON (see Identity)
        2048   steps     StepCounts: the hot block, written by one ``pack_into`` at every step
        2304   compile   CompileCounts: the rare block, written whenever compile facts change
        4096   bins      histogram of clean steps, one word for each of BINS bins
        8192   bins      histogram of steps that held compile activity, likewise

    Every number is cumulative, or a time of the machine's monotonic clock in nanoseconds,
    where 0 means "not yet". Wall time is ``attached_epoch_ns + (t - attached_ns)``.

``events.jsonl``
    One JSON object a line, appended, for what happens rarely; ``t`` is monotonic nanoseconds
    and ``event`` names it. Bounded: past JOURNAL_LIMIT bytes only ``warm`` and ``end`` are added.

``exit``
    Empty; when the process exits through the C library, its exit status (see ``ends``).

How a reader gets a block whole while it is being written. The writer stores a block front to
back: a mark, the fields, the same mark again. A reader takes three images, one after another,
and trusts the fields of the second where the *end* mark of the first equals the *front* mark of
the third: what was finished before the second image began was not begun anew until it ended.

This package holds the layout and nothing else: no I/O, no clock. The agent and the monitor share
it. Changing any offset, order or name here is a new VERSION.
"""

from __future__ import annotations

from warmwatch.record.bins import BINS, BOUNDS_NS, longest_ns, quantile_ns
from warmwatch.record.ends import exit_code, with_exit_code
from warmwatch.record.facts import (
    CACHES,
    CATEGORIES,
    ENDS,
    KINDS,
    PHASES,
    TOUCHED_KEPT,
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
    Warmup,
)
from warmwatch.record.layout import (
    BLOCKS_END,
    CLEAN_BINS_OFFSET,
    COMPILE_BINS_OFFSET,
    COMPILE_INDEX,
    COMPILE_OFFSET,
    COMPILE_STRUCT,
    COMPILE_WORDS,
    IDENTITY_LIMIT,
    IDENTITY_OFFSET,
    MAGIC,
    SIZE,
    STEPS_OFFSET,
    STEPS_STRUCT,
    VERSION,
    RecordError,
    check_header,
    pack_compile,
    pack_header,
    pack_identity,
    pack_steps,
    unpack,
    unpack_identity,
)
from warmwatch.record.places import directories

SLOT = "slot"
JOURNAL = "events.jsonl"
EXIT = "exit"
JOURNAL_LIMIT = 8 * 1024 * 1024

__all__ = [
    "BINS",
    "BLOCKS_END",
    "BOUNDS_NS",
    "CACHES",
    "CATEGORIES",
    "CLEAN_BINS_OFFSET",
    "COMPILE_BINS_OFFSET",
    "COMPILE_INDEX",
    "COMPILE_OFFSET",
    "COMPILE_STRUCT",
    "COMPILE_WORDS",
    "ENDS",
    "EXIT",
    "IDENTITY_LIMIT",
    "IDENTITY_OFFSET",
    "JOURNAL",
    "JOURNAL_LIMIT",
    "KINDS",
    "MAGIC",
    "PHASES",
    "SIZE",
    "SLOT",
    "STEPS_OFFSET",
    "STEPS_STRUCT",
    "TOUCHED_KEPT",
    "VERSION",
    "CompileCounts",
    "Header",
    "Identity",
    "RecordError",
    "Slot",
    "StepCounts",
    "Warmup",
    "check_header",
    "directories",
    "exit_code",
    "longest_ns",
    "pack_compile",
    "pack_header",
    "pack_identity",
    "pack_steps",
    "quantile_ns",
    "unpack",
    "unpack_identity",
    "with_exit_code",
]
