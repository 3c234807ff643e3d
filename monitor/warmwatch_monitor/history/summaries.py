"""Makes a run summary from a run's view in a Snapshot and the journals of its records.

Pure, except that ``read`` reads journals. Only for runs of this host: runs from Prometheus have no
records.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType

from msgspec import to_builtins
from msgspec.structs import replace

from warmwatch.shared.record import Identity
from warmwatch_monitor.figures.compile import OF_GRAPHS
from warmwatch_monitor.figures.declared import copied
from warmwatch_monitor.model.journal import Compilation, ParsedJournal
from warmwatch_monitor.model.records import RecordReading, began_launch, last_sign_ns
from warmwatch_monitor.model.run_summary import (
    Compiled,
    Provenance,
    RankSummary,
    RunSummary,
    Samples,
)
from warmwatch_monitor.model.snapshot import RankView, RunView, Snapshot
from warmwatch_monitor.sources.records.parsed_journal import parse_journal
from warmwatch_monitor.status.run import rank as answer_of
from warmwatch_monitor.status.words.run import run_answer

_ID_BYTES = 5  # 8 letters and digits
_MOST_COMPILED = 40_000  # of all ranks of a run together
_MOST_OF_RANK = 2_000
_FEWEST_COMPILED = 50  # of each rank, regardless of their number
_LONGEST_REASON = 1_000
_CACHE_STATES = frozenset({"cold", "warm"})
_NO_RANKS: Mapping[int, Samples] = MappingProxyType({})
_NO_GPUS: Mapping[str, Samples] = MappingProxyType({})


def summarize_run(
    run: RunView,
    snapshot: Snapshot,
    *,
    read: Callable[[str], ParsedJournal] = parse_journal,
    samples: Mapping[int, Samples] = _NO_RANKS,
    gpu_samples: Mapping[str, Samples] = _NO_GPUS,
) -> RunSummary:
    """The summary of ``run``, which is a run of ``snapshot``.

    Args:
        read: returns the parsed journal of a record's folder.
        samples: by rank. gpu_samples: by uuid.
    """
    parsed = {view.rank: read(view.record.folder) for view in run.ranks}
    first = min(run.ranks, key=_attached_ns)
    return RunSummary(
        id=id_of(run),
        run=run.run,
        owner=run.who.owner,
        host=first.figures.who.host,
        start=start_of(run),
        began=began_at(run),
        ended=ended_at(run),
        seen=seen_at(run, snapshot.epoch),
        state=run.state.value,
        summary=run_answer(run).summary,
        what=provenance(run, parsed.values()),
        ranks=tuple(
            _rank(view, run, parsed[view.rank], samples.get(view.rank)) for view in run.ranks
        ),
        gpu_samples={
            uuid: gpu_samples[uuid]
            for uuid in sorted({uuid for view in run.ranks for uuid in view.gpu_uuids})
            if uuid in gpu_samples
        },
    )


def id_of(run: RunView) -> str:
    """Eight letters and digits: the same for one start of a run in every monitor, at any time.

    The launch distinguishes it from other starts (with the boot id, since pids are reused), and
    the name from other runs of the same launcher. A process that is its own launch may attach
    repeatedly under one name, and a batch script may start several trainings: each is a run. The
    id excludes what differs between monitors: an owner or a number appended to the name.
    """
    first = min(run.ranks, key=_attached_ns)
    identity = first.record.slot.identity
    alone = not identity.launch or began_launch(identity) or _is_only_rank(identity, run)
    attached = _attached_ns(first) if alone else None
    return _short(start_of(run), attached, None if attached is not None else _own_name(first))


def start_of(run: RunView) -> str:
    """Id of the run's launch, which stays the same if the run is renamed."""
    return start_of_record(min(run.ranks, key=_attached_ns).record)


def start_of_record(reading: RecordReading) -> str:
    """Id of the launch of a record."""
    identity, owner = reading.slot.identity, reading.owner
    machine = identity.boot_id or identity.host
    return _short(owner.uid if owner else None, machine, identity.launch, identity.attempt)


def _short(*parts: object) -> str:
    return b32encode(sha256(repr(parts).encode()).digest()[:_ID_BYTES]).decode().lower()


def began_at(run: RunView) -> float:
    """When its first rank attached."""
    return min(map(_attached_ns, run.ranks)) / 1e9


def ended_at(run: RunView) -> float | None:
    """When its last rank ended; ``None`` while a rank runs, or if an end is unknown."""
    if run.living:
        return None
    ends = [view.figures.progress.state_since for view in run.ranks]
    values = [at for at in ends if at is not None]
    return max(values) if len(values) == len(ends) else None


def seen_at(run: RunView, epoch: float) -> float:
    """When it was last seen: at ``epoch``, or at its last recorded event if its end is unknown."""
    if run.living or ended_at(run) is not None:
        return epoch
    return min(epoch, max(map(_last_event_at, run.ranks)))


