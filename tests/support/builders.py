"""Hand-built records, ranks and snapshots, for tests of what comes after the reading.

Times are relative to NOW: ``ago(3)`` is three seconds before the snapshot. Judgements are made by
the real verdict, so a builder cannot pair facts with a state that they do not amount to.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from itertools import groupby
from typing import Any, TypeVar

from support.values import replace
from warmwatch.shared import record
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import (
    CATEGORIES,
    ENDS,
    KINDS,
    PHASES,
    CompileCounts,
    Header,
    Identity,
    Slot,
    StepCounts,
    Warmup,
)
from warmwatch.shared.states import least_advanced
from warmwatch_monitor.figures.machine import SourceHealth
from warmwatch_monitor.model.journal import Compilation, Fallback, Recompile
from warmwatch_monitor.model.machine import GpuReading, ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot, Spending
from warmwatch_monitor.output.summary import LONGEST, Headline
from warmwatch_monitor.pipeline.runs import Circumstances, group
from warmwatch_monitor.status.words.sentence import answer
from warmwatch_monitor.status.words.states import describe_state

SECOND = 10**9
NOW = 5_000 * SECOND
EPOCH = 1_763_679_040.0
HEALTH = SourceHealth(source="records", up=True, last_success=EPOCH, read_seconds=0.0004)


def ago(seconds: float) -> int:
    """Monotonic nanoseconds, ``seconds`` before the snapshot."""
    return NOW - round(seconds * SECOND)


def spread(names: tuple[str, ...], **values: float) -> tuple[int, ...]:
    """A tuple of counts in the order of a closed list, from values by name."""
    assert values.keys() <= set(names)
    return tuple(int(values.get(name, 0)) for name in names)


def phases(**seconds: float) -> tuple[int, ...]:
    """``CompileCounts.phase_ns`` from seconds by phase."""
    return spread(PHASES, **{name: value * SECOND for name, value in seconds.items()})


def kinds(**counts: int) -> tuple[int, ...]:
    """``CompileCounts.compilations`` by kind."""
    return spread(KINDS, **counts)


def categories(**counts: int) -> tuple[int, ...]:
    """``CompileCounts.recompiles_by_category``."""
    return spread(CATEGORIES, **counts)


def bins(*durations_ns: int) -> tuple[int, ...]:
    """A histogram of step lengths, as the agent bins them."""
    counts = [0] * record.BINS
    for duration in durations_ns:
        counts[bisect_left(record.BOUNDS_NS, duration)] += 1
    return tuple(counts)


def slot(
    steps: StepCounts = StepCounts(),  # noqa: B008 - frozen
    compile: CompileCounts = CompileCounts(),  # noqa: B008 - frozen
    *,
    clean: tuple[int, ...] = (),
    dirty: tuple[int, ...] = (),
    attached: float = 300,
    run: str = "gpt2",
    **identity: object,
) -> Slot:
    """A slot; ``clean`` and ``dirty`` are step lengths in nanoseconds."""
    known: dict[str, Any] = {"torch": "2.13.0", "python": "3.11.2", "agent": "0.1.0", **identity}
    return Slot(
        header=Header(
            warm_steps=3,
            attached_ns=ago(attached),
            attached_epoch_ns=round((EPOCH - attached) * SECOND),
        ),
        identity=Identity(run=run, **known),
        steps=steps,
        compile=replace(
            compile,
            compile_step_sum_ns=sum(dirty),
            irregular_step_ns=steps.last_step_ns,
            clean_sum_ns=sum(clean),
            tokens_per_step=known.get("tokens_per_step", 0),
        ),
        clean_bins=bins(*clean),
        compile_bins=bins(*dirty),
        recent=ring(*clean, dirty=dirty),
    )


def ring(*clean: int, dirty: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The ring of steps that held activity and then clean ones, newest first."""
    words = [record.packed(ns, clean=False) for ns in dirty] + [record.packed(ns) for ns in clean]
    return tuple(words[::-1][: record.RING])


def view(
    slot: Slot,
    *,
    alive: bool = True,
    gone: float | None = None,
    process: ProcessReading | None = None,
    compilations: tuple[Compilation, ...] = (),
    fallbacks: tuple[Fallback, ...] = (),
    broken_lines: int = 0,
    journal: dict[str, Any] | None = None,
    gpus: tuple[GpuReading, ...] = (),
    spending: Spending | None = None,
) -> RankView:
    """A rank as the monitor sees it now; ``gone`` seconds ago its lock was seen free.

    ``journal``: further values of its journal, by the fields of ``RecordReading``.
    """
    reading = RecordReading(
        folder=f"{slot.identity.run}-{slot.identity.rank}",
        slot=slot,
        alive=alive,
        pid=4711 + slot.identity.rank if alive else None,
        gone_ns=None if gone is None else ago(gone),
        compilations=compilations,
        fallbacks=fallbacks,
        broken_lines=broken_lines,
        **(journal or {}),
    )
    return replace(view_of(reading, process=process, gpus=gpus), spending=spending)


