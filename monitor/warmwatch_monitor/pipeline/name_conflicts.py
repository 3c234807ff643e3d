"""Name conflicts: two living runs of one name; the later one is numbered. Pure.

The agent numbers a run whose name is taken (``train-2``). This module numbers names that a user set
twice, and runs that began at the same moment. Two starts conflict only if both have a living record
of the same rank, because several launchers may start the ranks of one run. Runs of different owners
never conflict: the source has added the owner to their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from msgspec import structs

from warmwatch_monitor.model import RecordReading

Start = tuple[str, str]  # the run's name and the id of its launch


def numbered_conflicts(
    readings: Iterable[RecordReading], given: Mapping[Start, str]
) -> tuple[tuple[RecordReading, ...], dict[Start, str]]:
    """The readings under unique names, and the names assigned, for the next poll.

    A start has its assigned name for as long as any of its records exists.
    """
    starts: dict[Start, list[RecordReading]] = {}
    for reading in readings:
        identity = reading.slot.identity
        starts.setdefault((identity.run, identity.launch), []).append(reading)
    names = {start: name for start, name in given.items() if start in starts}
    taken = {run for run, _ in starts} | set(names.values())
    speaking: dict[str, set[int]] = {}
    for start in sorted(starts, key=lambda one: _began(starts[one])):
        run, living = start[0], _living(starts[start])
        if start in names:
            continue
        if living & speaking.get(run, set()):
            names[start] = _free(starts[start][0], taken)
            taken.add(names[start])
        else:
            speaking.setdefault(run, set()).update(living)
    renamed = [
        _renamed(one, names[start]) if start in names else one
        for start, records in starts.items()
        for one in records
    ]
    return tuple(renamed), names


def _began(records: Sequence[RecordReading]) -> tuple[bool, int]:
    return min(one.began for one in records)


def _living(records: Sequence[RecordReading]) -> set[int]:
    return {one.slot.identity.rank for one in records if one.alive}


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
        told_run=slot.identity.run,
    )
