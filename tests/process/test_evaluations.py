"""Evaluations of plain loops, from ``model.eval()`` on: real trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import slots
from support.sources import poller
from support.trainings import result_of, run, training
from warmwatch.shared.states import State
from warmwatch_monitor.pipeline import slot_figures

START = """
import time, warmwatch
import torch._dynamo
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = make(), torch.nn.Linear(1, 1)
    def forward(self, x): return self.head(self.backbone(x))
model = Net(); teacher = make()
o = torch.optim.SGD(model.parameters(), lr=.1)
train(model, o, 5)
"""
EVALUATE = """
model.eval()
before = time.monotonic_ns()
gate("evaluating")
with torch.no_grad(): model(torch.randn(4, 8))
after = time.monotonic_ns()
model.train()
gate("over")
train(model, o, 1)
result([before, after])
gate("trains")
"""


def test_a_plain_loop_is_evaluating_from_eval_to_train(records: Path) -> None:
    look = poller(directories=(str(records),))
    with training(records, START + EVALUATE) as one:
        one.reach("evaluating")
        during = slots.read(slots.only(records)).compile
        (rank,) = look.poll_once().runs[0].ranks
        one.go()
        one.reach("over")
        over = slots.read(slots.only(records)).compile
        one.go()
        before, after = one.result()
        one.reach("trains")
        one.go()
        assert one.wait() == 0, one.stderr
    assert 0 < during.evaluating_since_ns <= before
    assert rank.figures.pauses.evaluating_for_seconds is not None
    assert rank.judgement.state is not State.STALLED
    assert (over.evaluating_since_ns, over.evaluations) == (0, 1)
    assert after - before <= over.evaluating_ns == over.evaluated_ns - during.evaluating_since_ns
    assert slots.read(slots.only(records)).compile.agent_errors == 0


def test_the_next_step_ends_an_evaluation_without_train(records: Path) -> None:
    run(records, START + "model.eval()\ntrain(model, o, 1)\n")
    counts = slots.read(slots.only(records))
    assert counts.compile.evaluating_since_ns < counts.steps.last_step_ns
    assert counts.compile.evaluating_ns == 0, "its end is unknown"


@pytest.mark.parametrize(
    "each",
    [
        "model.backbone.eval()",
        "teacher.eval()",
        "model.eval(); model(torch.randn(4, 8)); model.train()",
    ],
    ids=["frozen backbone", "teacher", "a rollout in each step"],
)
def test_eval_within_a_step_is_not_an_evaluation(records: Path, each: str) -> None:
    body = f"""
train(model, o, 1)
for _ in range(6):
    model.train()
    {each}
    train(model, o, 1)
"""
    run(records, START + body)
    counts = slots.read(slots.only(records)).compile
    # the first of those in each step cannot be distinguished from an evaluation
    assert counts.evaluations == ("model.eval" in each)


# The backend counts the runs of what it compiled.
UNCOMPILED = """
runs = 0
def backend(graph, inputs):
    def run(*args):
        global runs
        runs += 1
        return graph(*args)
    return run
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch.compile(model, backend=backend)
train(compiled, o, 5)
found = []
for called in (compiled, model, "forced", compiled):
    before = runs
    model.eval()
    with torch.no_grad():
        if called == "forced":
            with torch.compiler.set_stance("force_eager"): compiled(torch.randn(4, 8))
        else:
            called(torch.randn(4, 8))
    model.train()
    found.append(runs - before)
    train(compiled, o, 3)
from torch._dynamo import eval_frame
result([found, eval_frame._callback_from_stance.__module__])
"""


def test_an_evaluation_that_calls_no_compiled_function_is_counted(records: Path) -> None:
    """By the uncompiled model, or under a stance; afterwards PyTorch's function is in its place."""
    runs, restored = result_of(records, START + UNCOMPILED)
    assert runs == [1, 0, 0, 1]
    assert restored == "torch._dynamo.eval_frame"
    slot = slots.read(slots.only(records))
    assert (slot.compile.evaluations, slot.compile.uncompiled_evaluations) == (4, 2)
    assert slot_figures.compile_of(slot).uncompiled_evaluations == 2
    assert slot.compile.agent_errors == 0


def test_compilations_of_an_evaluation_are_between_steps_whichever_guard_failed_first(
    records: Path,
) -> None:
    """Also with gradients enabled: only ``training`` changed, and no reason names no_grad."""
    body = """
model = make().append(torch.nn.Dropout(.1)); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
train(c, o, 5)
model.eval(); c(torch.randn(4, 8)); model.train()
train(c, o, 4)
train(c, o, 2, batch=6)
"""
    done = run(records, body, env={"WARMWATCH_SAY": "1"})
    from click.testing import CliRunner

    from warmwatch_monitor.commands.cli import cli

    environ = {"COLUMNS": "200", "WARMWATCH_STATE": "off"}
    output = CliRunner().invoke(cli, ["report", "-v", "--dir", str(records)], env=environ).output
    again = output[output.index("Recompiles") :]
    assert "between steps 5 and 6" in again
    assert "(shape, in step 10" in again
    assert "in step 6" not in again
    lines = [line for line in done.stderr.splitlines() if "recompiled" in line]
    assert "between steps 5 and 6" in lines[0]
    assert "in step 10" in lines[-1]


