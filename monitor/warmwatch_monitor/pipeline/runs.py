"""Groups records into runs, resolves name conflicts, and judges each rank. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from math import inf
from signal import SIGKILL, SIGTERM

from msgspec import Struct
from msgspec.structs import replace

from warmwatch.shared import verdict
from warmwatch.shared.record import Identity, Slot
from warmwatch.shared.states import least_advanced
from warmwatch.shared.verdict import Facts
from warmwatch_monitor.figures.rank import MemoryGrowth, Slower
from warmwatch_monitor.model.machine import GpuReading, ProcessReading
from warmwatch_monitor.model.records import RecordReading, began_launch, last_sign_ns
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.pipeline.estimates import LongestActivities
from warmwatch_monitor.pipeline.figures import cached_figures, figures
from warmwatch_monitor.pipeline.memory import workers_memory

_TOGETHER_NS = 10 * 10**9
_OUTLIVED_NS = 2 * 10**9  # a scheduler kills all ranks within this time
_USUAL_TIMEOUT_NS = 600 * 10**9  # of collectives: NCCL's, and the shortest of all backends


class Circumstances(Struct, frozen=True, kw_only=True):
    """What is known at ``now_ns`` besides the records; by record, unless another key is named."""

    now_ns: int
    read_ns: int | None = None  # when the reading of the records began; ``None``: now
    processes: Mapping[int, ProcessReading] = {}  # by pid
    gpus: Mapping[str, tuple[GpuReading, ...]] = {}  # see ``owned``
    working: Mapping[str, int] = {}  # when its rank was last seen to work
    busy: Mapping[str, int] = {}  # when any of its processes last was, including compilers
    measured: Collection[str] = ()  # records of ranks whose work, or rest, the last readings show
    long_compile_ns: int = verdict.LONG_COMPILE_NS  # see ``Facts``
    earlier: Mapping[str, tuple[int, ...]] = {}  # first warm-ups of comparable runs
    slower: Mapping[str, Slower] = {}
    slowing: Collection[str] = ()  # records of ranks that are slower, perhaps not for long
    growing: Mapping[str, MemoryGrowth] = {}
    children: Mapping[str, RecordReading] = {}  # see :func:`compiling_children`

    def process(self, reading: RecordReading) -> ProcessReading | None:
        return None if reading.pid is None else self.processes.get(reading.pid)


def group(readings: Iterable[RecordReading], circumstances: Circumstances) -> tuple[RunView, ...]:
    """All runs by name, each with its ranks in order, its GPUs and its verdict."""
    runs: dict[str, list[RecordReading]] = {}
    for reading in readings:
        runs.setdefault(reading.slot.identity.run, []).append(reading)
    return tuple(_run(_ranks(records), circumstances) for _, records in sorted(runs.items()))


def earlier_starts(
    readings: Iterable[RecordReading],
    runs: Iterable[RunView],
    circumstances: Circumstances,
    before: Iterable[RunView] = (),
) -> tuple[RunView, ...]:
    """Starts that are over and of which ``runs`` shows a later one: the history stores them.

    ``before``: those of the last poll. One whose records have not changed is not judged again.
    """
    shown = {(run.run, view.record.start) for run in runs for view in run.ranks}
    over: dict[tuple[str, tuple[str, int]], list[RecordReading]] = {}
    for reading in readings:
        start = reading.slot.identity.run, reading.start
        if start not in shown:
            over.setdefault(start, []).append(reading)
    judged = {tuple(id(view.record) for view in run.ranks): run for run in before}
    ended = (records for records in over.values() if not any(record.alive for record in records))
    return tuple(
        judged.get(tuple(map(id, ranks))) or _run(ranks, circumstances)
        for ranks in map(_ranks, ended)
    )


def _ranks(records: Iterable[RecordReading]) -> Sequence[RecordReading]:
    """The record that represents each rank of a run, in order of the ranks."""
    rivals: dict[int, list[RecordReading]] = {}
    for record in records:
        rivals.setdefault(record.slot.identity.rank, []).append(record)
    return _of_latest_start([_representative(rivals[rank]) for rank in sorted(rivals)])


def _of_latest_start(readings: Sequence[RecordReading]) -> Sequence[RecordReading]:
    """The ranks of the latest start of a run; ranks of earlier starts are dropped.

    A launcher may restart a run with fewer ranks, and the others do not return.
    If all have ended, an earlier start was over before the latest one began.
    """
    living = [reading for reading in readings if reading.alive]
    if not living:
        start = max(readings, key=lambda reading: reading.began).start
        began = min(reading.began for reading in readings if reading.start == start)
        return [
            reading
            for reading in readings
            if reading.start == start or _last_seen(reading) >= began
        ]
    starts = {reading.start for reading in living}
    began = max(reading.began for reading in living)
    return [reading for reading in readings if reading.start in starts or reading.began > began]


def _last_seen(reading: RecordReading) -> tuple[bool, int]:
    """The last moment of an ended record, to compare with another record's ``began``."""
    slot, (this_boot, began) = reading.slot, reading.began
    last = max(last_sign_ns(slot), slot.compile.ended_ns, reading.gone_ns or 0)
    return this_boot, began + last - slot.header.attached_ns


