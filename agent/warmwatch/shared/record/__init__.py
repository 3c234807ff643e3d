"""The record format: the bytes that a training process writes for a monitor.

A record is one folder for each attached process, holding these files:

``slot``
    Fixed size, little endian, 8-byte words. The agent maps it if it lies in memory, and copies it
    elsewhere; readers use ``pread``. ::

        0      header    magic 8s, version u32, size u32, warm_steps u64,
                         attached_ns u64 (monotonic), attached_epoch_ns u64 (wall clock)
        64     steps     StepCounts: the hot words, stored at every step
        4032   layout    words u32 and room u32 of the compile block, room u32 of the identity,
                         then for each composite field of CompileCounts its words, u8
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

Versions. A reader reads its own VERSION and the one before, and ignores unknown additions. So an
addition needs no new version, as long as it follows these rules:

- Append a field at the end of ``StepCounts`` or ``CompileCounts``, with a default of 0 that means
  "not known" or "not yet". Where 0 is also a value, store 1 + the value. A record of an older agent
  has the default there.
- Append an entry at the end of a closed list. A field with one count for each entry grows in place:
  the layout in the header holds its length. An older reader adds the counts of further entries to
  "other" where the list has one, and drops them where it has none. It reads a further code as
  "other" or as absent.
- Append a field at the end of ``Identity``, with a default, and never change a field's type.
- Add events and keys to the journal freely. A reader skips what it does not know.
- Grow a block's room, or append a block at the end of the slot.

Never reorder or remove a field or an entry, or change what one means: that needs a new VERSION, and
the reader then has to read the version before as well. Tests read a recorded record of each version
(``tests/captures/record_v*``).
"""

from __future__ import annotations

from warmwatch.shared.record.facts import (
    CACHES,
    CATEGORIES,
    COMPILE_CACHES,
    DISABLED,
    ENDS,
    KINDS,
    MEMORY,
    MOST_TOUCHED,
    PHASES,
    PRECOMPILED,
    PROGRESS,
    REASONS,
    SETTLED_BY,
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
    Warmup,
    typical,
)
from warmwatch.shared.record.histogram import (
    BINS,
    BOUNDS_NS,
    HALF_A_BIN,
    longest_ns,
    longest_of,
    quantile_ns,
    quantile_of,
)
from warmwatch.shared.record.layout import (
    CLEAN_BINS_OFFSET,
    COMPILE_BINS_OFFSET,
    COMPILE_BLOCK,
    COMPILE_INDEX,
    COMPILE_WORDS,
    HOT_END,
    IDENTITY_BLOCK,
    LARGEST_SIZE,
    LAYOUT_OFFSET,
    MAGIC,
    READABLE,
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
    size_of,
    store_compile,
    store_identity,
    unpack,
    unpack_identity,
    with_hot_words,
    with_known_codes,
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
    RING,
    UNEQUAL,
    Trend,
    is_clean,
    length_ns,
    level_ns,
    median_ns,
    newest_first,
    packed,
    recent_lengths,
)
from warmwatch.shared.record.sealed_blocks import RecordError, TornError
from warmwatch.shared.values import NEW_INSTANCE as NEW_INSTANCE

SLOT = "slot"
JOURNAL = "events.jsonl"
EXIT = "exit"
STACKS = "stacks"
WORKERS = "workers"
JOURNAL_LIMIT = 8 * 1024 * 1024
