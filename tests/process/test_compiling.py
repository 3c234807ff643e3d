"""The agent's figures of real compilations, compared with PyTorch's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH, VERSION
from support.trainings import result_of, run
from warmwatch.shared import record

TRUTH = """
from torch._dynamo.utils import counters, get_compilation_metrics, guard_failures
def truth():
    metrics = [m for m in get_compilation_metrics()]
    return {
        "ids": [[m.compile_id, m.is_forward is not False] for m in metrics],
        "reasons": [getattr(m, "recompile_reason", None) for m in metrics],
        "guards": [reason.strip() for frame in guard_failures.values() for reason in frame],
        "seconds": sum(m.duration_us for m in metrics) / 1e6,
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "fx": [counters["inductor"]["fxgraph_cache_" + verdict] for verdict in ("hit", "miss")],
        "aot": [
            counters["aot_autograd"]["autograd_cache_" + verdict] for verdict in ("hit", "miss")
        ],
    }
"""


def compilations(folder: Path) -> list[dict[str, object]]:
    return [event for event in slots.events(folder) if event["event"] == "compilation"]


LIBRARY = """
import functools
def wrapper(function):
    @functools.wraps(function)
    def wrapped(x):
        return function(x) + 1
    return wrapped
"""
CALLS = """
import sys; sys.path.insert(0, {path!r})
from somelib import wrapper
own = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
theirs = torch.compile(wrapper(torch.sin), backend="eager", dynamic=False)
def one_epoch(size):
    own(torch.ones(size))
    theirs(torch.ones(size))  # here
one_epoch(3)
one_epoch(4)
"""


@pytest.mark.long
def test_for_a_librarys_function_the_users_calling_line_is_named(records: Path) -> None:
    installed = records.parent / "site-packages"
    installed.mkdir()
    (installed / "somelib.py").write_text(LIBRARY)
    run(records, CALLS.format(path=str(installed)))
    folder = slots.only(records)
    events = slots.events(folder)
    callers = [e.get("caller") for e in compilations(folder)]
    assert callers[0] is callers[2] is None
    assert callers[1] == callers[3]
    assert callers[1] is not None
    file, _, line = str(callers[1]).rpartition(":")
    (script,) = records.parent.rglob(file)
    assert script.read_text().splitlines()[int(line) - 1].endswith("# here")
    (again,) = [e for e in events if e["event"] == "recompile" and e["file"] == "somelib.py"]
    assert again["caller"] == callers[1]
    from click.testing import CliRunner

    from warmwatch_monitor.commands.cli import cli

    for words in (["report", "-v"], ["status"]):
        output = CliRunner().invoke(
            cli, [*words, "--dir", str(records)], env={"COLUMNS": "200", "WARMWATCH_STATE": "off"}
        )
        assert f"(somelib.py:4), called from {callers[1]}" in " ".join(output.output.split())


@pytest.mark.long
def test_after_a_reset_each_function_at_the_recompile_limit_counts(records: Path) -> None:
    """Dynamo restarts its frame numbers, so the second function has the first one's number."""
    body = """
c = torch._dynamo.config
setattr(c, "recompile_limit" if hasattr(c, "recompile_limit") else "cache_size_limit", 2)
def one(x): return x + 1
def other(x): return x + 2
for function in (one, other, one):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", dynamic=False)
    for size in range(2, 8): compiled(torch.ones(size))
result(sorted({m.compile_id for m in get_compilation_metrics() if m.fail_type}))
"""
    assert [one.partition("/")[0] for one in result_of(records, TRUTH + body)] == ["0"]
    assert slots.read(slots.only(records)).compile.fallbacks == 2


@pytest.mark.long
def test_a_warm_cache_is_distinguished_from_a_cold_one(records: Path) -> None:
    body = "o = torch.optim.SGD(make().parameters()); c = torch.compile(make())\n"
    body += "with torch.no_grad(): c(torch.ones(4, 8))\nresult(truth())\n"
    cold = result_of(records, TRUTH + body)
    warm = result_of(records, TRUTH + body)
    assert (cold["fx"], warm["fx"]) == ([0, 1], [1, 0])
    verdicts = [compilations(folder)[0].get("cache") for folder in slots.folders(records)]
    assert verdicts == ([None, None] if "cache_verdicts" in TORCH.missing else ["miss", "hit"])
    took = [slots.read(folder).compile.phase_ns for folder in slots.folders(records)]
    loading = record.PHASES.index("cache_load")
    assert took[0][loading] == 0 < took[1][loading]


