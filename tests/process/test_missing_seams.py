"""A PyTorch stranger than any known: seams are gone, the others give what they can."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH
from support.trainings import result_of
from warmwatch.record import CATEGORIES, PHASES, Slot

# The installers of GONE raise what they raise where PyTorch does not have what they ask for.
BODY = """
import warmwatch, warmwatch.hooks as hooks
from warmwatch._seams import look_up
def gone(listener):
    with look_up(): hooks.a_thing_that_a_pytorch_to_come_has_not
hooks.SEAMS = tuple((name, gone if name in GONE else install) for name, install in hooks.SEAMS)
warmwatch.attach()
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="aot_eager")
states = []
for batch in (4, 4, 4, 4, 6):
    train(c, o, 1, batch=batch)
    if "optimizer" in GONE: warmwatch.step()
    states.append(warmwatch.state())
result(states)
"""
STATES = ["warming", "warming", "warming", "warm", "recompiling"]
SEAMS = (
    "optimizer",
    "new_optimizers",
    "events",
    "callbacks",
    "compilations",
    "runtime_compilations",
    "cache_verdicts",
    "recompile_reasons",
    "recompile_limit",
    "async_modes",
    "saving",
    "wrappers",
    "disabled",
    "kernels",
    "memory",
    "cache_events",
    "cudagraph_skips",
)


# The verdict does without the rest: all of them are gone at once.
_CARRYING = ("optimizer", "events", "callbacks", "compilations", "recompile_reasons")
GONE = {**{seam: {seam} for seam in _CARRYING}, "the rest": set(SEAMS) - set(_CARRYING)}


@pytest.mark.parametrize("which", GONE)
def test_without_a_seam_the_states_are_the_same(tmp_path: Path, which: str) -> None:
    """The missing ones are named, no error is counted, what only they tell is not made up."""
    records, gone = tmp_path / "records", GONE[which]
    records.mkdir()
    states = result_of(records, f"GONE = {gone!r}\n{BODY}", attach=False)
    slot = slots.read(slots.only(records))
    assert states == STATES
    assert slot.identity.missing == tuple(s for s in SEAMS if s in gone or s in TORCH.missing)
    assert (slot.compile.agent_errors, slot.steps.steps) == (0, 5)
    assert slot.compile.begun == slot.compile.ended > 0
    assert sum(slot.compile.phase_ns) > 0
    _only_what_is_told(slot, which)


def _only_what_is_told(slot: Slot, seam: str) -> None:
    counts = slot.compile
    whole = {name for name, ns in zip(PHASES, counts.phase_ns, strict=True) if ns} == {"other"}
    assert whole is (seam == "events")  # without events nothing tells what the time went into
    counted = (counts.graphs, sum(counts.compilations), sum(counts.recompiles))
    assert (counted == (0, 0, 0)) is (seam == "compilations")
    named = {c for c, n in zip(CATEGORIES, counts.recompiles, strict=True) if n}
    untold = seam == "recompile_reasons" and not TORCH.reason
    assert named == ({"other"} if untold else set() if seam == "compilations" else {"shape"})
