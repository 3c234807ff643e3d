"""Operations of a step, counted in a real training: its graphs, times their calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.torch_versions import VERSION
from support.trainings import result_of
from warmwatch.shared.record import CACHES
from warmwatch_monitor.pipeline.slot_figures import worth_of

TRAIN = """
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
example = torch.randn(16, 64)
o = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch._dynamo.optimize("inductor")(model)  # imports Inductor when it compiles
wrapped = []
def counted():
    # how many graphs are wrapped; the class never is
    import gc
    from torch._inductor.output_code import CompiledFxGraph
    assert "warmwatch" not in CompiledFxGraph.__call__.__code__.co_filename
    graphs = [one for one in gc.get_objects() if type(one) is CompiledFxGraph]
    callables = [one.current_callable for one in graphs]
    return sum("count_call" == getattr(one, "__name__", "") for one in callables)
for _ in range(8):
    for _ in range(3): compiled(example).sum().backward()
    wrapped.append(counted())
    o.step()
    o.zero_grad()
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter:
    model(example).sum().backward()
result([counter.get_total_flops(), wrapped])
"""


@pytest.mark.long  # three Inductor processes; tests/agent/hooks/test_flops.py counts each operation
def test_a_step_has_the_operations_of_its_graphs_times_their_calls(
    records: Path, tmp_path: Path
) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    if VERSION == "2.6":
        cache["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "1"  # off by default
    eager, wrapped = result_of(records, TRAIN, env=cache, plain=True)
    folder = slots.only(records)
    known = worth_of(slots.read(folder))
    assert known.operations == known.counted == pytest.approx(3 * eager)
    assert known.excluded == ()
    of_graphs = [one["flops"] for one in slots.events(folder) if one["event"] == "compilation"]
    assert len(of_graphs) == 2
    assert sum(of_graphs) == eager
    assert wrapped[0] == 2
    assert wrapped[-2:] == [0, 0], "later steps cost nothing"
    again = tmp_path / "again"
    again.mkdir()
    _, wrapped = result_of(again, TRAIN, env=cache)
    slot = slots.read(slots.only(again))
    assert slot.compile.cache_hits[CACHES.index("aot_autograd")], "no graph was in the process"
    assert worth_of(slot).operations == known.operations
    assert wrapped[0] == 2
    assert wrapped[-2:] == [0, 0]
