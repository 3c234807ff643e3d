"""Code that was compiled ahead of time: real artifacts, loaded before and after attaching."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.sources import poller
from support.trainings import result_of, training
from warmwatch.shared import record
from warmwatch_monitor.status.words.sentence import summary

MODEL = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 4).eval()
x = torch.ones(2, 8)
def double(x): return torch.sin(x) * 2
"""
MAKE = {
    "aoti": """
exported = torch.export.export(model, (x,))
torch._inductor.aoti_compile_and_package(exported, package_path=PATH)
""",
    "precompile": """
with torch.no_grad(): compiled = torch.compile(double, fullgraph=True).aot_compile(((x,), {}))
compiled.save_compiled_function(PATH)
""",
    "jit": "torch.jit.trace(model, (x,)).save(PATH)",
}
LOAD = {
    "aoti": "model = torch._inductor.aoti_load_package(PATH)",
    "precompile": "model = torch.compiler.load_compiled_function(open(PATH, 'rb'))",
    "jit": "model = torch.jit.load(PATH)",
}
SUFFIX = {"aoti": "pt2", "precompile": "bin", "jit": "pt"}
CALL = "with torch.no_grad(): model(torch.ones(2, 8))\n"
LOOP = """
import warmwatch
states = []
with torch.no_grad():
    for _ in range(4):
        model(torch.ones(2, 8))
        warmwatch.step()
        states.append(warmwatch.state())
result(states)
gate("done")
"""


@pytest.fixture(
    name="artifact",
    scope="module",
    params=[pytest.param(one, marks=[pytest.mark.long] * (one != "jit")) for one in MAKE],
)
def _artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one, made in a process of its own; its stem is what it is."""
    kind = request.param
    path = tmp_path_factory.mktemp("artifacts") / f"{kind}.{SUFFIX[kind]}"
    body = MODEL + f"PATH = {str(path)!r}\n" + MAKE[kind]
    with training(path.parent / "records", body, attach=False) as one:
        code = one.wait()
    if code and kind == "precompile" and "aot_compile" in one.stderr:
        pytest.skip("this PyTorch has no aot_compile")
    assert code == 0, one.stderr[-2000:]
    return path


@pytest.mark.parametrize("attached", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_ahead_of_time_code_is_never_eager_and_the_sentence_names_it(
    records: Path, artifact: Path, attached: str
) -> None:
    kind = artifact.stem
    load = f"PATH = {str(artifact)!r}\n{LOAD[kind]}\n"
    attach = "import warmwatch.auto\n"
    body = attach + load if attached == "before" else load + CALL + attach
    with training(records, body + LOOP, attach=False, plain=True) as one:
        states = one.result()
        one.reach("done")
        snapshot = poller(directories=(str(records),)).poll_once()
        one.go()
        assert one.wait() == 0, one.stderr
    assert states[-1] == "warm"
    assert "eager" not in states
    (rank,) = snapshot.runs[0].ranks
    assert rank.figures.compile.precompiled == (kind,)
    if not rank.figures.compile.begun:  # loading from a cache is compile activity
        assert f"runs ahead-of-time compiled code ({kind})" in summary(snapshot)
    assert rank.figures.agent.errors == 0


PLAIN = """
@torch.jit.script
def scripted(x): return x * 2
import warmwatch
model = torch.nn.Linear(8, 4)
for _ in range(4):
    model(torch.ones(2, 8)).sum().backward()
    warmwatch.step()
result(warmwatch.state())
"""


def test_a_function_that_is_only_scripted_does_not_count_as_compiled(records: Path) -> None:
    """Many libraries script functions as they are imported."""
    assert result_of(records, PLAIN, plain=True) == "eager"
    assert slots.read(slots.only(records)).compile.precompiled == 0


# The method itself needs a GPU: what is looked at is who calls it, and that it is put back.
GRAPHS = """
import torch.cuda.graphs as graphs
calls = []
def replay(self): calls.append(self)
graphs.CUDAGraph.replay = replay
import warmwatch
import torch._dynamo
ours = graphs.CUDAGraph.replay is not replay
exec("def call(graph): graph.replay(1)", scope := {"__name__": CALLER})
for _ in range(4):
    scope["call"](graphs.CUDAGraph)
    warmwatch.step()
result([ours, graphs.CUDAGraph.replay is replay, len(calls), warmwatch.state()])
"""


@pytest.mark.parametrize(
    ("caller", "kinds", "state"),
    [("__main__", ["cudagraph"], "warm"), ("torch._inductor.cudagraph_trees", [], "eager")],
)
def test_a_cuda_graph_counts_unless_inductor_captured_it(
    records: Path, caller: str, kinds: list[str], state: str
) -> None:
    body = GRAPHS.replace("CALLER", repr(caller))
    assert result_of(records, body, plain=True) == [True, True, 4, state]
    bits = slots.read(slots.only(records)).compile.precompiled
    assert [k for at, k in enumerate(record.PRECOMPILED) if bits >> at & 1] == kinds


TENSORRT = """
import sys, types
package = types.ModuleType("torch_tensorrt.dynamo.runtime")
class PythonTorchTensorRTModule(torch.nn.Module):
    def forward(self, x): return x
package.PythonTorchTensorRTModule = PythonTorchTensorRTModule
sys.modules["torch_tensorrt.dynamo.runtime"] = package
import warmwatch, torch._dynamo
model = PythonTorchTensorRTModule()
for _ in range(4):
    model(torch.ones(2))
    warmwatch.step()
result(warmwatch.state())
"""


def test_a_module_of_tensorrt_counts_by_its_class(records: Path) -> None:
    assert result_of(records, TENSORRT, plain=True) == "warm"
    bits = slots.read(slots.only(records)).compile.precompiled
    assert bits == 1 << record.PRECOMPILED.index("tensorrt")


PACKAGED = """
import warmwatch.auto
class Net(torch.nn.Module):
    def forward(self, x): return x @ x
packaged = torch.export.export(Net(), (torch.ones(8, 8),))
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(model, o, 4)
torch._inductor.aoti_compile_and_package(packaged, package_path="net.pt2")
train(model, o, 6)
gate("packaged")
"""


@pytest.mark.long
def test_packaging_in_an_eager_training_is_not_a_failed_capture(records: Path) -> None:
    """The script passes nothing to ``torch.compile``."""
    with training(records, PACKAGED, attach=False) as one:
        one.reach("packaged")
        (rank,) = poller(directories=(str(records),)).poll_once().runs[0].ranks
        one.go()
        assert one.wait() == 0, one.stderr
    assert rank.figures.compile.wrappers == 0
    assert "nothing_captured" not in rank.judgement.conditions
    assert rank.judgement.warm
