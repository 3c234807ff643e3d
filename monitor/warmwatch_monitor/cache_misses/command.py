"""``warmwatch status --misses``: why compile caches missed, from the records on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from warmwatch.shared.phrases import counted
from warmwatch.shared.record import RecordError
from warmwatch_monitor.cache_misses.cache_keys import Lookup, Miss, lookups_in, misses
from warmwatch_monitor.client.choice import Answer, choose_runs
from warmwatch_monitor.errors import NoRunError, UnknownRunError
from warmwatch_monitor.model import RecordReading
from warmwatch_monitor.output.amounts import few, own_words
from warmwatch_monitor.settings import EVER_SECONDS, Settings
from warmwatch_monitor.sources.records.source import RecordsSource
from warmwatch_monitor.status.words.sentence import NO_RUN


def lines(settings: Settings, run: str | None) -> list[str]:
    """A line for each miss and bypass of the latest start of RUN, or of each run.

    Raises:
        UnknownRunError: no record belongs to such a run. NoRunError: there is no record at all.
    """
    readings = RecordsSource(settings.directories, retention=EVER_SECONDS).read().records
    if not readings:
        raise NoRunError(NO_RUN) if run is None else UnknownRunError(run, ())
    found = [sentence(miss) for miss in misses(_chosen(readings, run), _read)]
    return found or ["no compile cache missed or was bypassed, as far as recorded"]


def _chosen(readings: Sequence[RecordReading], run: str | None) -> list[RecordReading]:
    """The readings of the runs that ``run`` selects, by the rules of all commands."""
    named = {one.slot.identity.run: _as_run(one) for one in readings}
    runs = choose_runs([named[name] for name in sorted(named)], run, os.geteuid())
    names = {one["run"] for one in runs}
    return [one for one in readings if one.slot.identity.run in names]


def _as_run(reading: RecordReading) -> Answer:
    """A record's owner and run, as in ``/status``, without its state."""
    shown, owner = reading.slot.identity.run, reading.owner
    return {
        "run": shown,
        "name": owner.plain(shown) if owner else shown,
        "owner": owner.name if owner else None,
        "owner_uid": owner.uid if owner else None,
    }


def _read(folder: str) -> list[Lookup]:
    try:
        return lookups_in(folder)
    except (OSError, RecordError):
        return []  # the record is gone, or belongs to another user


_MOST = 6
_NAMES = {
    "gm": "the graph",
    "device_index": "device index",
    "torch_version": "PyTorch's version",
    "system_info": "GPU model or driver",
    "deterministic_algorithms_settings": "deterministic algorithms",
    "cuda_matmul_settings": "matmul precision",
}
_GROUPS = {
    "example_inputs": "input",
    "fx_kwargs": "compile option",
    "inductor_config": "inductor config",
    "inductor_config_comms": "inductor config",
}
_CACHES = {"inductor_fx": "Inductor", "aot_autograd": "AOTAutograd", "triton": "Triton"}
_PART = re.compile(r"(?P<name>\w+)(?:\[(?P<of>[\w.]+)\])?")


def sentence(miss: Miss) -> str:
    """``gpt2 rank 1, 0/0 (Inductor): missed: 2 of 678 parts of its key differ from ...``."""
    lookup = miss.lookup
    of = f", {lookup.id}" if lookup.id else ""
    head = f"{miss.run} rank {miss.rank}{of} ({_CACHES[lookup.cache]})"
    if lookup.verdict == "bypass":
        return f"{head}: bypassed: {own_words(lookup.reason or 'PyTorch gives no reason', 200)}"
    return f"{head}: missed: {'; '.join(_why(miss))}"


def _why(miss: Miss) -> Iterator[str]:
    if miss.other is None:
        yield "nothing to compare it with: no other rank or earlier run of this name looked it up"
        return
    whose, verdict = miss.other.whose, miss.other.lookup.verdict
    if miss.differing is None:
        yield f"its key differs from {whose}, and PyTorch does not report the parts of one of them"
    elif miss.differing:
        total = max(miss.lookup.parts or 0, len(miss.differing))
        many = f"parts of its key differ{'s' if len(miss.differing) == 1 else ''}"
        yield f"{len(miss.differing)} of {total:,} {many} from {whose}: {differing(miss.differing)}"
    elif verdict == "hit":
        yield f"its key is {whose}, which hit: it looked into another or an emptied cache directory"
    else:
        yield f"its key is {whose}, which missed too: nothing was in the cache"


def differing(names: Sequence[str]) -> str:
    """``device index, inductor config max_autotune, 3 inputs``."""
    inputs = sum(name.startswith("example_inputs") for name in names)
    words = list(dict.fromkeys(_named(n) for n in names if not n.startswith("example_inputs")))
    if inputs:
        words.append(f"{counted(inputs, 'input')} (shape, stride or dtype)")
    return few(words, _MOST)


def _named(name: str) -> str:
    found = _PART.match(name)
    if found is None:
        return name
    if found["name"] in _GROUPS:
        return f"{_GROUPS[found['name']]} {found['of'] or '?'}"
    return _NAMES.get(found["name"], found["name"].strip("_").replace("_", " "))
