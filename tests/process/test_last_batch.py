"""A ragged last batch: what the agent knows of the DataLoader's end, and the remedy for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.trainings import run
from warmwatch.shared.advice import advice

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