def _representative(rivals: Sequence[RecordReading]) -> RecordReading:
    """The one of ``rivals``, all records of the same rank, that represents it.

    A process that only waits for the ranks that it started never represents one of them, even
    though it outlives them.
    """
    if len(rivals) == 1:
        return rivals[0]
    first = max(rivals, key=_claim)
    if _has_facts(first) or not began_launch(first.slot.identity):
        return first
    return max((rival for rival in rivals if _made_rank(rival, first)), key=_claim, default=first)


def _made_rank(reading: RecordReading, by: RecordReading) -> bool:
    """Whether ``reading``, which has recorded work, is a rank that the process ``by`` started."""
    started = reading.start == by.start and reading.began > by.began
    return started and _has_facts(reading) and not _is_helper(reading.slot.identity)


def _claim(reading: RecordReading) -> tuple[bool, bool, bool, tuple[bool, int], str]:
    """Sort key of rival records: living, not a child process, has facts, newest."""
    is_helper, has_facts = _is_helper(reading.slot.identity), reading.alive and _has_facts(reading)
    return reading.alive, not is_helper, has_facts, reading.began, reading.folder


def _has_facts(reading: RecordReading) -> bool:
    return bool(reading.slot.steps.steps or reading.slot.compile.begun)


def _is_helper(identity: Identity) -> bool:
    """Whether it is a child process that is not a rank; its parent takes precedence."""
    began_by_process = identity.launch.startswith("process")
    return began_by_process and not began_launch(identity) and identity.world_size is None


def compiling_children(readings: Iterable[RecordReading]) -> dict[str, RecordReading]:
    """By record, the child process of its rank that compiles as a run of its own, for longest."""
    living = [reading for reading in readings if reading.alive]
    longest: dict[tuple[tuple[str, int], int], RecordReading] = {}  # by start and rank
    for reading in living:
        since_ns, rank = reading.slot.compile.active_since_ns, _rank_key(reading)
        if since_ns and _is_child(reading.slot.identity):
            other = longest.get(rank)
            if other is None or since_ns < other.slot.compile.active_since_ns:
                longest[rank] = reading
    return {
        reading.folder: longest[_rank_key(reading)]
        for reading in living
        if longest and _rank_key(reading) in longest and not _is_child(reading.slot.identity)
    }


def _rank_key(reading: RecordReading) -> tuple[tuple[str, int], int]:
    return reading.start, reading.slot.identity.rank


def _is_child(identity: Identity) -> bool:
    """Whether it was forked or spawned by a rank, and is none itself."""
    alone = identity.world_size is None and not began_launch(identity)
    return alone and identity.launch.startswith(("process:", "parent:"))


class Peers(Struct, frozen=True, kw_only=True):
    """What the ranks of a run share: each may wait for any of them, and its own counts too."""

    readings: Sequence[RecordReading] = ()
    compiled_ns: int = 0  # when one of them last compiled
    at_work_ns: int = 0  # when one was last seen to work: others wait for one that evaluates
    pause_ns: int = 0  # until when one of them saves or evaluates
    measured: bool = False  # it is known of each living one whether it works
    longest: LongestActivities = LongestActivities(())

    @classmethod
    def of(cls, readings: Sequence[RecordReading], circumstances: Circumstances) -> Peers:
        living = [reading for reading in readings if reading.alive]
        pauses = (verdict.pause_ns(reading.slot.steps, reading.slot.compile) for reading in living)
        return cls(
            readings=readings,
            compiled_ns=max(compiled_ns(reading, circumstances.now_ns) for reading in readings),
            at_work_ns=max(
                (circumstances.working.get(reading.folder, 0) for reading in living), default=0
            ),
            pause_ns=max(pauses, default=0),
            measured=all(reading.folder in circumstances.measured for reading in living),
            longest=LongestActivities(reading.slot.compile for reading in readings),
        )


def _run(readings: Sequence[RecordReading], circumstances: Circumstances) -> RunView:
    peers = Peers.of(readings, circumstances)
    ranks = tuple(_view(reading, circumstances, peers) for reading in readings)
    return RunView(
        run=readings[0].slot.identity.run,
        state=least_advanced(rank.judgement.state for rank in ranks),
        ranks=ranks,
        ended_together=ended_together(readings),
    )


