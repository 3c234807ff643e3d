"""Records on disk as an agent leaves them, and real processes that hold their locks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support import builders
from support.isolation import VARIABLES
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.record import CompileCounts, Header, Slot, StepCounts
from warmwatch.shared.record.facts import flatten

_HOLD = """
import fcntl, sys
slot = open(sys.argv[1], "r+b")
fcntl.lockf(slot, fcntl.LOCK_EX)
if sys.argv[2:]:
    import subprocess
    subprocess.Popen(sys.argv[2:])
print("held", flush=True)
sys.stdin.read()
"""
_ASK = """
import fcntl, sys
from warmwatch.shared import record
with open(sys.argv[1], "rb") as slot:
    print(record.lock_holder(fcntl.fcntl(slot, fcntl.F_GETLK, record.LOCK_QUESTION)))
"""


def slot_bytes(slot: Slot) -> bytes:
    """The whole slot file."""
    data = record.blank()
    header = record.pack_header(slot.header)
    data[: len(header)] = header
    put(data, slot)
    return bytes(data)


def put(data: bytearray, slot: Slot) -> None:
    """Store a slot's numbers into its bytes, as an agent would."""
    record.store_identity(data, slot.identity)
    record.store_compile(data, flatten(slot.compile))
    for words, values in (
        (record.hot_words(data), flatten(slot.steps)),
        (record.ring(data), in_ring(slot)),
        *zip(record.histograms(data), (slot.clean_bins, slot.compile_bins), strict=True),
    ):
        for place, value in enumerate(values):
            words[place] = value


def in_ring(slot: Slot) -> list[int]:
    """The words of the ring in the order of the file; a slot lists them newest first."""
    words = [0] * record.RING
    for back, word in enumerate(slot.recent[: slot.steps.steps]):
        words[(slot.steps.steps - 1 - back) % record.RING] = word
    return words


def write_record(
    directory: Path, slot: Slot, *, name: str = "a", events: Sequence[Mapping[str, object]] = ()
) -> Path:
    """Make a record as the agent does: under a temporary name, then renamed into place."""
    hidden = directory / f".{name}"
    hidden.mkdir(parents=True)
    (hidden / record.SLOT).write_bytes(slot_bytes(slot))
    lines = (json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    (hidden / record.JOURNAL).write_text("".join(lines))
    return hidden.rename(directory / name)


def update(folder: Path, slot: Slot) -> None:
    """Store new numbers in a record's slot."""
    with (folder / record.SLOT).open("r+b") as file:
        data = bytearray(file.read())
        header = record.pack_header(slot.header)
        data[: len(header)] = header
        put(data, slot)
        file.seek(0)
        file.write(data)


@contextmanager
def held(folder: Path, *, child: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the record's lock until it is killed or the block ends.

    It starts the command ``child``, which the caller must end.
    """
    command = [sys.executable, "-c", _HOLD, str(folder / record.SLOT), *child]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def holder(folder: Path) -> int | None:
    """The holder of a slot's lock, read by another process: one's own lock is invisible."""
    command = [sys.executable, "-c", _ASK, str(folder / record.SLOT)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return None if done.stdout == "None\n" else int(done.stdout)


def since_boot(ago: float) -> int:
    """The monotonic time ``ago`` seconds ago; skips the test if the machine booted later."""
    at_ns = time.monotonic_ns() - round(ago * 1e9)
    if at_ns <= 0:
        import pytest  # here: benchmarks write records too

        pytest.skip(f"this machine has not been up for {ago:.0f} s")
    return at_ns


def live_slot(
    steps: StepCounts = StepCounts(),  # noqa: B008 - frozen
    compile: CompileCounts = CompileCounts(),  # noqa: B008 - frozen
    *,
    run: str = "gpt2",
    age: float = 30.0,
    **identity: object,
) -> Slot:
    """A slot on this machine's real clocks, attached ``age`` seconds ago."""
    header = Header(
        warm_steps=3,
        attached_ns=since_boot(age),
        attached_epoch_ns=time.time_ns() - round(age * 1e9),
    )
    return replace(builders.slot(steps, compile, run=run, **identity), header=header)


def compiling(run: str = "gpt2", **identity: object) -> Slot:
    """A living slot in the middle of its first compilation."""
    now = time.monotonic_ns()
    counts = CompileCounts(
        begun=1,
        active_since_ns=now - 10**9,
        active_phase=3,
        accounted_ns=now,
        first_begin_ns=now - 10**9,
    )
    return live_slot(compile=counts, run=run, **identity)


def at_rest(slot: Slot) -> Slot:
    """It has rested for an hour before, so it is no stall for as long as a test may take."""
    return replace(slot, compile=replace(slot.compile, longest_rest_ns=3600 * 10**9))


def warm(run: str = "gpt2", **identity: object) -> Slot:
    """A living slot whose warm-up has ended, without further changes."""
    now = time.monotonic_ns()
    done = record.Warmup(
        began_ns=now - 20 * 10**9, ended_ns=now - 5 * 10**9, warm_ns=now - 10**9, steps=1
    )
    counts = CompileCounts(
        begun=1,
        ended=1,
        first_begin_ns=done.began_ns,
        last_end_ns=done.ended_ns,
        clean_after=1,
        activities_seen=1,
        first_step_ns=done.ended_ns,
        warmups=1,
        first_warmup=done,
        last_warmup=done,
    )
    steps = StepCounts(steps=9, last_step_ns=now)
    return at_rest(live_slot(steps, counts, run=run, **identity))


def ranks_of(directory: Path, count: int, run: str = "gpt2") -> list[Path]:
    """Records of a run with ``count`` ranks, each in the middle of its first compilation."""
    return [
        write_record(directory, compiling(run, rank=rank, world_size=count), name=f"rank{rank}")
        for rank in range(count)
    ]


def ended(slot: Slot, how: str) -> Slot:
    """The same slot, its process ended now."""
    counts = replace(
        slot.compile,
        end_code=record.ENDS.index(how),
        ended_ns=time.monotonic_ns(),
        active_since_ns=0,
        active_phase=0,
    )
    return replace(slot, compile=counts)


def wait_until(condition: Callable[[], object], seconds: float = 240.0) -> None:
    """Return as soon as ``condition`` holds; fail after ``seconds``.

    A long limit costs nothing where the condition comes true, and a slow machine needs it. Polls
    less and less often, up to every 50 ms, to leave the processor to what is waited for.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, "the condition did not come true in time"
        time.sleep(min(0.01 + waited / 10, 0.05))


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, isolated, with no other ``WARMWATCH_*`` than ``variables``."""
    others = {k: v for k, v in os.environ.items() if not k.startswith("WARMWATCH_")}
    return {**others, **VARIABLES, **variables}
