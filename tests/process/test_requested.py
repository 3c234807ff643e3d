"""The arguments of `torch.compile`, as the agent counts them in real trainings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import slots
from support.sources import poller
from support.trainings import result_of, run, training
from warmwatch.shared.record import DISABLED
from warmwatch_monitor.status.words.conditions import conditions

# Libraries stand in for themselves: a file in a folder of packages that decorates when imported.
REQUESTED = """
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
        "def requested(f): return torch.compile(f, backend='eager')\\n"
    )
import library, module
library.requested(make())
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


def test_only_the_users_calls_are_counted(records: Path) -> None:
    """A model, a module, a function, an optimizer; a library's own calls are not counted."""
    run(records, REQUESTED)
    assert slots.read(slots.only(records)).compile.wrappers == 7


def test_pytorchs_own_calls_are_not_reported_as_requested(records: Path) -> None:
    undone, home = result_of(records, INTERNAL)
    assert (undone, home) == (True, "torch._dynamo.eval_frame")
    assert slots.read(slots.only(records)).compile.wrappers == 0


OVERDUE = """
import warmwatch
from warmwatch.lifecycle import api
def overdue():
    return "never_compiled" in api.attached.agent.warmth.judgement().conditions
def compiled(one): return torch.compile(one, backend="eager")
class Augmented(torch.utils.data.Dataset):
    def __len__(self): return 5
    def __getitem__(self, index): return augment(torch.ones(8))
@torch.compile(backend="eager")
def augment(x): return x + 1
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
frozen = make().requires_grad_(False)
class Odd(torch.nn.Linear):
    def __getattr__(self, name):
        if name in ("param_groups", "__self__"): raise RuntimeError(name)
        return super().__getattr__(name)
def no_time(function): function(); return overdue()
def later(function): function(); train(model, o, 3); return overdue()
found = {}
for name, wait, request in (
    ("model", later, lambda: compiled(model)),
    ("its method", later, lambda: compiled(model.forward)),
    ("in place", later, lambda: make().compile(backend="eager")),
    ("decorated", later, lambda: torch.compile(backend="eager")(model)),
    ("compiler", later, lambda: torch.compiler.compile(model, backend="eager")),
    ("odd", later, lambda: compiled(Odd(8, 1))),
    ("optimizer", later, lambda: compiled(o.step)),
    ("late", no_time, lambda: compiled(model)),
    ("function", later, lambda: compiled(lambda x: model(x))),
    ("for evaluation", later, lambda: compiled(make().eval())),
    ("frozen", later, lambda: compiled(frozen)),
    ("in a worker", later, lambda: list(
        torch.utils.data.DataLoader(Augmented(), num_workers=1))),
):
    warmwatch.attach()
    train(model, o, 5)
    found[name] = wait(request)
    warmwatch.detach()
result(found)
"""


def test_only_what_every_step_calls_is_missed(records: Path) -> None:
    found = result_of(records, OVERDUE, attach=False)
    missed = {"model", "its method", "in place", "decorated", "compiler", "odd", "optimizer"}
    assert {name for name, overdue in found.items() if overdue} == missed


STANCE = """
import torch._dynamo.config
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
if HOW == "stance": torch.compiler.set_stance("force_eager")
if HOW == "config": torch._dynamo.config.disable = True
train(c, o, 4)
"""


@pytest.mark.parametrize("how", DISABLED[1:4])
def test_a_setting_that_disables_compilation_is_reported(records: Path, how: str) -> None:
    env = {"TORCHDYNAMO_DISABLE": "1"} if how == "environment" else {}
    run(records, f"HOW = {how!r}\n{STANCE}", env=env)
    counts = slots.read(slots.only(records)).compile
    assert (counts.wrappers, counts.begun, DISABLED[counts.disabled]) == (1, 0, how)


