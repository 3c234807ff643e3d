"""Each remedy, applied to the training that showed it: the fault is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import slots
from support.documents import status
from support.sources import poller
from support.torch_versions import TORCH
from support.trainings import result_of
from warmwatch_monitor.status.words.sentence import answer

END = """
import torch._dynamo.utils as du
result({
    "graphs": du.counters["stats"]["unique_graphs"],
    "breaks": sum(du.counters["graph_break"].values()),
    "failed": globals().get("failed", 0),
})
"""
# What a training does before its first step to apply the remedy; `None`: nothing.
SHAPES = f"""
if CURED: torch._dynamo.config.{TORCH.limit} = 12
@torch.compile(dynamic=False, backend="eager")
def update(p, g): p.sub_(g.sign() * 1e-3)
class Sign(torch.optim.Optimizer):
    def __init__(self, ps): super().__init__(ps, {{}})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]: update(p, p.grad)
net = torch.nn.Sequential(*[torch.nn.Linear(8 + i, 9 + i) for i in range(6)])
opt = Sign(net.parameters())
for _ in range(6):
    opt.zero_grad(); net(torch.randn(4, 8)).sum().backward(); opt.step()
"""
PARAMETERS = f"""
if CURED == "limit": torch._dynamo.config.{TORCH.limit} = 24
if CURED == "sizes": torch._dynamo.config.force_parameter_static_shapes = False
@torch.compile(backend="eager", fullgraph=FULL)
def of_lists(X, U, lr): torch._foreach_sub_(X, [u * lr for u in U])
@torch.compile(backend="eager", fullgraph=FULL)
def of_tensors(p, g, lr): p.sub_(g * lr)
class Each(torch.optim.Optimizer):
    def __init__(self, ps): super().__init__(ps, {{}})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            if p.ndim == 2: UPDATE
net = torch.nn.Sequential(*[torch.nn.Linear(8 + i, 9 + i) for i in range(12)])
opt = Each(net.parameters())
try:
    for _ in range(4):
        opt.zero_grad(); net(torch.randn(4, 8)).sum().backward(); opt.step()
except Exception as error:
    assert FULL and "RecompileLimit" in type(error).__name__, error
"""
OF_LISTS = PARAMETERS.replace("UPDATE", "of_lists([p], [p.grad], torch.tensor(0.1))")
OF_TENSORS = PARAMETERS.replace("UPDATE", "of_tensors(p, p.grad, torch.tensor(0.1))")
LAYERS = """
class Block(torch.nn.Module):
    def __init__(self, number):
        super().__init__(); self.layer_idx = number; self.linear = torch.nn.Linear(8, 8)
    def forward(self, x): return self.linear(x) * (self.layer_idx + 1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.blocks = torch.nn.ModuleList(Block(n) for n in range(12))
    def forward(self, x):
        for block in self.blocks: x = block(x)
        return x.sum()
net = Net()
for block in net.blocks: block.compile(backend="eager", **OPTIONS)
opt = torch.optim.SGD(net.parameters(), 1e-3)
for _ in range(6):
    opt.zero_grad(); net(torch.randn(4, 8).requires_grad_()).backward(); opt.step()
"""
BY_LIMIT = f"OPTIONS = {{}}\nif CURED: torch._dynamo.config.{TORCH.limit} = 12\n{LAYERS}"
BY_CALL = "OPTIONS = dict(recompile_limit=12, isolate_recompiles=True) if CURED else {}\n" + LAYERS
WITHOUT_COMPILER = """
import torch._inductor.config as inductor
inductor.force_disable_caches = True
if not CURED: inductor.cpp.cxx = (None, "/nonexistent/g++")
net = torch.nn.Linear(4, 2); opt = torch.optim.SGD(net.parameters(), 1e-2); failed = 0
model = torch.compile(lambda x: net(x).relu().square().mean())
for _ in range(4):
    try: loss = model(torch.randn(3, 4))
    except Exception: loss = net(torch.randn(3, 4)).mean(); failed += 1
    loss.backward(); opt.step(); opt.zero_grad()
"""
GROWING = """
q = torch.nn.Linear(4, 2); opt = torch.optim.Adam(q.parameters()); buf = []
@torch.compile(backend="eager")
def loss(obs, buf): return (q(obs) - torch.stack(buf).mean(0)).square().mean()
if CURED: buf += [torch.randn(2) for _ in range(8)]
for _ in range(6):
    if CURED: del buf[0]
    buf.append(torch.randn(2))
    loss(torch.randn(16, 4), buf).backward(); opt.step(); opt.zero_grad()
"""
LENGTHS = """
class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.cell = torch.nn.Linear(16, 8)
    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8)
        for t in range(x.shape[1]): h = torch.tanh(self.cell(torch.cat((x[:, t], h), 1)))
        return h
