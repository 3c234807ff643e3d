"""How far a compilation is, and what CUDA's allocator holds, of real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.trainings import result_of
from warmwatch.record import PROGRESS

# What the slot says each time that it is told anew, from inside the training that compiles.
FOLLOWED = """
from warmwatch import _current
o = torch.optim.SGD(make().parameters(), lr=.1)
agent = _current.attached.agent
agent.open()
original, seen = agent.ledger._progress, []
def followed(*told):
    original(*told)
    counts = agent.record.image().compile
    seen.append([counts.progress_of, counts.progress_done, counts.progress_total])
agent.ledger._progress = followed
import torch._inductor.config
torch._inductor.config.compile_threads = 2
torch._inductor.config.cpp.max_horizontal_fusion_size = 1
def several(x):
    y = (x @ x).relu() + 1
    return (y @ y).sin() * 2, (x @ y).cos().sum(0)
torch.compile(several)(torch.ones(8, 8))
import torch._inductor.async_compile as module
ours = module.tqdm
import warmwatch; warmwatch.detach()
import torch.hub
result([seen, module.tqdm is torch.hub.tqdm, issubclass(ours, torch.hub.tqdm)])
"""


def test_kernels_done_of_all_are_told_while_inductor_waits_for_them(records: Path) -> None:
    seen, restored, same_kind = result_of(records, FOLLOWED)
    *under_way, over = seen
    total = len(under_way)
    assert total > 1
    assert under_way == [[1 + PROGRESS.index("kernels"), done, total] for done in range(total)]
    assert over == [0, 0, 0]
    assert (restored, same_kind) == (True, True)
    (entry,) = [one for one in slots.events(slots.only(records)) if one["event"] == "compilation"]
    assert entry["kernels"] == total


BARS = """
import io, re, sys, contextlib, gc, weakref
import torch._inductor.async_compile as module, torch.hub
o = torch.optim.SGD(make().parameters(), lr=.1)
def shown(bar):
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        one = bar(total=4, desc="Inductor Compilation", disable=False, delay=0)
        one.update(1); one.update(n=2); one.close()
    gone = weakref.ref(one); del one
    return [re.sub(r"\\[.*?\\]", "[]", out.getvalue()), gone() is None]  # how fast is in []
gc.disable()
own = shown(torch.hub.tqdm)
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
told = shown(module.tqdm)
result([own, told, module.tqdm is torch.hub.tqdm, module.tqdm.__name__ == torch.hub.tqdm.__name__])
"""


def test_a_progress_bar_that_is_shown_is_the_same_and_goes_away_as_ever(records: Path) -> None:
    own, told, untouched, named = result_of(records, BARS)
    assert own[0]
    assert (told, untouched, named) == (own, False, True)


# A stand-in for torch.cuda: what a machine without a GPU can show is that nothing else is called.
CUDA = """
import types
calls = []
stats = {kind: {"all": {"current": at, "peak": at + 5, "allocated": 0, "freed": 0}}
         for kind, at in (("allocated_bytes", 100), ("reserved_bytes", 200))}
def told(device):
    calls.append(device)
    if KEEPS_NONE: raise RuntimeError("this allocator keeps no statistics")
    return stats
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
up = False
torch.cuda.is_initialized = lambda: up
torch.cuda.memory.memory_stats_as_nested_dict = told
torch._C._cuda_hasPrimaryContext = lambda device: device == 1
torch._C._cuda_getDeviceCount = lambda: 3
torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(uuid="", name="")
from warmwatch import _current
def memory():
    counts = _current.attached.agent.record.image().compile
    return [list(counts.memory), counts.memory_ns > 0]
train(model, o, 1); before = [memory(), list(calls)]
up = True
train(model, o, 6)
result([before, memory(), sorted(set(calls)), len(calls)])
"""


@pytest.mark.parametrize("keeps_none", [False, True])
def test_the_allocator_is_asked_at_rare_moments_and_only_once_cuda_is_up(
    records: Path, keeps_none: bool
) -> None:
    """Of the device with a context alone; one that keeps no statistics is asked once."""
    before, after, devices, calls = result_of(records, f"KEEPS_NONE = {keeps_none}\n{CUDA}")
    assert before == [[[0, 0, 0, 0], False], []]
    assert devices == [1]
    expected = [[0, 0, 0, 0], False] if keeps_none else [[100, 200, 105, 205], True]
    assert after == expected
    assert calls == 1  # as it becomes known to be eager: no step beside that is looked at
