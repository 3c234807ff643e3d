"""Stacks that PyTorch logs: a guest stands in none of them."""

from __future__ import annotations

from pathlib import Path

from support import slots
from support.trainings import run

BODY = """
import traceback
import torch._dynamo
torch._dynamo.config.verbose = True
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x):
        y = self.layer(x)
        print("a graph break", flush=True)
        return y.relu()
model = Net(); o = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch.compile(model, backend="aot_eager")
train(compiled, o, 2)
for size in (3, 5): compiled(torch.ones(size, 8)).sum().backward()
model.eval(); compiled(torch.ones(2, 8)); model.train(); compiled(torch.ones(2, 8))
def fails(graph, example): raise RuntimeError("this backend fails")
for function in (lambda x: x @ x, lambda x: (print(x), x)[1], lambda x: x + 1):
    for options in ({"fullgraph": True, "backend": "eager"}, {"backend": fails}):
        try: torch.compile(function, **options)(torch.ones(2, 3))
        except Exception: traceback.print_exc()
torch._dynamo.config.recompile_limit = torch._dynamo.config.cache_size_limit = 2
limited = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
for size in range(2, 6): limited(torch.ones(size))
"""


def test_no_stack_that_pytorch_logs_or_raises_contains_a_frame_of_ours(
    records: Path, tmp_path: Path
) -> None:
    """Graph breaks, recompiles, errors of each kind, and the structured trace."""
    env = {
        "TORCH_LOGS": "+dynamo,graph_breaks,recompiles,recompiles_verbose,guards",
        "TORCH_TRACE": str(tmp_path / "trace"),
    }
    done = run(records, BODY, env=env)
    assert slots.read(slots.only(records)).compile.graph_breaks > 0
    for kind in ("Graph break", "Recompiling function", "this backend fails"):
        assert kind in done.stderr
    (trace,) = (tmp_path / "trace").iterdir()
    written = [*done.stderr.splitlines(), *trace.read_text(errors="replace").splitlines()]
    assert [line for line in written if "warmwatch/hooks" in line] == []