def view_of(
    reading: RecordReading,
    now_ns: int = NOW,
    *,
    process: ProcessReading | None = None,
    **of_record: object,
) -> RankView:
    """The only rank of a run; ``of_record``: more of its ``Circumstances``, by field."""
    known: Any = {name: {reading.folder: value} for name, value in of_record.items()}
    processes = {reading.pid: process} if reading.pid is not None and process else {}
    (run,) = group([reading], Circumstances(now_ns=now_ns, processes=processes, **known))
    return run.ranks[0]


def gpu(index: int = 0, **values: object) -> GpuReading:
    """A busy H100, read half a second ago; ``values`` override its fields."""
    known: dict[str, object] = {
        "uuid": f"GPU-00000000-0000-4000-8000-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "580.159.04",
        "utilization_ratio": 0.99,
        "sm_active_ratio": 0.88,
        "tensor_active_ratio": 0.52,
        "dram_active_ratio": 0.43,
        "power_watts": 686.0,
        "power_limit_watts": 700.0,
        **values,
    }
    return GpuReading(index=index, at_ns=ago(0.5), **known)  # type: ignore[arg-type]


def runs(*views: RankView) -> tuple[RunView, ...]:
    """These ranks, grouped into runs."""
    ordered = sorted(views, key=lambda view: (view.run, view.rank))
    found = []
    for name, members in groupby(ordered, key=lambda view: view.run):
        ranks = tuple(members)
        state = least_advanced(view.judgement.state for view in ranks)
        found.append(RunView(run=name, state=state, ranks=ranks))
    return tuple(found)


def snapshot(*views: RankView, **rest: object) -> Snapshot:
    """A snapshot of these ranks without their records: what is made of it needs figures alone."""
    known: dict[str, object] = {"sources": (HEALTH,), "directories": ("/run/warmwatch",), **rest}
    bare = (replace(view, reading=None) for view in views)
    return Snapshot(epoch=EPOCH, now_ns=NOW, runs=runs(*bare), **known)  # type: ignore[arg-type]


def in_words(*views: RankView) -> str:
    """The headline and the details of these ranks, in one line."""
    made = answer(snapshot(*views))
    assert len(made.summary) <= LONGEST
    return "; ".join((made.summary, *made.details))


def head(view: RankView) -> str:
    """The words of its state, with which the headline begins after the run's name."""
    return describe_state(view)[0].text


def parts(made: Headline) -> tuple[str, tuple[str, ...]]:
    """The headline, and what it has no room for."""
    return made.summary, made.details


# One rank in each state. Slots first, for tests that change a fact or write the bytes.

STARTING = slot(attached=4)

COMPILING = slot(
    compile=CompileCounts(
        begun=1,
        active_since_ns=ago(43),
        active_phase=1 + PHASES.index("inductor"),
        accounted_ns=ago(40),
        first_begin_ns=ago(43),
        episode_began_ns=ago(43),
        phase_ns=phases(dynamo=2.0, aot_autograd=1.0),
    ),
)


def _compiled(last_end: float) -> CompileCounts:
    """Two minutes of compiling that ended ``last_end`` seconds ago, within step 1."""
    return CompileCounts(
        begun=2,
        ended=2,
        first_begin_ns=ago(last_end + 120),
        last_end_ns=ago(last_end),
        graphs=1,
        clean_after=1,
        activities_seen=2,
        first_step_ns=ago(last_end - 0.3),
        first_duration_ns=_FIRST_STEP,
        episode_began_ns=ago(last_end + 120),
        phase_ns=phases(dynamo=3.1, inductor=110.1),
        compilations=kinds(forward=1, backward=1, autotune=2),
        cache_misses=(2,) + (0,) * (len(record.CACHES) - 1),
    )


_FIRST_STEP = round(120.3 * SECOND)

WARMING = slot(
    StepCounts(steps=2, last_step_ns=ago(0.5), last_duration_ns=40_000_000),
    _compiled(0.84),
    clean=(40_000_000,),
    dirty=(_FIRST_STEP,),
)

_WARMUP = Warmup(began_ns=ago(250), ended_ns=ago(130), warm_ns=ago(129.6), steps=1)

WARM = slot(
    StepCounts(
        steps=3602,
        last_step_ns=ago(0.02),
        last_duration_ns=36_000_000,
    ),
    replace(
        _compiled(130),
        warmups=1,
        episode_began_ns=0,
        first_warmup=_WARMUP,
        last_warmup=_WARMUP,
    ),
    clean=(36_000_000,) * 3590 + (40_000_000,) * 11,
    dirty=(_FIRST_STEP,),
    tokens_per_step=16384,
    world_size=1,
)

EAGER = slot(
    StepCounts(steps=120, last_step_ns=ago(0.1), last_duration_ns=48_000_000),
    CompileCounts(first_step_ns=ago(6)),
    clean=(48_000_000,) * 119,
)

