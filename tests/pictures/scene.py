"""What the README's pictures show: a run of four ranks that no GPU trained, played in two minutes.

The records and the GPUs are stand-ins; the daemon that reads them, and the page, are the real ones.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import add
from pathlib import Path

from support import slots
from support.builders import bins, ring
from support.nvml import Standin, board
from support.records import compiling, held, update, warm, write_record
from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.record import PHASES, Slot

RANKS = 4
# seconds of a phase: the first compilation, and that of the shape that comes later
FIRST = {"dynamo": 3, "aot_autograd": 4, "inductor": 12, "kernel_compile": 9, "autotune": 6}
AGAIN = {"dynamo": 2, "aot_autograd": 2, "inductor": 6, "kernel_compile": 4}
STEPS_SECONDS = 35
_FUNCTION = {"name": "forward", "file": "model.py", "line": 31}
_WHY = "0/0: tensor 'tokens' size mismatch at index 1. expected 1024, actual 960"


class Rank:
    """A record that is written as an agent would."""

    def __init__(self, place: Path, rank: int) -> None:
        gpu = str(board(rank)["uuid"])
        slot = compiling(rank=rank, world_size=RANKS, gpus=(gpu,))
        self.folder = write_record(place, slot, name=f"rank{rank}")
        self._header, self._identity = slot.header, slot.identity
        self.rank = rank

    def compiles(self, phase: str) -> None:
        """More of the activity in progress, or the begin of one."""
        now, slot = time.monotonic_ns(), slots.read(self.folder)
        counts, code = slot.compile, 1 + PHASES.index(phase)
        if counts.active_since_ns:
            counts = replace(counts, phase_ns=self._spent(slot, now))
        else:
            counts = replace(counts, begun=counts.begun + 1, active_since_ns=now)
        self._store(replace(slot, compile=replace(counts, active_phase=code, accounted_ns=now)))

    def ends(self, took: float, **why: str) -> None:
        """The activity is over, and three clean steps later the rank is warm."""
        now, slot, done = time.monotonic_ns(), slots.read(self.folder), warm()
        before = slot.compile
        id = f"0/{before.warmups}"
        line = {"t": now, "event": "compilation", "kind": "forward", "id": id, "seconds": took}
        with (self.folder / record.JOURNAL).open("a") as journal:
            journal.write(json.dumps({**line, **_FUNCTION, "cache": "miss", **why}) + "\n")
        forward = 1 + before.warmups
        counts = replace(
            done.compile,
            begun=before.begun,
            ended=before.begun,
            activities_seen=before.begun,
            warmups=before.warmups + 1,
            clean_after=slot.steps.steps + 1,
            phase_ns=self._spent(slot, now),
            graphs=1,
            compilations=tuple(forward * (kind == "forward") for kind in record.KINDS),
            recompiles_by_category=tuple(
                before.warmups * (category == "shape") for category in record.CATEGORIES
            ),
        )
        self._store(
            replace(done, compile=counts, steps=replace(done.steps, steps=slot.steps.steps + 4))
        )

    def steps(self, count: int, seconds: float) -> None:
        """So many clean steps more."""
        now, slot = time.monotonic_ns(), slots.read(self.folder)
        steps = replace(
            slot.steps,
            steps=slot.steps.steps + count,
            last_step_ns=now,
            last_duration_ns=round(seconds * 1e9),
        )
        lengths = [round(seconds * 1e9)] * 8
        clean = tuple(map(add, slot.clean_bins, bins(*lengths[:count])))
        self._store(replace(slot, steps=steps, clean_bins=clean, recent=ring(*lengths)))

    def _spent(self, slot: Slot, now: int) -> tuple[int, ...]:
        counts = slot.compile
        spent = list(counts.phase_ns)
        spent[counts.active_phase - 1] += now - counts.accounted_ns
        return tuple(spent)

    def _store(self, slot: Slot) -> None:
        update(self.folder, replace(slot, header=self._header, identity=self._identity))


@contextmanager
def ranks(place: Path) -> Iterator[list[Rank]]:
    """The records of the run, each held by a process."""
    with ExitStack() as stack:
        found = [Rank(place, rank) for rank in range(RANKS)]
        for rank in found:
            stack.enter_context(held(rank.folder))
        yield found


def play(run: list[Rank], nvml: Standin) -> None:
    """Compile, train, compile again for another shape, and train on."""
    for phases, why in ((FIRST, {}), (AGAIN, {"reason": _WHY, "category": "shape"})):
        for phase, seconds in phases.items():
            _each_half_second(seconds, lambda _, phase=phase: _compile(run, nvml, phase))  # type: ignore[misc]
        for rank in run:
            rank.ends(float(sum(phases.values())), **why)
        _each_half_second(STEPS_SECONDS, lambda turn: _train(run, nvml, turn))


@contextmanager
def going_on(run: list[Rank], nvml: Standin) -> Iterator[None]:
    """The training goes on in a thread."""
    over = threading.Event()

    def train() -> None:
        turn = 0
        while not over.wait(0.5):
            _train(run, nvml, turn := turn + 1)

    thread = threading.Thread(target=train)
    thread.start()
    yield
    over.set()
    thread.join()


def _compile(run: list[Rank], nvml: Standin, phase: str) -> None:
    busy = 30 if phase == "autotune" else 0
    nvml.say(*(board(n, power=f"{118_000 + busy * 4000}", util=f"{busy} 5") for n in range(RANKS)))
    for rank in run:
        rank.compiles(phase)


def _train(run: list[Rank], nvml: Standin, turn: int) -> None:
    wave = [(turn * 7 + n * 13) % 17 for n in range(RANKS)]
    nvml.say(
        *(
            board(n, power=f"{(655 + wave[n]) * 1000}", util=f"{96 + wave[n] % 4} 43")
            for n in range(RANKS)
        )
    )
    for rank in run:
        rank.steps(2, 0.24 + 0.0008 * wave[rank.rank])


def _each_half_second(seconds: float, act: object) -> None:
    assert callable(act)
    for turn in range(round(seconds * 2)):
        act(turn)
        time.sleep(0.5)