def _view(reading: RecordReading, circumstances: Circumstances, peers: Peers) -> RankView:
    """One record as a rank: judged, with its figures."""
    folder, now_ns, process = reading.folder, circumstances.now_ns, circumstances.process(reading)
    reported = facts(reading, circumstances, peers)
    judgement = verdict.judge(reported, now_ns)
    conditions, busy_ns = judgement.conditions, circumstances.busy.get(folder)
    child = circumstances.children.get(folder)
    of_rank = figures(reading, reported, judgement, now_ns, process, circumstances.read_ns)
    if folder in circumstances.slowing and of_rank.steps.settled:
        steps = replace(of_rank.steps, settled=False, trend="slower")
        of_rank = replace(of_rank, steps=steps)
    return RankView(
        figures=of_rank,
        judgement=judgement,
        process=process,
        gpus=circumstances.gpus.get(folder, ()),
        reading=reading,
        slower=circumstances.slower.get(folder) if "slower" in conditions else None,
        memory_growth=circumstances.growing.get(folder) if "memory_growing" in conditions else None,
        workers_memory=workers_memory(process) if "workers_memory" in conditions else None,
        compiling_child=child.slot.identity.run if child else None,
        working_ns=circumstances.working.get(folder, 0),
        idle_seconds=None if busy_ns is None else max(0, now_ns - busy_ns) / 1e9,
    )


def facts(reading: RecordReading, circumstances: Circumstances, peers: Peers) -> Facts:
    """The facts of a record, as input of the verdict."""
    slot, steps, folder = reading.slot, cached_figures(reading).steps, reading.folder
    clean = steps.clean
    return Facts(
        attached_ns=slot.header.attached_ns,
        warm_steps=slot.header.warm_steps,
        steps=slot.steps,
        compile=slot.compile,
        median_step_ns=None if clean.median is None else clean.median * 1e9,
        longest_step_ns=round((clean.longest or 0.0) * 1e9),
        alive=reading.alive,
        gone_ns=reading.gone_ns,
        peers_compiled_ns=peers.compiled_ns,
        last_batch_ns=slot.steps.last_batch_ns,
        working_ns=peers.at_work_ns,
        pause_ns=peers.pause_ns,
        baseline_steps=slot.identity.baseline_steps or 0,
        usual_step_ns=None if steps.length is None else steps.length * 1e9,
        killed_by=reading.death.signal if reading.death else 0,
        peers_longest_ns=peers.longest.longest_ns(slot.compile),
        long_compile_ns=circumstances.long_compile_ns,
        earlier_warmups_ns=circumstances.earlier.get(folder, ()),
        slower=folder in circumstances.slower,
        memory_growing=folder in circumstances.growing,
        workers_compile=bool(
            reading.workers and (reading.workers.since_ns or reading.workers.renewed)
        ),
        workers_memory=workers_memory(circumstances.process(reading)) is not None,
        fell_first=fell_first(reading, peers.readings, circumstances.now_ns),
        collective_timeout_ns=_collective_timeout_ns(slot) if peers.measured else 0,
        dismissed=_dismissed(reading),
    )


def _dismissed(reading: RecordReading) -> bool:
    """Whether the parent of this child most likely ended it, as ``Pool.terminate`` does.

    If no reader saw the signal, it counts as the parent's unless it came in the middle of work.
    """
    if reading.slot.identity.child != "daemon":
        return False
    if reading.death is None:
        return not reading.slot.compile.active_since_ns
    return reading.death.signal == SIGTERM


def _collective_timeout_ns(slot: Slot) -> int:
    """The timeout of the collectives of a rank that will step; 0 without peers.

    An optimizer shows that it will, or torchrun, which starts no servers. A rank may hang before
    its agent reports a timeout.
    """
    identity = slot.identity
    trains = slot.compile.optimizers or identity.launcher == "torchelastic"
    if not trains or (identity.world_size or 1) < 2:
        return 0
    reported = identity.collective_timeout
    return _USUAL_TIMEOUT_NS if reported is None else round(reported * 1e9)


def fell_first(reading: RecordReading, readings: Sequence[RecordReading], now_ns: int) -> bool:
    """Whether a SIGKILL took this rank alone, so that the run failed with it.

    A launcher that finds a dead rank ends the others, with SIGTERM first; a scheduler that cancels
    a job does the same. So a rank that died before any peer was terminated was killed alone if one
    of two things followed: a peer was terminated, or outlived it by more than a scheduler needs to
    kill all.
    """
    death = reading.death
    if death is None:
        return False
    if death.signal != SIGKILL:
        return False
    deaths = [peer.death for peer in readings if peer.death is not None]
    terminated = [other.at_ns for other in deaths if other.signal == SIGTERM]
    if terminated:
        return death.at_ns < min(terminated)
    # also after the end of the peers: an end does not change what was known before it
    return max(_lived_until_ns(peer, now_ns) for peer in readings) > death.at_ns + _OUTLIVED_NS