QUIET = """
import logging
from torch._dynamo.exc import FailOnRecompileLimitHit, Unsupported
from torch._dynamo.utils import get_compilation_metrics
torch._dynamo.config.automatic_dynamic_shapes = False
LIMIT
torch._logging.set_logs(dynamo=logging.ERROR)
logging.getLogger("torch").setLevel(logging.ERROR)
logging.disable(logging.WARNING)
import torch._dynamo.convert_frame as module
module.log.warning = lambda *args: None  # and whatever its words are

def broken(x):
    return x + 1
def strict(x):
    return x * 2
for function, whole in ((broken, False), (strict, True)):
    compiled = torch.compile(function, backend="eager", fullgraph=whole)
    for size in range(1, 9):
        try: compiled(torch.ones(size))
        except (FailOnRecompileLimitHit, Unsupported): assert whole
failed = [m.compile_id.partition("/")[0] for m in get_compilation_metrics() if m.fail_type]
result([len(failed) > 2, len(set(failed))])
"""


def test_a_frame_at_the_recompile_limit_counts_once_whatever_is_logged(records: Path) -> None:
    """PyTorch's own records are the truth: both frames failed, one of them at each call."""
    limit = f"torch._dynamo.config.{TORCH.limit} = 3"
    assert result_of(records, QUIET.replace("LIMIT", limit)) == [True, 2]
    folder = slots.only(records)
    reported = [one for one in slots.events(folder) if one["event"] == "fallback"]
    found = [(one["name"], one["file"], one["limit"], one.get("fullgraph")) for one in reported]
    assert found == [("broken", "train.py", 3, None), ("strict", "train.py", 3, True)]
    assert slots.read(folder).compile.fallbacks == 2


API = """
import warmwatch
seen = []
warmwatch.on_warm(lambda: seen.append(["called", warmwatch.is_warm()]))
states = [warmwatch.state()]
class Peek(torch.nn.Module):
    def forward(self, x): return x
def backend(graph, inputs):
    states.append([warmwatch.state(), warmwatch.is_compiling()])
    return graph.forward
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
states.append(warmwatch.state())
c = torch.compile(model, backend=backend)
for n in range(5):
    train(c, o, 1); states.append(warmwatch.state())
warmwatch.on_warm(lambda: seen.append("immediately"))
train(c, o, 1, batch=7); states.append(warmwatch.state())
result([states, seen])
"""


def test_a_training_can_query_its_own_state(records: Path) -> None:
    states, seen = result_of(records, API)
    assert states == [
        "starting",
        "starting",
        ["compiling", True],
        *["warming"] * 3,
        *["warm"] * 2,
        ["recompiling", True],
        "recompiling",
    ]
    assert seen == [["called", True], "immediately"]


def test_the_gpus_in_use_are_named_once_cuda_is_initialized(records: Path) -> None:
    """Stand-in devices: none is reported before they are initialized, and all of them after."""
    result_of(
        records,
        """
import warmwatch.recorder.writer
devices = []
warmwatch.recorder.writer.gpus_in_use = lambda: tuple(devices)
model = make()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(compiled, optimizer, 1)
devices.append("GPU-1")
result(train(compiled, optimizer, 5))
""",
    )
    assert slots.read(slots.only(records)).identity.gpus == ("GPU-1",)


WRAPPED = """
import os, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo")
model = {model}
train(model, torch.optim.SGD(model.parameters(), lr=.1), 4)
result(None)
os._exit(0)  # gloo's threads may abort a process that ends
"""


@pytest.mark.parametrize(
    ("model", "graphs"),
    [
        ('torch.compile(DDP(make()), backend="aot_eager")', 0),
        ('DDP(torch.compile(make(), backend="aot_eager"))', 1),
    ],
)
def test_a_container_compiled_before_ddp_wraps_it_is_captured(
    records: Path, model: str, graphs: int
) -> None:
    """What the report advises where nothing is captured."""
    result_of(records, WRAPPED.format(model=model))
    assert slots.read(slots.only(records)).compile.graphs == graphs


FSDP2 = """
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (1,))
class Own(torch.nn.Module):
    def __init__(self): super().__init__(); self.inner = torch.nn.Linear(8, 8)
    def forward(self, x): return self.inner(x).relu()
def container(): return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
model = torch.nn.Sequential(*((Own if OWN else container)() for _ in range(3)))
def compiled():
    for one in model: one.compile(backend="eager")
def sharded():
    for one in (*model, model): fully_shard(one, mesh=mesh)
for do in ORDER: globals()[do]()
train(model, torch.optim.SGD(model.parameters(), lr=.1), 6)
from warmwatch.lifecycle import api
conditions = api.attached.agent.warmth.judgement().conditions
known = {"never_compiled", "nothing_captured"}
result({**truth(), "conditions": [one for one in conditions if one in known]})
os._exit(0)  # gloo's threads may abort a process that ends
"""


