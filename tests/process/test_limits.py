"""The limit of a real training, compared with the training's own clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import status
from support.records import wait_until
from support.sources import poller
from support.trainings import training

LOADERS = """
import threading, time
from torch.utils.data import DataLoader, Dataset, IterableDataset
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)

def step():
    model(torch.ones(8)).sum().backward(); o.step(); o.zero_grad()
"""
PREFETCHED = f"""{LOADERS}
fetching, stepped = threading.Event(), threading.Event()

class Slow(Dataset):
    def __len__(self): return 10
    def __getitem__(self, i):
        fetching.set(); stepped.wait(); stepped.clear()
        return torch.ones(8)

step()
fetcher = threading.Thread(target=lambda: [*DataLoader(Slow())])
fetcher.start()
for _ in range(10):
    fetching.wait(); fetching.clear()
    time.sleep(0.02); step(); stepped.set()
fetcher.join()
result(0.0)
gate("trained")
"""
NESTED = f"""{LOADERS}
class Slow(Dataset):
    def __len__(self): return 20
    def __getitem__(self, i):
        time.sleep(0.05)
        return torch.ones(8)

class Outer(IterableDataset):
    def __iter__(self): yield from DataLoader(Slow())

began = time.monotonic()
batches = [*DataLoader(Outer())]
waited = time.monotonic() - began
step()
result(waited)
gate("trained")
"""
EVALUATED = f"""{LOADERS}
class Slow(Dataset):
    def __len__(self): return 10
    def __getitem__(self, i):
        time.sleep(0.05)
        return torch.ones(8)

waited = 0.0
for _ in range(2):
    began = time.monotonic()
    batches = [*DataLoader(Slow())]
    waited += time.monotonic() - began
    for _ in batches: step()
    model.eval()
    batches = [*DataLoader(Slow()), *DataLoader(Slow())]
    model.train()
step()
result(waited)
gate("trained")
"""
TRAIN = """
import time, warmwatch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self): return 10**6
    def __getitem__(self, i):
        if waits: time.sleep(0.06)
        return torch.ones(8)

spent = dict.fromkeys(("input", "saving", "evaluation"), 0.0)
waits = False
batches = iter(DataLoader(Slow()))
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
model = torch.compile(model, backend="eager")

def step():
    began = time.monotonic()
    batch = next(batches)
    spent["input"] += time.monotonic() - began
    model(batch).sum().backward(); o.step(); o.zero_grad()
    time.sleep(0.04)

def paused(what, within):
    step()
    began = time.monotonic()
    with within(): time.sleep(0.4)
    spent[what] += time.monotonic() - began

for _ in range(5): step()
gate("warm")
spent = dict.fromkeys(spent, 0.0)
began = time.monotonic()
for limit, seconds, once in (
    ("input", 5.5, step),
    ("saving", 6, lambda: paused("saving", warmwatch.saving)),
    ("evaluation", 8, lambda: paused("evaluation", warmwatch.evaluating)),
):
    waits = limit == "input"
    phase = time.monotonic()
    while time.monotonic() - phase < seconds: once()
    step()
    result([limit, spent[limit] / (time.monotonic() - began)])
    gate(limit)
"""


@pytest.mark.first
def test_the_share_of_each_limit_agrees_with_the_trainings_own_clock(records: Path) -> None:
    look = poller(directories=(str(records),))

    def limit() -> dict[str, object] | None:
        (run,) = status(look.poll_once())["runs"]
        found: dict[str, object] | None = run["ranks"][0]["limited_by"]
        assert found == run["limited_by"]
        return found

    with training(records, TRAIN) as one:
        one.reach("warm")
        assert limit() is None
        one.go()
        for expected in ("input", "saving", "evaluation"):
            wait_until(lambda want=expected: (limit() or {}).get("verdict") == want)
            name, share = one.result()
            assert name == expected
            one.reach(expected)
            assert (limit() or {})["share"] == pytest.approx(share, abs=0.06)
            one.go()
        assert one.wait() == 0, one.stderr


@pytest.mark.parametrize(
    "train",
    [PREFETCHED, NESTED, pytest.param(EVALUATED, marks=pytest.mark.long)],
    ids=["in a thread", "nested", "evaluated"],
)
def test_the_time_of_a_batch_counts_once_and_only_if_the_training_waits(
    train: str, records: Path
) -> None:
    """A thread that fetches ahead holds no step up; a DataLoader over another waits only once.

    An evaluation's waits are its own.
    """
    with training(records, train) as one:
        waited = one.result()
        one.reach("trained")
        (run,) = status(poller(directories=(str(records),)).poll_once())["runs"]
        data = run["ranks"][0]["pauses"]["data_seconds"]
        assert data == pytest.approx(waited, rel=0.2, abs=0.01)
        one.go()
        assert one.wait() == 0, one.stderr


SLEEPS = """
import time
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
model = torch.compile(model, backend="eager")
slept = 0.0

def step():
    global slept
    model(torch.ones(8)).sum().backward(); o.step(); o.zero_grad()
    began = time.monotonic(); time.sleep(0.1); slept += time.monotonic() - began

for _ in range(5): step()
gate("warm")
began, slept = time.monotonic(), 0.0
while time.monotonic() - began < 60 and not done(): step()
result(slept / (time.monotonic() - began))
gate("trained")
"""


@pytest.mark.long
def test_a_loop_that_waits_for_something_else_is_limited_by_waiting(records: Path) -> None:
    look = poller(directories=(str(records),))
    stop = records.parent / "stop"

    def limit() -> dict[str, object]:
        (run,) = status(look.poll_once())["runs"]
        return run["ranks"][0]["limited_by"] or {}

    body = f"from pathlib import Path\ndone = Path({str(stop)!r}).exists\n{SLEEPS}"
    with training(records, body) as one:
        one.reach("warm")
        assert limit() == {}
        one.go()
        wait_until(lambda: limit().get("verdict") == "waiting")
        found = limit()
        stop.touch()
        share = one.result()
        assert 0.2 <= float(str(found["share"])) <= share + 0.05, "the least that it can be"
        assert "no batch is awaited" in str(found["evidence"])