# PyTorch's own function, called as a graph first runs: its message is logged and counted.
SKIPPED = """
import logging, types
import torch._inductor.config as config
from torch._dynamo.backends import cudagraphs
from torch._dynamo.utils import counters
from torch._inductor.cudagraph_utils import get_mutation_stack_trace
logs = []
class Heard(logging.Handler):
    def emit(self, line):
        logs.append([line.getMessage(), line.funcName, line.filename, line.lineno])
module = cudagraphs.log_cudagraph_skip_and_bump_counter.__module__
for name in [name for name in logging.root.manager.loggerDict if name.startswith(module + ".__")]:
    logging.getLogger(name).addHandler(Heard())
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="cudagraphs")
losses = train(c, o, 1)
# what the modules that come late have of it
from torch._inductor import cudagraph_trees, cudagraph_utils, output_code
def left_out(module, line):
    stack = f'  File "/home/alice/train.py", line {line}, in forward\\n    seen.add_(secret)\\n'
    inputs = [types.SimpleNamespace(mutating_use_stack_trace=stack)]
    module.log_cudagraph_skip_and_bump_counter(get_mutation_stack_trace(inputs, [0]))
left_out(cudagraph_trees, 12)
left_out(output_code, 13)
logging.disable(logging.CRITICAL)  # a program that disables logging
left_out(cudagraph_utils, 14)
logging.disable(logging.NOTSET)
raised = None
if hasattr(config.triton, "cudagraph_or_error"):
    with config.patch({"triton.cudagraph_or_error": True}):
        try: left_out(cudagraph_trees, 15)
        except RuntimeError as error: raised = str(error)
else: left_out(cudagraph_trees, 15)
losses += train(c, o, 4)
skips = counters["inductor"]["cudagraph_skips"]
"""


def test_cudagraph_skips_at_run_time_are_reported_and_change_nothing_else(
    records: Path,
) -> None:
    """Once each: what a compilation's record has is in its line, the rest in lines of its own."""
    body = f"{SKIPPED}result([losses, logs, raised, skips])"
    parsed = []
    for attach in (False, True):
        with training(records, body, attach=attach) as started:
            result = started.result()
            assert started.wait() == 0
        parsed.append((result, re.sub(r"[A-Z]\d{4} \S+ \d+ ", "", started.stderr), started.output))
    assert parsed[0] == parsed[1]
    folder = slots.only(records)
    counted = slots.read(folder).compile.cudagraph_skips
    events = slots.events(folder)
    reported = [event for event in events if event["event"] == "cudagraph_skip"]
    recorded = [event for event in events if event.get("cudagraph_skip")]
    assert len(reported) + len(recorded) == counted == result[3]
    ran = [event for event in reported if "mutated inputs" in event["reason"]]
    assert [event["line"] for event in ran] == [12, 13, 14, 15]
    assert {(event["name"], event["file"]) for event in ran} == {("forward", "train.py")}
    assert "secret" not in str(reported)
    assert "alice" not in str(reported)


def test_calls_left_uncompiled_by_a_stance_or_a_setting_are_counted(records: Path) -> None:
    """The backend counts the runs of what it compiled, the script the calls that it made."""
    body = """
from warmwatch.lifecycle import api as _current
import torch._dynamo.config as config
from torch.utils.flop_counter import FlopCounterMode
def counts(): return _current.attached.agent.record.image().compile
runs = 0
def backend(graph, inputs):
    def run(*values):
        global runs; runs += 1
        return graph.forward(*values)
    return run
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend=backend, dynamic=False)
train(c, o, 5)
def calls(number, size):
    global runs
    runs, refused = 0, 0
    for _ in range(number):
        try: c(torch.randn(size, 8))
        except RuntimeError: refused += 1
    return [number - runs - refused, refused]
found = []
def look(one): found.append([one, [counts().eager_calls, counts().refused_calls,
    counts().on_recompile_calls, counts().disabled, counts().fallbacks]])
with torch.compiler.set_stance("force_eager"): one = calls(7, 4)
look(one)
with torch.compiler.set_stance("eager_on_recompile"):
    one = calls(3, 4)
    look(one)
    at = counts().disabled_since_steps
with torch.compiler.set_stance("fail_on_recompile"): one = calls(6, 5)
look(one)
train(c, o, 1)
config.disable = True
look(calls(2, 4))
look(calls(2, 5))
config.disable = False
look(calls(2, 4))
c = torch.compile(lambda x: x * 2, backend=backend, dynamic=False)
look(calls(2, 4))
with FlopCounterMode(display=False): look(calls(2, 4))
look(calls(2, 4))
c = torch.compile(lambda x: x * 3, backend=backend)
with FlopCounterMode(display=False): calls(1, 4)
look(calls(2, 4))
result([found, at])
"""
    found, at = result_of(records, body)
    on_recompile = DISABLED.index("eager_on_recompile")
    assert at == 5
    *found, counted, in_mode, after, first = found
    assert (counted[0], in_mode[0]) == ([0, 0], [2, 0])
    # a call in a dispatch mode is the last one that runs compiled, before 2.15
    assert after in ([[2, 0], [7, 6, 3, 0, 2]], [[0, 0], [7, 6, 3, 0, 1]])
    # nor does what was first called in one
    assert first in ([[2, 0], [7, 6, 3, 0, 3]], [[0, 0], [7, 6, 3, 0, 1]])
    assert found == [
        [[7, 0], [7, 0, 0, 0, 0]],
        [[0, 0], [7, 0, 1, on_recompile, 0]],  # the others with the next check
        [[0, 6], [7, 6, 3, 0, 0]],
        [[0, 0], [7, 6, 3, 0, 0]],  # what is compiled runs on
        [[2, 0], [7, 6, 3, 0, 1]],  # and from a new input on, nothing of this function
        [[2, 0], [7, 6, 3, 0, 1]],
    ]