net = Recurrent(); opt = torch.optim.SGD(net.parameters(), 1e-2)
model = torch.compile(net, backend="eager")
for length in (5, 5, 5, 5, 5, 9, 7, 8):
    if CURED: length = 9
    model(torch.randn(4, length, 8)).sum().backward(); opt.step(); opt.zero_grad()
"""
METHOD = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.body = torch.nn.Linear(8, 8)
    def forward(self, x): return self.body(x)
    def training_step(self, x): return self.forward(x).square().mean()
model = torch.compile(Net(), backend="eager")
if CURED: model.training_step = torch.compile(model.training_step, backend="eager")
opt = torch.optim.SGD(model.parameters(), 1e-2)
for _ in range(8):
    model.training_step(torch.randn(8, 8)).backward(); opt.step(); opt.zero_grad()
"""
FAILING = """
def broken(graph, inputs): raise RuntimeError("a patient's value")
net = make(); opt = torch.optim.SGD(net.parameters(), 1e-2)
def loss(x): return net(x).sum()
fast = loss if CURED else torch.compile(loss, backend=broken)
for _ in range(6):
    x = torch.randn(4, 8)
    try: value = fast(x)
    except torch._dynamo.exc.BackendCompilerFailed: value = loss(x)
    value.backward(); opt.step(); opt.zero_grad()
"""


def tried(records: Path, body: str, cured: object) -> tuple[dict[str, int], dict[str, Any], str]:
    """PyTorch's own counts, the rank in `/status`, and all words of the answer."""
    records.mkdir()
    truth = result_of(records, f"CURED = {cured!r}\nimport torch._dynamo\n{body}{END}")
    snapshot = poller(directories=(str(records),)).poll_once()
    (rank,) = status(snapshot)["runs"][0]["ranks"]
    words = answer(snapshot)
    return truth, rank, "; ".join((words.summary, *words.details))


def advised(rank: dict[str, Any]) -> dict[str, str]:
    return {one["condition"]: one["advice"] for one in rank["conditions"]}


@pytest.mark.first
def test_what_the_machine_lacks_is_named_where_a_compilation_fails(tmp_path: Path) -> None:
    truth, rank, words = tried(tmp_path / "faulty", WITHOUT_COMPILER, False)
    assert truth["failed"] == 4
    failed = rank["compile"]["last"][-1]
    assert failed["failure"].endswith(("InductorError", "BackendCompilerFailed"))
    assert "InvalidCxxCompiler" in failed["failure_reason"]
    assert "name one in CXX" in words
    truth, rank, words = tried(tmp_path / "cured", WITHOUT_COMPILER, True)
    assert (truth["failed"], rank["compile"]["failures"]) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(SHAPES, "; the optimizer has 12 kinds of parameters", marks=pytest.mark.long),
        pytest.param(
            BY_LIMIT,
            "; 12 modules of its class differ in `layer_idx`",
            marks=pytest.mark.skipif(not TORCH.guards_integers, reason="it is dynamic there"),
        ),
    ],
    ids=["shapes", "modules"],
)
def test_a_finite_set_of_variants_needs_a_higher_limit(tmp_path: Path, body: str, why: str) -> None:
    """The limit that the remedy names is the lowest one that refuses nothing."""
    truth, rank, words = tried(tmp_path / "faulty", body, False)
    assert (truth["graphs"], rank["compile"]["compilations"]) == (8, 8)
    refused = rank["compile"]["last"][-1]
    assert refused["at_limit"]
    assert why in words
    assert f"set torch._dynamo.config.{TORCH.limit} to 12 or more" in advised(rank)["fallback"]
    truth, rank, words = tried(tmp_path / "cured", body, True)
    assert (truth["graphs"], rank["compile"]["compilations"], advised(rank)) == (12, 12, {})


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "parameter"),
    [(OF_LISTS, "X[0]"), pytest.param(OF_TENSORS, "p", marks=pytest.mark.long)],
    ids=["lists", "tensors"],
)
def test_sizes_that_a_parameter_keeps_static_become_dynamic(
    tmp_path: Path, body: str, parameter: str
) -> None:
    """Both remedies cure: the limit, as the parameters are the same in every step, or a setting."""
    body = body.replace("FULL", "False")
    truth, rank, words = tried(tmp_path / "faulty", body, None)
    assert truth["graphs"] == 8
    remedy = advised(rank)["fallback"]
    assert f"set torch._dynamo.config.{TORCH.limit} to 24 or more" in remedy
    assert "Set torch._dynamo.config.force_parameter_static_shapes = False" in remedy
    assert "the optimizer has 24 kinds of parameters" in words
    last = [past for past in rank["compile"]["last"] if past["category"] == "shape"]
    assert f"as that of the parameter `{parameter}`" in last[-1]["plain"]
    said = f"{words} {last} {rank['compile']['varying']}"
    for wrong in ("batch size", "pad", "makes a constant", "usually need no recompile", "`lr`"):
        assert wrong not in said
    for cured, graphs in (("limit", 12), ("sizes", 2)):
        truth, rank, _ = tried(tmp_path / cured, body, cured)
        assert (truth["graphs"], advised(rank)) == (graphs, {})