RECOMPILING = replace(
    WARM,
    compile=replace(
        WARM.compile,
        begun=3,
        active_since_ns=ago(2.1),
        active_phase=1 + PHASES.index("dynamo"),
        accounted_ns=ago(2.1),
        episode_began_ns=ago(2.1),
        episode_began_steps=3602,
        recompiles_by_category=categories(shape=1),
        recompiles_after_warm=1,
        compilations=kinds(forward=2, backward=1, autotune=2),
    ),
)
RECOMPILATION = Compilation(
    id="0/1",
    kind="forward",
    at_ns=ago(1),
    seconds=1.1,
    reason="tensor 'i' size mismatch at index 0. expected 16, actual 14",
    category="shape",
    name="forward",
    file="model.py",
    line=31,
    cache="miss",
    after_warm=True,
)
WHY = plain(RECOMPILATION.reason, RECOMPILATION.category) or ""
RECOMPILE = Recompile(
    at_ns=ago(2),
    reason="0/0: tensor 'i' size mismatch at index 0. expected 16, actual 14",
    category="shape",
    name="forward",
    file="model.py",
    line=31,
)

STALLED = replace(WARM, steps=replace(WARM.steps, last_step_ns=ago(75)))


def ended(how: str, base: Slot = WARM, seconds_ago: float = 12) -> Slot:
    """``base`` with an end on record."""
    counts = replace(base.compile, end_code=ENDS.index(how), ended_ns=ago(seconds_ago))
    return replace(base, compile=counts)


@cache
def in_every_state(run: str = "gpt2") -> dict[str, RankView]:
    """A single-rank run in each state, by the state's name."""

    def named(slot: Slot) -> Slot:
        return replace(slot, identity=replace(slot.identity, run=run))

    return {
        "starting": view(named(STARTING)),
        "compiling": view(named(COMPILING)),
        "warming": view(named(WARMING)),
        "warm": view(named(WARM)),
        "eager": view(named(EAGER)),
        "recompiling": view(
            named(RECOMPILING),
            compilations=(RECOMPILATION,),
            journal={"recompile": RECOMPILE},
        ),
        "stalled": view(named(STALLED)),
        "finished": view(named(ended("finished")), alive=False),
        "failed": view(named(ended("failed")), alive=False),
        "lost": view(named(COMPILING), alive=False, gone=10),
    }


class GrowingRecord:
    """The record of a warm training that marks steps of the lengths that a test gives it.

    Attributes:
        steps, now: the number of steps, and when the last one was marked, in seconds.
    """

    def __init__(self) -> None:
        self.steps, self.now = 1, 0.0
        self._ring, self._bins = [0] * record.RING, [0] * record.BINS

    def mark(self, seconds: float) -> None:
        """A step of that length."""
        ns = round(seconds * 1e9)
        self._ring[self.steps % record.RING] = record.packed(ns)
        self._bins[bisect_left(record.BOUNDS_NS, ns)] += 1
        self.steps += 1
        self.now += seconds

    def slot(self, base: Slot = WARM, **counts: int) -> Slot:
        """``base`` with these steps, and with ``counts`` in the compile block."""
        return replace(
            base,
            steps=StepCounts(steps=self.steps, last_step_ns=NOW + round(self.now * 1e9)),
            compile=replace(base.compile, **counts),
            clean_bins=tuple(self._bins),
            recent=record.newest_first(self._ring, self.steps),
        )


def as_rank(base: Slot, rank: int, world_size: int) -> Slot:
    """``base`` as one rank of several."""
    return replace(base, identity=replace(base.identity, rank=rank, world_size=world_size))


def moved(slot: Slot, now_ns: int, epoch_ns: int) -> Slot:
    """``slot`` with its times relative to another now, for records that a real monitor reads.

    A machine that has just booted has no time so long ago: then it is its first nanosecond.
    """

    def move(block: Block) -> Block:
        """Every time of a block; lengths stay, and so does 0, which is "not yet"."""
        new: dict[str, Any] = {}
        for name, value in block._asdict().items():
            if isinstance(value, Warmup):
                new[name] = move(value)
            elif name.endswith("_ns") and value and name not in _LENGTHS:
                new[name] = max(1, value + now_ns - NOW)
        return replace(block, **new)

    age = NOW - slot.header.attached_ns
    header = replace(
        slot.header, attached_ns=max(1, now_ns - age), attached_epoch_ns=epoch_ns - age
    )
    return replace(slot, header=header, steps=move(slot.steps), compile=move(slot.compile))


Block = TypeVar("Block", StepCounts, CompileCounts, Warmup)
_LENGTHS = frozenset(
    {
        *("last_duration_ns", "longest_rest_ns", "first_duration_ns"),
        *("compile_step_sum_ns", "clean_sum_ns", "phase_ns", "saving_ns", "evaluating_ns"),
        *("longest_activity_ns", "clean_sum_before_ns", "waited_before_ns"),
    }
)