UNFUSED = """
import warnings
import torch._dynamo
from torch._dynamo import utils
from torch.nn.attention.flex_attention import flex_attention

def attend(q): return flex_attention(q, q, q)
def other(q): return flex_attention(q, q, q)
q, double = torch.randn(1, 1, 128, 16), torch.randn(1, 1, 128, 16, dtype=torch.double)
from warmwatch.lifecycle import api
from warmwatch.shared.record import COMPILE_INDEX
def fallbacks(): return api.attached.agent.ledger.block[COMPILE_INDEX["fallbacks"]]
warned = []
warnings.showwarning = lambda message, *rest: warned.append(str(message))
counted = []
compiled = torch.compile(attend, backend="aot_eager")
for attention, of in ((compiled, q), (attend, q), (attend, q), (other, double)):
    attention(of)
    wrappers = {str(one.compile_id) for one in utils.get_compilation_metrics()
                if "flex_attention_hop_wrapper" in (one.co_name or "")}
    requested = any("without torch.compile()" in text for text in warned)
    counted.append([fallbacks(), len(wrappers) > 0, requested])
result(counted)
"""


@pytest.mark.long
def test_flex_attention_that_is_called_uncompiled_is_named_with_its_function(
    records: Path,
) -> None:
    """PyTorch's own: the compilation of its unfused wrapper, and its warning (2.9 and later)."""
    counted = result_of(records, UNFUSED)
    assert [fallbacks for fallbacks, *_ in counted] == [0, 1, 1, 2]
    assert [compiled for _, compiled, _ in counted] == [False, True, True, True]
    warns = any(warned for *_, warned in counted)
    assert [warned for *_, warned in counted] == [False, *[warns] * 3]
    slot = slots.read(slots.only(records))
    assert (slot.compile.agent_errors, slot.compile.fallbacks) == (0, 2)
    events = slots.events(slots.only(records))
    found = [one for one in events if one["event"] == "fallback"]
    assert [(one["setting"], one["name"]) for one in found] == [
        ("flex_attention", "attend"),
        ("flex_attention", "other"),
    ]
    (rank,) = poller(directories=(str(records),)).poll_once().runs[0].ranks
    words = conditions(rank)["fallback"].text
    assert words.startswith("`flex_attention` runs unfused in `attend` (")
    scores = 1 * 1 * 128 * 128 * 4
    assert [one["score_bytes"] for one in found] == [scores, 2 * scores]  # float32, then float64
    unfused = "it is called uncompiled, 65.5 kB of scores a call"
    assert words.endswith(f"(and 1 other function): {unfused}")


@pytest.mark.long
def test_calls_under_a_stance_that_the_training_keeps_are_counted_when_it_ends(
    records: Path,
) -> None:
    """No stance is set after them, and nothing compiles, so nothing else reads their number."""
    body = """
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
train(c, o, 5)
torch.compiler.set_stance("eager_on_recompile")
train(c, o, 6)
"""
    run(records, body)
    assert slots.read(slots.only(records)).compile.on_recompile_calls == 6
