"""Likely causes of slower steps: what differs now from the time when they were faster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from warmwatch.shared.phrases import counted
from warmwatch.shared.record import Slot
from warmwatch_monitor.model import GpuReading, HostReading
from warmwatch_monitor.model.machine import HARMLESS

_SM_CLOCK = "sm"
_LOADED, _WAITING, _SAVING, _CLOCKED, _CAPPED, _STOLEN = 1.2, 0.2, 0.2, 0.9, 0.95, 0.1
_RETRY_EVERY_NS = 10 * 10**9  # a retry takes 10 ms to 1 s: fewer cannot slow each step


class Surroundings(Struct, frozen=True, kw_only=True):
    """What may explain a speed, at one moment; ``None`` is "not known".

    Attributes:
        at_ns: the last step. attached_ns: when the agent attached. load, cpus: of the host.
        stolen: CPU seconds that the hypervisor gave to other machines, so far. wait_ns: time spent
        waiting for batches. saving_ns: time in which other threads saved. tokens: tokens per step.
        fallbacks, breaks, retries (of CUDA's allocator): so far. clock_hertz: of the slowest GPU's
        SMs. limit_watts: the lowest power limit of its GPUs. throttled: reasons of any of its GPUs.
        others: processes on its GPUs.
    """

    at_ns: int
    attached_ns: int
    load: float | None = None
    cpus: int | None = None
    stolen: float | None = None
    wait_ns: int = 0
    saving_ns: int = 0
    tokens: int = 0
    fallbacks: int = 0
    breaks: int = 0
    retries: int | None = None
    clock_hertz: float | None = None
    limit_watts: float | None = None
    throttled: tuple[str, ...] = ()
    others: int | None = None


def surroundings_of(
    slot: Slot, gpus: Sequence[GpuReading], host: HostReading | None
) -> Surroundings:
    """The surroundings of a rank now."""
    steps, counts = slot.steps, slot.compile
    clocks = [dict(gpu.clocks_hertz).get(_SM_CLOCK) for gpu in gpus]
    listed = [len(gpu.processes) for gpu in gpus if gpu.processes is not None]
    reasons = {name for gpu in gpus for name, holds in gpu.throttled if holds}
    since = counts.background_saving_since_ns
    return Surroundings(
        at_ns=steps.last_step_ns,
        attached_ns=slot.header.attached_ns,
        load=host.load_1m if host else None,
        cpus=host.cpus if host else None,
        stolen=host.stolen_seconds if host else None,
        wait_ns=steps.batch_wait_ns,
        saving_ns=counts.background_saving_ns
        + (max(0, steps.last_step_ns - since) if since else 0),
        tokens=counts.tokens_per_step,
        fallbacks=counts.fallbacks,
        breaks=counts.graph_breaks,
        retries=counts.allocator_retries - 1 if counts.allocator_retries else None,
        clock_hertz=min((hertz for hertz in clocks if hertz), default=None),
        limit_watts=min(
            (one.power_limit_watts for one in gpus if one.power_limit_watts), default=None
        ),
        throttled=tuple(sorted(reasons)),
        others=max(listed, default=None),
    )


def causes(before: Surroundings | None, now: Surroundings) -> Iterator[str]:
    """Differences that make steps longer, most certain first; empty if none is known.

    ``before``: ``None`` if no poll saw the rank while it was faster.
    """
    changes = list(_changed(before, now)) if before is not None else []
    known = set(before.throttled) if before else HARMLESS
    if throttled := [reason for reason in now.throttled if reason not in known]:
        changes.append(f"GPU throttled ({', '.join(throttled)})")
    yield from changes
    earlier = before.load if before and before.load else 0.0
    if now.load and now.cpus and now.load > _LOADED * now.cpus:
        if now.load > _LOADED * earlier:
            yield f"load {now.load:.1f} on {now.cpus} CPUs"
        elif not changes and now.load >= earlier:  # shares of the CPUs may have changed
            yield f"load {now.load:.1f} on {now.cpus} CPUs ({earlier:.1f} before)"


def _changed(before: Surroundings, now: Surroundings) -> Iterator[str]:
    yield from _changed_in_program(before, now)
    if now.others is not None and before.others is not None and now.others > before.others:
        yield "another process on the GPU"
    if before.limit_watts and now.limit_watts and now.limit_watts < _CAPPED * before.limit_watts:
        yield f"GPU power limit at {now.limit_watts:.0f} W ({before.limit_watts:.0f} before)"
    if before.clock_hertz and now.clock_hertz and now.clock_hertz < _CLOCKED * before.clock_hertz:
        clocks = f"{now.clock_hertz / 1e6:.0f} MHz ({before.clock_hertz / 1e6:.0f} before)"
        yield f"GPU clock at {clocks}"
    stolen = _stolen(before, now)
    if stolen > _STOLEN:
        yield f"the hypervisor takes {100 * stolen:.0f} % of the CPU time (steal)"


def _changed_in_program(before: Surroundings, now: Surroundings) -> Iterator[str]:
    """Changes in the program's own behaviour."""
    if now.fallbacks > before.fallbacks:
        more = counted(now.fallbacks - before.fallbacks, "more function")
        yield f"new inputs of {more} run eagerly"  # at the recompile limit, or by a setting
    if now.breaks > before.breaks:
        yield counted(now.breaks - before.breaks, "more graph break")
    if before.tokens and now.tokens > before.tokens:
        yield f"tokens a step went from {before.tokens} to {now.tokens}"
    retries = (now.retries or 0) - (before.retries or 0) if before.retries is not None else 0
    if retries * _RETRY_EVERY_NS > now.at_ns - before.at_ns:
        yield f"GPU memory is full ({retries} allocator retries)"
    waiting = _new_share(before.wait_ns, now.wait_ns, before, now)
    if waiting > _WAITING:
        yield f"{100 * waiting:.0f} % of the time is waiting for data"
    saving = _new_share(before.saving_ns, now.saving_ns, before, now)
    if saving > _SAVING:
        yield f"a background save takes {100 * saving:.0f} % of the time"


def _stolen(before: Surroundings, now: Surroundings) -> float:
    """The share of the CPUs' time since then that went to other machines; 0 if not known."""
    if before.stolen is None or now.stolen is None or not now.cpus:
        return 0.0
    return (now.stolen - before.stolen) * 1e9 / (now.cpus * max(1, now.at_ns - before.at_ns))


def _new_share(before_ns: int, now_ns: int, before: Surroundings, now: Surroundings) -> float:
    """The share of the time since ``before``; 0 if it is less than twice that until then."""
    share = (now_ns - before_ns) / max(1, now.at_ns - before.at_ns)
    usual = before_ns / max(1, before.at_ns - before.attached_ns)
    return share if share > 2 * usual else 0.0
