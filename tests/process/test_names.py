"""The names of what compiles where the code itself has none, in the sentence and the report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import slots
from support.daemon import completed, daemon, status_of
from support.records import wait_until
from support.trainings import WAITED, environment, result_of, run, training
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal

# Compilers that stop at a gate each time, so that the test can read what is said meanwhile.
STOPS = """
from torch._dynamo.backends.common import aot_autograd

def stopping(name):
    def compiler(graph, inputs):
        gate(name)
        return graph.forward
    return compiler

stops = aot_autograd(fw_compiler=stopping("forward"), bw_compiler=stopping("backward"))
"""
# The model's output, as in Hugging Face's: its __init__ is a frame of its own, and compiles between
# the forward and the backward of ``forward``.
DATACLASS = """
import dataclasses

@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    def __post_init__(self):
        torch._dynamo.graph_break()
        self.seen = 1

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        return Output(self.layer(x).relu())

model = Model()
compiled = torch.compile(model, backend=stops)
optimizer = torch.optim.SGD(model.parameters(), lr=.1)
for step in range(4):
    with torch.autocast("cpu", enabled=step == 3):
        loss = compiled(torch.randn(4, 8)).logits.float().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_lazy_backward_is_that_of_its_forward(records: Path) -> None:
    """And so is its reason; the last forward that compiled was another function's."""
    with training(records, STOPS + DATACLASS) as started, daemon(records) as url:

        def sentence() -> str:
            return str(status_of(url)["summary"])

        for reason in ("", ": autocast was entered or left"):
            started.reach("forward")
            wait_until(
                lambda: re.search(r"now `forward` \(train.py:\d+\)|ing `forward`", sentence())
            )
            started.go()
            started.reach("backward")
            end = r"now the backward of `forward` \(train.py:\d+\)" + reason
            wait_until(lambda end=end: re.search(end + "$", sentence()))
            started.go()
        assert started.wait() == 0, started.stderr
    found = {(one.name, one.file, one.line) for one in functions(records)}
    assert ("Output.__init__", "train.py", None) in found, found


def functions(records: Path) -> tuple[object, ...]:
    journal = Journal()
    with Folder(str(slots.only(records))) as folder:
        journal.follow(folder)
    return journal.sums.functions.most_expensive


SEQUENTIALS = """
encoder = torch.compile(make(), backend="aot_eager")
decoder = torch.compile(
    torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh()), backend="aot_eager"
)
optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=.1)
optimizer.step = torch.compile(optimizer.step, backend="eager")
for _ in range(3):
    decoder(encoder(torch.randn(4, 8))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    encoder(torch.randn(4, 8)).sum().backward()
"""


@pytest.mark.long
def test_modules_of_a_library_class_are_named_by_their_place(records: Path) -> None:
    """So are the three frames of a compiled optimizer's step. Compiled autograd has a name, too."""
    run(records, SEQUENTIALS)
    shown = completed("report", "--dir", str(records), "-v", env=environment(records)).stdout
    places = re.findall(r"`Sequential` \(train.py:(\d+)\)", shown)
    assert len(set(places)) == 2, shown
    assert re.search(r"`AdamW.step` \(train.py:\d+\) +3 ", shown), shown
    # a module of that name in 2.6
    assert re.search("the backward by compiled autograd|`CompiledAutograd.forward`", shown), shown
    assert not re.search("the model|wrapper|eval_with_key|external_utils", shown), shown


# What each function cost, of a real training, against PyTorch's own account


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