def _lived_until_ns(reading: RecordReading, now_ns: int) -> int:
    """The last moment at which this process is known to have lived."""
    if reading.alive:
        return now_ns
    killed_ns = reading.death.at_ns if reading.death else 0
    return killed_ns or max(reading.gone_ns or 0, reading.slot.compile.ended_ns)


def ended_together(readings: Sequence[RecordReading]) -> bool | None:
    """Whether all of several ranks ended within seconds; see :class:`RunView`."""
    gone = [reading for reading in readings if not reading.alive or reading.slot.compile.end_code]
    if len(readings) < 2 or not gone:
        return None
    if len(gone) < len(readings):
        return False
    ends = [reading.slot.compile.ended_ns or reading.gone_ns or 0 for reading in gone]
    if not all(ends):
        return None
    return max(ends) - min(ends) <= _TOGETHER_NS


def compiled_ns(reading: RecordReading, now_ns: int) -> int:
    """The latest moment at which a living rank compiled; 0 if there is none."""
    counts = reading.slot.compile
    if not reading.alive:
        return 0
    return now_ns if counts.active_since_ns else counts.last_end_ns


def numbered_conflicts(
    readings: Iterable[RecordReading], before: Mapping[str, str]
) -> tuple[tuple[RecordReading, ...], dict[str, str]]:
    """The readings under unique names, and the names assigned, by record.

    ``before``: those of the last poll, also for records that cannot be read now.

    The agent numbers a run whose name is taken (``train-2``). This function numbers names that a
    user set twice, and runs that began at the same moment; the later one is numbered. Two launches
    conflict only if the same rank lived in both at one time: several launchers may start the ranks
    of one run, and a run may be started again. Runs of different owners never conflict:
    the source has added the owner to their names.

    A launch has its assigned name for as long as any of its records exists.
    """
    launches: dict[tuple[str, str], list[RecordReading]] = {}  # by name and id
    for reading in readings:
        identity = reading.slot.identity
        launches.setdefault((identity.run, identity.launch), []).append(reading)
    taken = {run for run, _ in launches} | set(before.values())
    unnumbered: dict[str, list[RecordReading]] = {}
    renamed: list[RecordReading] = []
    names: dict[str, str] = {}
    for (run, _), records in sorted(
        launches.items(), key=lambda item: min(record.began for record in item[1])
    ):
        given = (before[record.folder] for record in records if record.folder in before)
        name = next(given, None)
        others = unnumbered.setdefault(run, [])
        if name is None and _overlap(records, others):
            name = _free(records[0], taken)
            taken.add(name)
        if name is None:
            others.extend(records)
        names.update((record.folder, name) for record in records if name)
        renamed.extend(_renamed(record, name) if name else record for record in records)
    return tuple(renamed), names


def _overlap(records: Sequence[RecordReading], others: Sequence[RecordReading]) -> bool:
    """Whether a rank lived in both at one time; not known for records of an earlier boot."""
    lives: dict[int, list[tuple[int, float]]] = {}
    for other in others:
        lives.setdefault(other.slot.identity.rank, []).append(_life(other))
    for record in records:
        began, ended = _life(record)
        for other_began, other_ended in lives.get(record.slot.identity.rank, ()):
            if began < other_ended and other_began < ended:
                return True
    return False


def _life(reading: RecordReading) -> tuple[int, float]:
    """When it attached and its last sign of life, in monotonic time; empty for an earlier boot."""
    if not reading.this_boot:
        return 0, 0
    end = inf if reading.alive else max(last_sign_ns(reading.slot), reading.slot.compile.ended_ns)
    return reading.slot.header.attached_ns, end


def _free(reading: RecordReading, taken: set[str]) -> str:
    """A name that no other run has; the number follows the run's own name, before the owner."""
    run, owner = reading.slot.identity.run, reading.owner
    numbered = (f"{owner.plain(run) if owner else run}-{n}" for n in count(2))
    shown = (owner.shown(name) if owner else name for name in numbered)
    return next(name for name in shown if name not in taken)


def _renamed(reading: RecordReading, name: str) -> RecordReading:
    slot = reading.slot
    return replace(
        reading,
        slot=slot._replace(identity=slot.identity._replace(run=name)),
        reported_run=slot.identity.run,
    )
