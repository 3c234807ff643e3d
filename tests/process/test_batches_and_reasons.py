"""Batches, reasons of recompiles and of graph breaks, in real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH
from support.trainings import result_of, run, training
from warmwatch.shared.advice import advice

LOADER = """
import time
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.ones(8)  # in a compiled loop Dynamo compiles this, too

def epoch(workers=0):
    return sum(1 for _ in DataLoader(Slow(), batch_size=2, num_workers=workers))

model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
"""


def test_batches_and_the_wait_for_them_are_counted(records: Path) -> None:
    """The end of an epoch passes as ever; what the loop does between batches is no waiting."""
    body = (
        LOADER
        + """
train(model, o, 1)
counts = [epoch()]
time.sleep(0.5)
counts.append(epoch())
result([counts, time.monotonic_ns()])
"""
    )
    counts, now = result_of(records, body)
    steps = slots.read(slots.only(records)).steps
    assert (counts, steps.batches) == ([4, 4], 8)
    assert steps.batch_wait_ns >= 8 * 20_000_000
    assert now - 10**9 * 60 < steps.last_batch_ns <= now


def test_a_batch_without_a_wait_costs_no_waiting_time(records: Path) -> None:
    body = (
        LOADER
        + """
class Ready(Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return 1
begun, slept = time.monotonic_ns(), 0
for _ in DataLoader(Ready()):
    before = time.monotonic_ns()
    time.sleep(0.05)
    slept += time.monotonic_ns() - before
result(time.monotonic_ns() - begun - slept)
"""
    )
    fetching = result_of(records, body)
    steps = slots.read(slots.only(records)).steps
    assert steps.batches == 20
    assert steps.batch_wait_ns <= fetching, "what the loop does meanwhile is no waiting"


def test_worker_processes_count_no_batches_and_a_late_record_has_all_of_them(records: Path) -> None:
    body = (
        LOADER
        + """
assert epoch(workers=2) == 4
train(model, o, 1)
if not __import__("os").fork():
    epoch(); train(model, o, 1)
    __import__("os")._exit(0)
__import__("os").wait()
"""
    )
    run(records, body)
    assert [slots.read(f).steps.batches for f in slots.folders(records)] == [4, 4]


def test_the_reason_of_a_recompile_is_reported_before_it_compiles(records: Path) -> None:
    body = """
def slowly(graph, inputs):
    gate("compiling")
    return graph.forward
@torch.compile(backend=slowly, dynamic=False)
def doubled(x): return x * 2
doubled(torch.ones(4)); doubled(torch.ones(7))
"""
    with training(records, body) as started:
        started.reach("compiling")
        folder = slots.only(records)
        assert [e for e in slots.events(folder) if e["event"] == "recompile"] == []
        started.go()
        started.reach("compiling")
        (line,) = [e for e in slots.events(folder) if e["event"] == "recompile"]
        assert "expected 4, actual 7" in line["reason"]
        where = (line["category"], line["name"], line["file"], line["line"])
        source = (records.parent / "train.py").read_text().splitlines()
        decorated = source.index("@torch.compile(backend=slowly, dynamic=False)") + 1
        assert where == ("shape", "doubled", "train.py", decorated)
        started.go()
        assert started.wait() == 0
    lines = [e for e in slots.events(folder) if e["event"] == "compilation"]
    assert [(e["name"], e["file"], e["line"]) for e in lines] == [where[1:]] * 2
    assert (lines[1]["reason"], lines[1]["category"]) == (line["reason"], "shape")


def test_each_reason_of_a_graph_break_is_reported_once_without_the_users_text(
    records: Path,
) -> None:
    message = TORCH.break_message.format("the 'secret' words")
    body = f"""
@torch.compile(backend="eager", dynamic=False)
def shown(x):
    torch._dynamo.graph_break({message})
    return x + 1
@torch.compile(backend="eager", dynamic=False)
def opened(x):
    x = x * 2
    print("secret")
    return x + 1
shown(torch.ones(4)); opened(torch.ones(4)); shown(torch.ones(7))
"""
    run(records, body)
    folder = slots.only(records)
    lines = [e for e in slots.events(folder) if e["event"] == "graph_break"]
    assert slots.read(folder).compile.graph_breaks == 2
    assert [line["count"] for line in lines] == [1, 1]
    assert len({line["reason"] for line in lines}) == 2
    assert not any("secret" in line["reason"] or "\n" in line["reason"] for line in lines)
    assert all(len(line["reason"]) <= 300 for line in lines)
    assert [(line["name"], line["file"]) for line in lines] == [
        ("shown", "train.py"),
        ("opened", "train.py"),
    ]


# A ragged last batch: what the agent knows of the DataLoader's end, and the remedy for it


BODY = """
from torch.utils.data import DataLoader, TensorDataset
from torch._dynamo.utils import guard_failures
model = make(); optimizer = torch.optim.SGD(model.parameters(), 0.01)
@torch.compile(backend="eager")
def loss_of(batch): return model(batch).square().mean()
data = TensorDataset(torch.randn(8 * 5 + 3, 8))
for _ in range(2):
    for (batch,) in DataLoader(data, batch_size=8, WAY):
        if SLICED: batch = batch[:5 if len(batch) == 8 and step_count > 2 else None]
        loss_of(batch).backward(); optimizer.step(); optimizer.zero_grad()
        step_count += 1
"""


@pytest.mark.parametrize(
    ("way", "sliced", "known"),
    [
        ("shuffle=True", False, [8, 3]),
        ("num_workers=1", False, [8, 3]),
        ("drop_last=True", False, None),
        ("shuffle=True", True, None),
    ],
)
def test_the_last_batch_of_an_epoch_is_known_as_that(
    records: Path, way: str, sliced: bool, known: list[int] | None
) -> None:
    """With ``drop_last=True`` nothing recompiles; a size that the loop cuts is not the loader's."""
    body = BODY.replace("WAY", way).replace("SLICED", str(sliced))
    run(records, f"step_count = 0\n{body}")
    found = [e for e in slots.events(slots.only(records)) if e["event"] == "compilation"]
    recompiles = [e for e in found if "category" in e]
    if known is None:
        assert [e for e in recompiles if "last_batch" in e] == []
        assert bool(recompiles) is sliced
        return
    first = recompiles[0]
    assert first["last_batch"] == known[::-1]
    words = str(advice("shape", "forward", str(first["reason"]), last_batch=(3, 8)))
    assert words.startswith("The last batch of an epoch had 3 of 8: pass drop_last=True")