BATCHES = """
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch.compile(model, backend="eager")
loader = torch.utils.data.DataLoader(torch.randn(24, 8), batch_size=4)
train(compiled, o, 5)
took = []
for _ in range(3):
    before = time.monotonic()
    model.eval()
    with torch.no_grad():
        for batch in loader:
            compiled(batch); time.sleep(.02)
    model.train()
    took.append((time.monotonic() - before) / 6)
    train(compiled, o, 3)
    for batch in loader: pass
result(took)
"""


def test_the_time_of_an_evaluation_batch_excludes_evaluations_that_compile(
    records: Path,
) -> None:
    _, *took = result_of(records, f"import time\n{BATCHES}")
    counts = slots.read(slots.only(records)).compile
    assert (counts.evaluations, counts.evaluation_batches) == (3, 12)
    (rank,) = poller(directories=(str(records),)).poll_once().runs[0].ranks
    # a busy machine may stop the process between the two clocks; what compiled took far longer
    expected = pytest.approx(sum(took) / 2, rel=0.05, abs=0.01)
    assert rank.figures.pauses.evaluation_batch_seconds == expected


def test_a_training_that_evaluates_first_gets_no_advice_for_its_training_graph(
    records: Path,
) -> None:
    """As nanoGPT, which estimates its loss before the first step: PyTorch compiles the model again
    for the first step, with gradients. That is part of the warm-up.
    """
    body = """
model = make().append(torch.nn.Dropout(.1)); o = torch.optim.AdamW(model.parameters())
c = torch.compile(model, backend="eager")
for step in range(12):
    if step % 6 == 0:
        model.eval()
        with torch.no_grad():
            for _ in range(3): c(torch.randn(4, 8))
        model.train()
    train(c, o, 1)
"""
    run(records, body)
    from click.testing import CliRunner

    from warmwatch_monitor.commands.cli import cli

    environ = {"COLUMNS": "200", "WARMWATCH_STATE": "off"}
    made = json.loads(
        CliRunner().invoke(cli, ["report", "--json", "--dir", str(records)], env=environ).output
    )
    (again,) = made["recompiled"]
    assert (again["category"], again["after_warm"], again["advice"]) == ("grad_mode", 0, None)
    assert (made["do"], made["conditions"]) == ([], {})


EVALUATES_FIRST = """
import time
{imports}
model = make().append(torch.nn.Dropout(.1))
def optimizer(): return torch.optim.SGD(model.parameters(), lr=.1)
def slow(graph, inputs): time.sleep(.05); return graph
def compiled(): return torch.compile(model, backend=slow)
def evaluate(n=4):
    with torch.no_grad():
        for size in (n, n, n - 1): c(torch.randn(size, 8))
def validate(n=4):
    model.eval(); evaluate(n); model.train()
{body}
before = time.monotonic_ns()
train(c, o, 1)
first = time.monotonic_ns() - before
train(c, o, 3)
result([before, first])
"""


@pytest.mark.parametrize(
    "body",
    [
        "c = compiled(); o = optimizer(); validate()",
        # as nanoGPT: the optimizer's constructor imports Dynamo
        pytest.param("o = optimizer(); c = compiled(); validate()", marks=pytest.mark.long),
        pytest.param(
            "c = compiled(); o = optimizer()\nwith warmwatch.evaluating(): evaluate()",
            marks=pytest.mark.long,
        ),
        # it has no optimizer yet
        "c = compiled(); validate(); o = optimizer()",
        pytest.param("c = compiled(); evaluate(); o = optimizer()", marks=pytest.mark.long),
    ],
    ids=["eval", "optimizer first", "reported", "optimizer last", "no eval"],
)
def test_step_1_does_not_include_an_evaluation_before_it(records: Path, body: str) -> None:
    script = EVALUATES_FIRST.format(imports="import warmwatch", body=body)
    imports = body.startswith("o = optimizer()")
    before, first = result_of(records, script, plain=imports)
    slot = slots.read(slots.only(records))
    began = slot.compile.first_step_ns - slot.compile.first_duration_ns
    assert began >= before, "the evaluation is within it"
    assert 0 < slot.compile.first_duration_ns <= first
    assert slot.compile.before_first_step_ns >= 2 * 50e6, "it compiled for two sizes"
    from click.testing import CliRunner

    from warmwatch_monitor.commands.cli import cli

    environ = {"COLUMNS": "200", "WARMWATCH_STATE": "off"}
    output = CliRunner().invoke(cli, ["report", "-v", "--dir", str(records)], env=environ).output
    assert "(shape, before step 1)" in output
    (rank,) = poller(directories=(str(records),)).poll_once().runs[0].ranks
    assert rank.figures.steps.first == slot.compile.first_duration_ns / 1e9
    assert rank.figures.steps.before_first_compile_seconds is not None