def _last_event_at(view: RankView) -> float:
    slot = view.record.slot
    recorded = slot.header.epoch_seconds(last_sign_ns(slot))
    return max(recorded, view.figures.progress.state_since or recorded)


def provenance(run: RunView, parsed: Iterable[ParsedJournal] = ()) -> Provenance:
    """The provenance of a run, from its ranks and their journals."""
    first = run.ranks[0]
    worth, gpus = first.figures.worth, {gpu.uuid: gpu for rank in run.ranks for gpu in rank.gpus}
    names = (gpu.name for gpu in gpus.values() if gpu.name)
    return replace(
        what_of(first.record.slot.identity, tuple(parsed), tuple(names)),
        unnumbered=_unnumbered(first),
        driver=next((gpu.driver for gpu in gpus.values() if gpu.driver), None),
        disabled=first.figures.compile.disabled,
        tokens_per_step=worth.tokens,
        samples_per_step=worth.samples,
    )


def what_of(
    identity: Identity, parsed: Sequence[ParsedJournal], gpus: tuple[str, ...]
) -> Provenance:
    """The provenance from one record, journals and the names of the GPUs."""
    return Provenance(
        script=identity.script or None,
        commit=identity.commit or None,
        code=_code(parsed),
        python=identity.python or None,
        torch=identity.torch or None,
        cuda=identity.cuda or None,
        triton=identity.triton or None,
        gpus=gpus,
        launcher=identity.launcher or None,
        world_size=identity.world_size,
        # of the rank that called `torch.compile` most; the ranks of a run make the same calls
        wrappings=max((each.calls for each in parsed), key=len, default=()),
        caches=_caches(identity),
        compile_threads=identity.compile_threads,
    )


def _rank(
    view: RankView, run: RunView, parsed: ParsedJournal, samples: Samples | None
) -> RankSummary:
    share = max(_FEWEST_COMPILED, _MOST_COMPILED // len(run.ranks))
    most, death = min(share, _MOST_OF_RANK), view.record.death
    return RankSummary(
        rank=view.rank,
        answer=to_builtins(answer_of(view, ended_together=run.ended_together)),
        compiled=tuple(_compiled(compilation, view) for compilation in parsed.compilations[:most]),
        left_out=parsed.left_out
        + max(0, len(parsed.compilations) - most)
        + _dropped_lines(view, parsed),
        samples=samples,
        first_step_bytes=parsed.first_step_bytes,
        death=death and replace(death, out_of_memory=view.oom_killed),
        outside=view.record.outside,
    )


def _dropped_lines(view: RankView, parsed: ParsedJournal) -> int:
    """Number of compilations whose lines were dropped because the journal was full."""
    if not view.figures.agent.lines_dropped:
        return 0  # the missing lines are not written yet
    there = sum(compilation.kind in OF_GRAPHS for compilation in parsed.compilations)
    return max(0, (view.figures.compile.compilations or 0) - there - parsed.left_out)


def _compiled(compilation: Compilation, view: RankView) -> Compiled:
    cost = compilation.cost
    return copied(
        compilation,
        Compiled,
        ended=view.record.slot.header.epoch_seconds(compilation.at_ns),
        reason=compilation.reason[:_LONGEST_REASON] if compilation.reason else compilation.reason,
        phase_seconds=cost.phase_seconds,
        slowest_kernels=cost.slowest,
    )


def _attached_ns(view: RankView) -> int:
    return view.record.slot.header.attached_epoch_ns


def _is_only_rank(identity: Identity, run: RunView) -> bool:
    """Whether a launcher started the process as the only rank of its run."""
    alone = len(run.ranks) == 1 and identity.world_size in (None, 1)
    return alone and bool(identity.launcher)


def _own_name(view: RankView) -> str:
    """The run's name in its record."""
    reading = view.record
    shown = reading.reported_run or reading.slot.identity.run
    return reading.owner.plain(shown) if reading.owner else shown


def _unnumbered(view: RankView) -> str | None:
    """Its name without a number: the agent appended one, or the monitor, which has both names."""
    if unnumbered := view.record.slot.identity.unnumbered:
        return unnumbered
    return _own_name(view) if view.record.reported_run else None


def _code(parsed: Iterable[ParsedJournal]) -> str | None:
    """One hash of the hashes of all functions, independent of their order and rank."""
    names = {
        compilation.code for each in parsed for compilation in each.compilations if compilation.code
    }
    return sha256("\n".join(sorted(names)).encode()).hexdigest()[:12] if names else None


def _caches(identity: Identity) -> Mapping[str, str]:
    """The state of the caches. Triton's counts only if Triton is used, else it is always cold."""
    return {
        name: state
        for name, state in identity.caches.items()
        if state in _CACHE_STATES and (name != "triton" or identity.triton)
    }