@pytest.mark.long
def test_the_limit_of_one_call_of_torch_compile_cures_it_too(tmp_path: Path) -> None:
    _, rank, _ = tried(tmp_path / "faulty", BY_CALL, False)
    call = "torch.compile(..., recompile_limit=12, isolate_recompiles=True)"
    if call not in advised(rank).get("fallback", ""):
        pytest.skip("this PyTorch has one limit for all functions")
    truth, rank, _ = tried(tmp_path / "cured", BY_CALL, True)
    assert (truth["graphs"], advised(rank)) == (12, {})


def test_a_recompile_in_every_step_has_its_remedy_before_the_run_was_warm(tmp_path: Path) -> None:
    truth, rank, words = tried(tmp_path / "faulty", GROWING, False)
    assert (truth["graphs"], rank["compile"]["recompiles"]) == (6, 5)
    assert "recompiles in every step (5th time): `loss` (train.py:" in words
    remedy = advised(rank)["thrashing"]
    assert remedy.startswith("Keep the number of items the same, and of a dict")
    assert remedy in words
    assert rank["compile"]["last"][-1]["advice"] == remedy
    truth, rank, words = tried(tmp_path / "cured", GROWING, True)
    assert (truth["graphs"], advised(rank)) == (1, {})


@pytest.mark.long
def test_no_remedy_stays_that_a_later_recompile_refutes(tmp_path: Path) -> None:
    truth, rank, _ = tried(tmp_path / "faulty", LENGTHS, False)
    first, second, third = (past for past in rank["compile"]["last"] if past["category"])
    assert (truth["graphs"], first["plain"]) == (4, "`x`: dim 1 went from 5 to 9")
    # they said that other sizes need no recompile
    assert (first["advice"], second["advice"]) == (None, None)
    assert "makes a constant of this size" in third["advice"]
    truth, rank, _ = tried(tmp_path / "cured", LENGTHS, True)
    assert (truth["graphs"], rank["compile"]["recompiles"]) == (1, 0)


def test_a_method_of_the_compiled_object_is_named_and_compiled(tmp_path: Path) -> None:
    truth, rank, words = tried(tmp_path / "faulty", METHOD, False)
    assert truth["graphs"] == 0
    assert "a method of the compiled object is called (`training_step`)" in words
    remedy = "model.training_step = torch.compile(model.training_step)"
    assert remedy in advised(rank)["never_compiled"]
    truth, rank, _ = tried(tmp_path / "cured", METHOD, True)
    assert (truth["graphs"], advised(rank)) == (1, {})


def test_a_compilation_that_fails_in_every_step_is_said_as_that(tmp_path: Path) -> None:
    _, rank, words = tried(tmp_path / "faulty", FAILING, False)
    assert "compiling `loss` (train.py:" in words
    assert "fails in every step (6th time): BackendCompilerFailed: RuntimeError; " in words
    assert " a step are failed compilations" in words
    assert advised(rank)["thrashing"].startswith("Stop compiling `loss`, or fix what fails")
    assert "eager speed" not in words
    assert "patient" not in str(slots.events(slots.only(tmp_path / "faulty")))
    _, rank, words = tried(tmp_path / "cured", FAILING, True)
    assert (rank["compile"]["failures"], advised(rank)) == (0, {})
