"""The record format: the bytes that a training process writes for a monitor.

A record is one folder for each attached process, holding these files:

``slot``
    Fixed size, little endian, 8-byte words. The agent maps it if it lies in memory, and copies it
    elsewhere; readers use ``pread``. ::

        0      header    magic 8s, version u32, size u32, warm_steps u64,
                         attached_ns u64 (monotonic), attached_epoch_ns u64 (wall clock)
        64     steps     StepCounts: the hot words, stored at every step
        4096   bins      histogram of clean steps, one word for each of BINS bins
        7680   ring      lengths of the last RING steps, one word each (see ``recent``)
        8192   bins      histogram of steps that held compile activity, in the same way
        12288  compile   CompileCounts, sealed: two places of 2048 bytes (its room)
        16384  identity  UTF-8 JSON (see Identity), sealed: two places of 4096 bytes (its room)

    Every number is cumulative, or a time of the machine's monotonic clock in nanoseconds,
    where 0 means "not yet". Wall time is ``attached_epoch_ns + (t - attached_ns)``.

``events.jsonl``
    One JSON object a line, appended, for rare events; ``t`` is monotonic nanoseconds and ``event``
    names it. Bounded: past JOURNAL_LIMIT bytes, or past 1/64 of its filesystem's free space, only
    ``warm``, ``eager`` and ``exit`` are added.

``exit``
    Empty at first. Python's exit adds one byte; a process exit through the C library writes the
    exit status (see ``liveness``).

``stacks``
    Exists once an activity took long: where the process was (see ``stack_file``).

Values that change at every step are *hot words*: aligned, stored by one 8-byte store, read alone.
Two of them may be from different moments. Values that change rarely are *sealed*
(``sealed_blocks``): a payload with a checksum in one of two places, so one read finds the last
complete one.

The order between the two kinds. A reader reads the hot words, then the sealed blocks. A writer that
records a step in the compile block seals that before it stores the step's words. So the compile
block is never older than the words, and a judgement from both is careful: ``steps - clean_after``
may miss a step that was just marked, but never counts one across an activity missing in the block
(``activities_seen`` would differ, or ``clean_after`` be higher). ``last_step_ns`` may be older than
``irregular_step_ns``; then nothing is added to ``clean_sum_ns``, so it never falls. ``unpack``
raises the words to what the block proves.

This package holds the layout and nothing else: no I/O, no clock. The agent and the monitor share
it.

Versions. A reader reads its own VERSION only, and ignores additions that need no new one:

- A field appended at the end of ``StepCounts`` or ``CompileCounts``, with a default of 0 that means
  "not known" or "not yet". Where 0 is also a value, store 1 + the value.
- An entry at the end of ``PLAIN``, up to MOST_PLAIN.
- A field appended at the end of ``Identity``, with a default.
- An event, or a key of one, in the journal.

Everything else needs a new VERSION: another size, a longer closed list, a field or an entry that is
moved, removed or changes its meaning.
"""

from __future__ import annotations

from warmwatch.shared.record.facts import (
    MOST_TOUCHED,
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
    Warmup,
    typical,
)
from warmwatch.shared.record.layout import (
    CLEAN_BINS_OFFSET,
    COMPILE_BINS_OFFSET,
    COMPILE_BLOCK,
    COMPILE_INDEX,
    COMPILE_WORDS,
    HOT_END,
    IDENTITY_BLOCK,
    MAGIC,
    RING_OFFSET,
    SIZE,
    STEPS_INDEX,
    STEPS_OFFSET,
    VERSION,
    blank,
    check_header,
    histograms,
    hot_words,
    pack_header,
    ring,
    store_compile,
    store_identity,
    unpack,
    unpack_identity,
    with_hot_words,
)
from warmwatch.shared.record.liveness import (
    EXIT_PROMISED,
    LOCK_QUESTION,
    broken_promise,
    exit_code,
    lock_holder,
    with_exit_code,
    without_end,
)
from warmwatch.shared.record.recent import (
    BINS,
    BOUNDS_NS,
    HALF_A_BIN,
    RING,
    UNEQUAL,
    Trend,
    is_clean,
    length_ns,
    level_ns,
    longest_ns,
    longest_of,
    median_ns,
    newest_first,
    packed,
    quantile_ns,
    quantile_of,
    recent_lengths,
)
from warmwatch.shared.record.sealed_blocks import RecordError, TornError
from warmwatch.shared.values import (
    CACHES,
    CATEGORIES,
    COMPILE_CACHES,
    DISABLED,
    ENDS,
    KINDS,
    MEMORY,
    PHASES,
    PRECOMPILED,
    PROGRESS,
    REASONS,
    SETTLED_BY,
)
from warmwatch.shared.values import NEW_INSTANCE as NEW_INSTANCE

SLOT = "slot"
JOURNAL = "events.jsonl"
EXIT = "exit"
STACKS = "stacks"
WORKERS = "workers"
JOURNAL_LIMIT = 8 * 1024 * 1024
