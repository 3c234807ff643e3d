"""Groups records into runs, resolves name conflicts, and judges each rank. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from math import inf

from msgspec import Struct, structs

from warmwatch.shared import verdict
from warmwatch.shared.record import Identity
from warmwatch.shared.states import least_advanced
from warmwatch.shared.verdict import Facts
from warmwatch_monitor.model import (
    GpuReading,
    MemoryGrowth,
    ProcessReading,
    RankView,
    RecordReading,
    RunView,
    Slower,
    began_launch,
    last_sign_ns,
)
from warmwatch_monitor.pipeline.estimates import LongestActivities
from warmwatch_monitor.pipeline.figures import cached_figures, figures
from warmwatch_monitor.pipeline.memory import workers_memory

_TOGETHER_NS = 10 * 10**9
_OUTLIVED_NS = 2 * 10**9  # a scheduler kills all ranks within this time


class Known(Struct, frozen=True, kw_only=True):
    """What is known at ``now_ns`` besides the records.

    Attributes:
        read_ns: when the reading of the records began; ``None``: now. processes: by pid.
        long_compile_ns: see ``Facts``. The others by record:
        gpus: see :func:`owned`. working: when its rank was last seen to work. busy: when any of
        its processes last was, including compilers. earlier: first warm-ups of comparable runs.
        slower, growing: how its rank is slower than before, and how its memory grows.
    """

    now_ns: int
    read_ns: int | None = None
    processes: Mapping[int, ProcessReading] = {}
    gpus: Mapping[str, tuple[GpuReading, ...]] = {}
    working: Mapping[str, int] = {}
    busy: Mapping[str, int] = {}
    long_compile_ns: int = verdict.LONG_COMPILE_NS
    earlier: Mapping[str, tuple[int, ...]] = {}
    slower: Mapping[str, Slower] = {}
    growing: Mapping[str, MemoryGrowth] = {}

    def process(self, reading: RecordReading) -> ProcessReading | None:
        return None if reading.pid is None else self.processes.get(reading.pid)


def group(readings: Iterable[RecordReading], known: Known) -> tuple[RunView, ...]:
    """All runs by name, each with its ranks in order, its GPUs and its verdict."""
    rivals: dict[str, dict[int, list[RecordReading]]] = {}
    for reading in readings:
        ranks = rivals.setdefault(reading.slot.identity.run, {})
        ranks.setdefault(reading.slot.identity.rank, []).append(reading)
    return tuple(
        _run(name, present([_representative(ranks[rank]) for rank in sorted(ranks)]), known)
        for name, ranks in sorted(rivals.items())
    )


def earlier_starts(
    readings: Iterable[RecordReading],
    runs: Iterable[RunView],
    known: Known,
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
    judged = {(run.run, run.ranks[0].record.start): run for run in before}
    return tuple(
        run
        for start, records in over.items()
        if not any(one.alive for one in records)
        for run in _unchanged(judged.get(start), records) or group(records, known)
    )


def _unchanged(run: RunView | None, records: Sequence[RecordReading]) -> tuple[RunView, ...]:
    """``run`` if it was made of just these records, which have ended."""
    if run is None:
        return ()
    read = {id(one) for one in records}
    return (run,) if all(id(view.record) in read for view in run.ranks) else ()


def present(readings: Sequence[RecordReading]) -> Sequence[RecordReading]:
    """The ranks of the latest start of a run; ranks of earlier starts are dropped.

    A launcher may restart a run with fewer ranks, and the others do not return.
    If all have ended, an earlier start was over before the latest one began.
    """
    living = [reading for reading in readings if reading.alive]
    if not living:
        latest = max(readings, key=lambda one: one.began).start
        began = min(one.began for one in readings if one.start == latest)
        return [one for one in readings if one.start == latest or _last_seen(one) >= began]
    starts = {reading.start for reading in living}
    began = max(reading.began for reading in living)
    return [one for one in readings if one.start in starts or one.began > began]


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
    return max((one for one in rivals if _made_rank(one, first)), key=_claim, default=first)


def _made_rank(one: RecordReading, by: RecordReading) -> bool:
    """Whether ``one``, which has recorded work, is a rank that the process ``by`` started."""
    started = one.start == by.start and one.began > by.began
    return started and _has_facts(one) and not _helps(one.slot.identity)


def _claim(reading: RecordReading) -> tuple[bool, bool, bool, tuple[bool, int], str]:
    """Sort key of rival records: living, not a child process, has facts, newest."""
    helps, has_facts = _helps(reading.slot.identity), reading.alive and _has_facts(reading)
    return reading.alive, not helps, has_facts, reading.began, reading.folder


def _has_facts(reading: RecordReading) -> bool:
    return bool(reading.slot.steps.steps or reading.slot.compile.begun)


def _helps(identity: Identity) -> bool:
    """Whether it is a child process that is not a rank; its parent takes precedence."""
    of_process = identity.launch.startswith("process")
    return of_process and not began_launch(identity) and identity.world_size is None


class Peers(Struct, frozen=True, kw_only=True):
    """What the ranks of a run have in common: each may wait for another. Each one's own counts too.

    Attributes:
        readings: their records. compiled_ns: when one of them last compiled. at_work_ns: when one
        was last seen to work: while it evaluates, the others wait for it in a collective.
        pause_ns: until when one of them saves or evaluates. longest: their longest activities.
    """

    readings: Sequence[RecordReading] = ()
    compiled_ns: int = 0
    at_work_ns: int = 0
    pause_ns: int = 0
    longest: LongestActivities = LongestActivities(())

    @classmethod
    def of(cls, readings: Sequence[RecordReading], known: Known) -> Peers:
        living = [one for one in readings if one.alive]
        pauses = (verdict.pause_ns(one.slot.steps, one.slot.compile) for one in living)
        return cls(
            readings=readings,
            compiled_ns=max(compiled_ns(one, known.now_ns) for one in readings),
            at_work_ns=max((known.working.get(one.folder, 0) for one in living), default=0),
            pause_ns=max(pauses, default=0),
            longest=LongestActivities(one.slot.compile for one in readings),
        )


def _run(name: str, readings: Sequence[RecordReading], known: Known) -> RunView:
    peers = Peers.of(readings, known)
    ranks = tuple(_view(reading, known, peers) for reading in readings)
    return RunView(
        run=name,
        state=least_advanced(rank.judgement.state for rank in ranks),
        ranks=ranks,
        ended_together=ended_together(readings),
    )


def _view(reading: RecordReading, known: Known, peers: Peers) -> RankView:
    """One record as a rank: judged, with its figures."""
    folder, now_ns, process = reading.folder, known.now_ns, known.process(reading)
    found = facts(reading, known, peers)
    judgement = verdict.judge(found, now_ns)
    holds, busy_ns = judgement.conditions, known.busy.get(folder)
    return RankView(
        figures=figures(reading, found, judgement, now_ns, process, known.read_ns),
        judgement=judgement,
        process=process,
        gpus=known.gpus.get(folder, ()),
        reading=reading,
        slower=known.slower.get(folder) if "slower" in holds else None,
        memory_growth=known.growing.get(folder) if "memory_growing" in holds else None,
        workers_memory=workers_memory(process) if "workers_memory" in holds else None,
        working_ns=known.working.get(folder, 0),
        idle_seconds=None if busy_ns is None else max(0, now_ns - busy_ns) / 1e9,
    )


def facts(reading: RecordReading, known: Known, peers: Peers) -> Facts:
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
        long_compile_ns=known.long_compile_ns,
        earlier_warmups_ns=known.earlier.get(folder, ()),
        slower=folder in known.slower,
        memory_growing=folder in known.growing,
        workers_compile=bool(
            reading.workers and (reading.workers.since_ns or reading.workers.renewed)
        ),
        workers_memory=workers_memory(known.process(reading)) is not None,
        fell_first=fell_first(reading, peers.readings, known.now_ns),
    )


def fell_first(one: RecordReading, readings: Sequence[RecordReading], now_ns: int) -> bool:
    """Whether a SIGKILL took this rank alone, so that the run failed with it.

    A launcher that finds a dead rank ends the others, with SIGTERM first; a scheduler that cancels
    a job does the same. So a rank that died before any peer was terminated was killed alone if one
    of two things followed: a peer was terminated, or outlived it by more than a scheduler needs to
    kill all.
    """
    death = one.death
    if death is None:
        return False
    from signal import SIGKILL, SIGTERM  # here: most runs have no death

    if death.signal != SIGKILL:
        return False
    deaths = [peer.death for peer in readings if peer.death is not None]
    terminated = [other.at_ns for other in deaths if other.signal == SIGTERM]
    if terminated:
        return death.at_ns < min(terminated)
    # also after the end of the peers: an end does not change what was known before it
    return max(_lived_until_ns(peer, now_ns) for peer in readings) > death.at_ns + _OUTLIVED_NS


def _lived_until_ns(one: RecordReading, now_ns: int) -> int:
    """The last moment at which this process is known to have lived."""
    if one.alive:
        return now_ns
    killed_ns = one.death.at_ns if one.death else 0
    return killed_ns or max(one.gone_ns or 0, one.slot.compile.ended_ns)


def ended_together(readings: Sequence[RecordReading]) -> bool | None:
    """Whether all of several ranks ended within seconds; see :class:`RunView`."""
    gone = [one for one in readings if not one.alive or one.slot.compile.end_code]
    if len(readings) < 2 or not gone:
        return None
    if len(gone) < len(readings):
        return False
    ends = [one.slot.compile.ended_ns or one.gone_ns for one in gone]
    known = [end for end in ends if end]
    if len(known) < len(ends):
        return None
    return max(known) - min(known) <= _TOGETHER_NS


def _by_uuid(gpus: Iterable[GpuReading]) -> dict[str, GpuReading]:
    """Devices by uuid, with and without the prefix, which differs between CUDA and NVML."""
    devices: dict[str, GpuReading] = {}
    for gpu in gpus:
        devices[gpu.uuid] = gpu
        devices.setdefault(_bare(gpu.uuid), gpu)
    return devices


def owned(
    readings: Iterable[RecordReading], gpus: Iterable[GpuReading]
) -> dict[str, tuple[GpuReading, ...]]:
    """By record, the devices that its rank reports, of those that are known here."""
    devices = _by_uuid(gpus)
    return {reading.folder: _used(reading, devices) for reading in readings}


def _used(reading: RecordReading, devices: Mapping[str, GpuReading]) -> tuple[GpuReading, ...]:
    """The devices that the rank reports, of those that are known here."""
    uuids = reading.slot.identity.gpus
    found = (devices.get(uuid) or devices.get(_bare(uuid)) for uuid in uuids)
    return tuple(gpu for gpu in found if gpu is not None)


def _bare(uuid: str) -> str:
    return uuid.removeprefix("MIG-").removeprefix("GPU-")


def compiled_ns(reading: RecordReading, now_ns: int) -> int:
    """The latest moment at which a living rank compiled; 0 if there is none."""
    compile = reading.slot.compile
    if not reading.alive:
        return 0
    return now_ns if compile.active_since_ns else compile.last_end_ns


Start = tuple[str, str]  # the run's name and the id of its launch


def numbered_conflicts(
    readings: Iterable[RecordReading], given: Mapping[Start, str]
) -> tuple[tuple[RecordReading, ...], dict[Start, str]]:
    """The readings under unique names, and the names assigned, for the next poll.

    The agent numbers a run whose name is taken (``train-2``). This function numbers names that a
    user set twice, and runs that began at the same moment; the later one is numbered. Two starts
    conflict only if the same rank lived in both at one time: several launchers may start the ranks
    of one run, and a run may be started again. Runs of different owners never conflict:
    the source has added the owner to their names.

    A start has its assigned name for as long as any of its records exists.
    """
    starts: dict[Start, list[RecordReading]] = {}
    for reading in readings:
        identity = reading.slot.identity
        starts.setdefault((identity.run, identity.launch), []).append(reading)
    names = {start: name for start, name in given.items() if start in starts}
    taken = {run for run, _ in starts} | set(names.values())
    unnumbered: dict[str, list[RecordReading]] = {}
    for start in sorted(starts, key=lambda one: _began(starts[one])):
        run, records = start[0], starts[start]
        if start in names:
            continue
        others = unnumbered.setdefault(run, [])
        if _overlap(records, others):
            names[start] = _free(records[0], taken)
            taken.add(names[start])
        else:
            others.extend(records)
    renamed = [
        _renamed(one, names[start]) if start in names else one
        for start, records in starts.items()
        for one in records
    ]
    return tuple(renamed), names


def _began(records: Sequence[RecordReading]) -> tuple[bool, int]:
    return min(one.began for one in records)


def _overlap(records: Sequence[RecordReading], others: Sequence[RecordReading]) -> bool:
    """Whether a rank lived in both at one time; not known for records of an earlier boot."""
    if not others:
        return False
    lives: dict[int, list[tuple[int, float]]] = {}
    for one in others:
        lives.setdefault(one.slot.identity.rank, []).append(_life(one))
    pairs = ((_life(one), lives.get(one.slot.identity.rank, ())) for one in records)
    return any(
        begin < until and began < end for (begin, end), known in pairs for began, until in known
    )


def _life(one: RecordReading) -> tuple[int, float]:
    """When it attached and its last sign of life, in monotonic time; empty for an earlier boot."""
    if not one.this_boot:
        return 0, 0
    end = inf if one.alive else max(last_sign_ns(one.slot), one.slot.compile.ended_ns)
    return one.slot.header.attached_ns, end


def _free(one: RecordReading, taken: set[str]) -> str:
    """A name that no other run has; the number follows the run's own name, before the owner."""
    run, owner = one.slot.identity.run, one.owner
    numbered = (f"{owner.plain(run) if owner else run}-{n}" for n in count(2))
    shown = (owner.shown(name) if owner else name for name in numbered)
    return next(name for name in shown if name not in taken)


def _renamed(reading: RecordReading, name: str) -> RecordReading:
    slot = reading.slot
    return structs.replace(
        reading,
        slot=slot._replace(identity=slot.identity._replace(run=name)),
        reported_run=slot.identity.run,
    )