@pytest.mark.long
@pytest.mark.skipif(VERSION == "2.6", reason="FSDP2 needs a GPU in PyTorch 2.6")
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("order", [("compiled", "sharded"), ("sharded", "compiled")])
def test_compiled_blocks_are_compiled_under_fsdp2(
    records: Path, order: tuple[str, str], own: bool
) -> None:
    """Except for containers of ``torch.nn``: PyTorch captures nothing of them.

    With FSDP2's hooks Dynamo skips all their frames, or compiles them without a graph (2.15).
    """
    truth = result_of(records, f"ORDER, OWN = {order!r}, {own}\n{TRUTH}\n{FSDP2}")
    counts = slots.read(slots.only(records)).compile
    forwards = counts.compilations[record.KINDS.index("forward")]
    assert forwards == sum(forward for _, forward in truth["ids"])
    assert counts.graphs == truth["graphs"]
    assert (truth["graphs"] > 0) is own
    without_graphs = ["nothing_captured" if truth["ids"] else "never_compiled"]
    assert (counts.wrappers, truth["conditions"]) == (3, [] if own else without_graphs)


def test_the_first_compilation_of_another_instance_is_told_from_a_change(
    records: Path,
) -> None:
    """PyTorch gives a reason for each; the truth is which module the script called before."""
    body = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 1)
    def forward(self, x): return self.linear(x)
nets = [Net() for _ in range(3)]
for one in nets[1:]:
    one.linear.weight.requires_grad_(False)
x = torch.randn(4, 8)
for one in (*nets, make(), make()):
    torch.compile(one, backend="eager")(x)
nets[0].linear.weight.requires_grad_(False)  # the entry of the second serves it
nets[0].linear.bias.requires_grad_(False)
torch.compile(nets[0], backend="eager")(x)
"""
    run(records, body)
    folder = slots.only(records)
    counts = slots.read(folder).compile
    reported = [e for e in slots.events(folder) if e["event"] == "compilation"]
    instances = [e["instance"] for e in reported if "instance" in e]
    categories = [e["category"] for e in reported if "category" in e]
    assert set(instances) == {2}
    assert counts.plain[0] == len(instances) == 1
    assert categories == ["new_instance", *["requires_grad"] * TORCH.guards_parameters]
    assert sum(counts.recompiles_by_category) == TORCH.guards_parameters
    reasons = [e for e in slots.events(folder) if e["event"] == "recompile"]
    assert len(reasons) == 1 + TORCH.guards_parameters


@pytest.mark.parametrize("whole", ["fullgraph", "error_on_graph_break"])
def test_each_call_that_fails_to_compile_is_a_failure(records: Path, whole: str) -> None:
    """Forward in one graph, and a backward: PyTorch's records are the truth."""
    if whole == "error_on_graph_break" and VERSION in ("2.6", "2.8"):
        pytest.skip("this PyTorch does not have it")
    body = f"WHOLE = {whole!r}"
    body += """
from torch._dynamo.backends.common import aot_autograd
model = make(); x = torch.randn(4, 8)
def inner(x):
    torch._dynamo.graph_break()
    return x
def broken(x):
    return model(inner(x))
is_full = WHOLE == "fullgraph"
if not is_full: broken = torch._dynamo.error_on_graph_break(True)(broken)
def no_backward(graph, inputs): raise RuntimeError("the user's own words")
forward = torch.compile(broken, fullgraph=is_full, backend="eager")
backward = torch.compile(model, backend=aot_autograd(
    fw_compiler=lambda graph, inputs: graph.forward, bw_compiler=no_backward))
caught = 0
for one in (forward, backward):
    for _ in range(5):
        try: one(x).sum().backward()
        except Exception: caught += 1
failed = [m for m in get_compilation_metrics() if m.fail_type]
result([caught, [[m.compile_id, m.fail_type] for m in failed]])
"""
    caught, truth = result_of(records, TRUTH + body)
    folder = slots.only(records)
    counts = slots.read(folder).compile
    failed = [entry for entry in compilations(folder) if "failure" in entry]
    assert [[entry["id"], entry["failure"]] for entry in failed] == truth
    assert counts.failures == len(failed) == caught == 10
    assert sum(counts.recompiles_by_category) == 0
    assert [e["kind"] for e in failed] == ["forward"] * 5 + ["backward"] * 5
    assert all("graph_break" in e["failure_reason"] for e in failed[:5]) or not TORCH.reason
    assert {e["failed_at"]["name"] for e in failed[:5]} == {"inner"}
    assert not any("own words" in str(e) for e in failed), "an exception's text may be the user's"
