"""What was asked of the compiler, as the agent counts it in real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.trainings import result_of, run
from warmwatch.record import DISABLED

# Libraries stand in for themselves: a file in a folder of packages that decorates when imported.
ASKED = """
import pathlib, sys
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
torch.compile(model, backend="eager")
make().compile(backend="eager")
torch.compiler.compile(make(), backend="eager")
@torch.compile(backend="eager")
def decorated(x): return x
o.step = torch.compile(o.step, backend="eager")
torch.compile(make(), disable=True)
for name, folder in (("library", "site-packages"), ("module", "mine")):
    place = pathlib.Path(folder); place.mkdir(); sys.path.insert(0, str(place))
    (place / f"{name}.py").write_text(
        "import torch\\n@torch.compile(backend='eager')\\ndef helper(x): return x\\n"
        "def asked(f): return torch.compile(f, backend='eager')\\n"
    )
import library, module
library.asked(make())
"""
INTERNAL = """
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
from torch.nn.attention.flex_attention import flex_attention
from torch._higher_order_ops.cond import cond
cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),))
train(model, o, 4)
import torch._dynamo
before = torch._dynamo.optimize
import warmwatch; warmwatch.detach()
result([before is not torch._dynamo.optimize, torch._dynamo.optimize.__module__])
"""


def test_the_users_own_calls_are_counted_and_no_others(records: Path) -> None:
    """A model, a module, a function, an optimizer; what a library made for itself is not asked."""
    run(records, ASKED)
    assert slots.read(slots.only(records)).compile.wrappers == 7


def test_pytorchs_calls_of_itself_are_not_asked_for(records: Path) -> None:
    undone, home = result_of(records, INTERNAL)
    assert (undone, home) == (True, "torch._dynamo.eval_frame")
    assert slots.read(slots.only(records)).compile.wrappers == 0


STANCE = """
import torch._dynamo.config
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
if HOW == "stance": torch.compiler.set_stance("force_eager")
if HOW == "config": torch._dynamo.config.disable = True
train(c, o, 4)
"""


@pytest.mark.parametrize("how", DISABLED[1:])
def test_what_turns_compilation_off_is_told(records: Path, how: str) -> None:
    env = {"TORCHDYNAMO_DISABLE": "1"} if how == "environment" else {}
    run(records, f"HOW = {how!r}\n{STANCE}", env=env)
    counts = slots.read(slots.only(records)).compile
    assert (counts.wrappers, counts.begun, DISABLED[counts.disabled]) == (1, 0, how)


def test_a_stance_is_told_as_it_is_set_and_as_it_ends(records: Path) -> None:
    """Also in mid-run, where no step is looked at closely."""
    body = """
from warmwatch import _current
def off(): return _current.attached.agent.record.image().compile.disabled
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
train(c, o, 5)
found = [off()]
with torch.compiler.set_stance("force_eager"):
    found.append(off())
found.append(off())
result(found)
"""
    assert result_of(records, body) == [0, DISABLED.index("stance"), 0]


def test_cuda_graphs_that_inductor_leaves_out_are_counted(records: Path) -> None:
    """On a machine without CUDA it leaves them out always; the first line of why, where told."""
    body = """
from torch._dynamo.utils import counters
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, mode="reduce-overhead")
with torch.no_grad(): c(torch.ones(2, 8))
result(counters["inductor"]["cudagraph_skips"])
"""
    truth = result_of(records, body)
    assert slots.read(slots.only(records)).compile.cudagraph_skips == truth > 0
