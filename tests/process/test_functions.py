"""What each function cost, of a real training, against PyTorch's own account."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.trainings import WAITED, result_of
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal

BODY = """
from torch._dynamo.utils import get_compilation_metrics
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
begun = waited()
def forward_of(x): return model(x)
def other(x): return x.sin() + 1
train(torch.compile(forward_of, backend="aot_eager"), o, 2)
torch.compile(other, backend="aot_eager")(torch.ones(3))
train(torch.compile(forward_of, backend="aot_eager"), o, 2, batch=7)
waiting = waited() - begun
metrics = get_compilation_metrics()
result([[[m.co_name, m.duration_us, m.guard_count] for m in metrics], waiting])
"""


@pytest.mark.long
def test_functions_cost_what_pytorch_reports(records: Path) -> None:
    truth, waited = result_of(records, WAITED + BODY)
    journal = Journal()
    with Folder(str(slots.only(records))) as folder:
        journal.follow(folder)
    by_name = {one.name: one for one in journal.sums.functions.most_expensive}
    assert by_name.keys() == {"forward_of", "other"}
    model, other = by_name["forward_of"], by_name["other"]
    assert (model.file, other.compilations) == ("train.py", 1)
    assert model.compilations == len(truth) - 1
    whole = sum(took for _, took, _ in truth) / 1e6
    assert model.seconds + other.seconds == pytest.approx(whole)
    for one in (model, other):
        # each takes the time at another moment, and a small function compiles in milliseconds
        within = 0.01 + 0.05 * one.seconds + waited
        assert sum(one.cost.phase_seconds.values()) == pytest.approx(one.seconds, abs=within)
        assert one.cost.phase_seconds["dynamo"] > 0
    assert other.cost.guards == next(guards for name, _, guards in truth if name == "other")
    assert other.cost.ops == 2
