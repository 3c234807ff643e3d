"""Progress of a compilation, and CUDA allocator memory, in real trainings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH
from support.trainings import result_of
from warmwatch.shared.record import PROGRESS

# The slot after each report of progress, read inside the training that compiles.
FOLLOWED = """
from warmwatch.lifecycle import api as _current
o = torch.optim.SGD(make().parameters(), lr=.1)
agent = _current.attached.agent
agent.open()
original, seen = agent.ledger._handlers["progress"], []
def followed(*arguments):
    original(*arguments)
    counts = agent.record.image().compile
    seen.append([counts.progress_of, counts.progress_done, counts.progress_total])
agent.ledger._handlers["progress"] = followed
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


def test_finished_and_total_kernels_are_reported_while_inductor_waits_for_them(
    records: Path,
) -> None:
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
        one = bar(total=4, desc="Inductor Compilation", disable=False, delay=0, mininterval=0)
        one.update(1); one.update(n=2); one.close()  # each is shown, however fast they come
    gone = weakref.ref(one); del one
    # how fast is in [], and behind it what blots out a longer one
    return [re.sub(r"\\[.*?\\] *", "[]", out.getvalue()), gone() is None]
gc.disable()
own = shown(torch.hub.tqdm)
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
ours = shown(module.tqdm)
result([own, ours, module.tqdm is torch.hub.tqdm, module.tqdm.__name__ == torch.hub.tqdm.__name__])
"""


def test_a_visible_progress_bar_looks_and_ends_as_without_the_agent(records: Path) -> None:
    own, reported, untouched, named = result_of(records, BARS)
    # how fast a bar goes is its own affair
    texts = [re.sub(r"\d+:\d+<.*?it/s", "", bar) for bar, _ in (own, reported)]
    assert own[0]
    assert (texts[1], reported[1], untouched, named) == (texts[0], own[1], False, True)


CHOICES = """
from warmwatch.lifecycle import api as _current
o = torch.optim.SGD(make().parameters(), lr=.1)
agent = _current.attached.agent
agent.open()
seen = []
original = agent.ledger._handlers["progress"]
def followed(*arguments):
    original(*arguments)
    counts = agent.record.image().compile
    if arguments[2]["subject"] == "choices":
        seen.append([counts.progress_of, counts.progress_done, counts.progress_total])
agent.ledger._handlers["progress"] = followed
"""
MEASURED = """
import types
import torch._inductor.select_algorithm as module
cache = module.AlgorithmSelectorCache
names = "benchmark_choices", "benchmark_choice"
before = [vars(cache)[name].__func__.__wrapped__ for name in names]  # wrapped since the import
agent.listener.begin("dynamo")
def cannot(*args): raise NotImplementedError
def measured(get):
    return cache.benchmark_choices([object() for _ in range(3)], types.SimpleNamespace(
        get_benchmark_tensors=get))
timings = list(measured(cannot).values())
during, seen[:] = list(seen), []
def interrupted(*args): raise KeyboardInterrupt
try: measured(interrupted)
except KeyboardInterrupt: raised = True
agent.listener.end("dynamo")
import warmwatch; warmwatch.detach()
restored = [vars(cache)[name].__func__ is one for name, one in zip(names, before)]
result([during, [str(t) for t in timings], seen, raised, restored])
"""
COUNTED = 1 + PROGRESS.index("choices")
counts_choices = pytest.mark.skipif("choices" in TORCH.missing, reason="this PyTorch counts none")


@pytest.mark.long
@counts_choices
def test_choices_are_counted_as_they_are_measured_even_if_all_fail(records: Path) -> None:
    reported, timings, broken_off, raised, restored = result_of(
        records, CHOICES + MEASURED, plain=True
    )
    assert reported == [*([COUNTED, done, 3] for done in range(3)), [0, 0, 0], [0, 0, 0]]
    assert timings == ["inf"] * 3
    assert (broken_off, raised) == ([[COUNTED, 0, 3], [COUNTED, 1, 3], [0, 0, 0]], True)
    assert restored == [True, True]


# Choices of a matrix product on a CPU: its library's own and a C++ template.
TUNED = """
import torch._inductor.config as config
config.max_autotune = config.freezing = True
config.max_autotune_gemm_backends = "ATEN,CPP"
config.compile_threads = 1
layer = torch.nn.Linear(64, 64).eval()
with torch.no_grad(): torch.compile(layer)(torch.ones(64, 64))
result(seen)
"""


@pytest.mark.long
@counts_choices
def test_choices_of_a_real_tuning_are_counted(records: Path) -> None:
    *under_way, over = result_of(records, CHOICES + TUNED)
    assert [COUNTED, 1, 2] in under_way
    assert over == [0, 0, 0]
