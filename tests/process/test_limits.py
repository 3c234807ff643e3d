"""The limit of a real training, compared with the training's own clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.documents import status
from support.records import wait_until
from support.sources import poller
from support.trainings import training
from warmwatch_monitor.pipeline import limits

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


def test_the_share_of_each_limit_agrees_with_the_trainings_own_clock(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_LEAST_RARELY", 5.0)  # for a short test
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
            name, share = one.result()
            assert name == expected
            one.reach(expected)
            wait_until(lambda want=expected: (limit() or {}).get("verdict") == want)
            assert (limit() or {})["share"] == pytest.approx(share, abs=0.06)
            one.go()
        assert one.wait() == 0, one.stderr
