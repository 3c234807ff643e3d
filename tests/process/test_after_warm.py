"""Compilations after the warm-up are reported, warned about or refused. Real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.torch_versions import TORCH
from support.trainings import result_of
from warmwatch.shared.advice import advice
from warmwatch.shared.reasons import plain

START = """
import warnings, warmwatch
warmwatch.attach(after_warm=MODE)
recompiles, warned = [], []
warnings.showwarning = lambda message, category, file, *rest: warned.append([str(message), file])
warnings.simplefilter("always")
warmwatch.on_recompile(lambda one: recompiles.append(
    [one.function, one.file, one.kind, one.category, bool(one.remedy), warmwatch.is_compiling()]
))
def double(x): return x * 2
compiled = torch.compile(double, backend="eager", dynamic=False)
def attempt(*shape):
    try: return list(compiled(torch.ones(*shape)).shape)
    except RuntimeError as error: return str(error)
"""
CALLS = """
compiled(torch.ones(2))
compiled(torch.ones(3))
during = list(recompiles)
warmwatch.ready()
same = attempt(3)
with warmwatch.allow_compilation(): allowed = attempt(4)
late = attempt(5)
warmwatch.detach()
result([during, same, allowed, late, attempt(6), recompiles, warned])
"""
# what follows the tensor's name, which depends on the PyTorch version
REASON = "tensor 'x' size mismatch at index 0. expected 4, actual 5"
CHANGE = str(plain(REASON)).rpartition("`")[2]
LATE = ["double", "train.py", "forward", "shape", True, False]


@pytest.mark.parametrize("mode", [None, "warn"])
def test_a_late_compilation_is_reported_with_reason_and_remedy_after_it_ends(
    records: Path, mode: str | None
) -> None:
    body = START.replace("MODE", repr(mode)) + CALLS
    during, same, allowed, late, after, reported, warned = result_of(records, body, attach=False)
    assert (during, same, allowed, late, after) == ([], [3], [4], [5], [6])
    assert reported == [LATE], "neither what the warm-up compiled nor what was allowed"
    ours = [one for one in warned if one[0].startswith("warmwatch:")]
    assert len(ours) == (mode == "warn")
    for message, file in ours:
        assert "`double` (train.py:" in message
        assert "compiled after the warm-up: " in message
        assert CHANGE in message
        assert str(advice("shape", reason=REASON, dynamic=False)) in message
        assert file.endswith("train.py")
    assert slots.read(slots.only(records)).compile.agent_errors == 0


def test_raise_refuses_before_anything_compiles(records: Path) -> None:
    """PyTorch's own stance, restored by detach; what is allowed compiles."""
    body = START.replace("MODE", repr("raise")) + CALLS
    during, same, allowed, late, after, reported, _ = result_of(records, body, attach=False)
    assert (during, same, allowed, after, reported) == ([], [3], [4], [6], [])
    assert "fail_on_recompile" in late
    assert ("double" in late) == TORCH.names_refused
    counts = slots.read(slots.only(records)).compile
    assert sum(counts.compilations) == 3, "two in the warm-up, and the one that was allowed"


BY_STEPS = """
import warmwatch
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager", dynamic=False)
train(c, o, 6)
try: train(c, o, 1, batch=5)
except RuntimeError as error: refused = str(error)
else: refused = None
train(c, o, 1)
result(["fail_on_recompile" in str(refused), warmwatch.state()])
"""


def test_a_training_is_refused_from_its_first_warm_step_on(records: Path) -> None:
    found = result_of(records, BY_STEPS, env={"WARMWATCH_AFTER_WARM": "raise"}, plain=True)
    assert found == [True, "warm"]


OWN = """
torch.compiler.set_stance("eager_on_recompile")
compiled(torch.ones(2))
warmwatch.ready()
result([attempt(3), torch._dynamo.eval_frame._stance.stance, [w for w, _ in warned]])
"""


def test_a_stance_set_by_the_user_is_not_replaced(records: Path) -> None:
    body = START.replace("MODE", repr("raise")) + OWN
    shape, stance, warned = result_of(records, body, attach=False)
    assert (shape, stance) == ([3], "eager_on_recompile")
    assert any("your stance 'eager_on_recompile' stays in effect" in one for one in warned)


WRONG = """
def fails(one): raise ValueError("mine")
warmwatch.on_recompile(fails)
compiled(torch.ones(2)); warmwatch.ready()
result([attempt(3), len(recompiles), [w for w, _ in warned if "mine" in w]])
"""


def test_a_callback_that_raises_is_reported_and_the_training_continues(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    shape, reported, warned = result_of(
        records, START.replace("MODE", "None") + WRONG, attach=False
    )
    assert (shape, reported, len(warned)) == ([3], 1, 1)
    assert slots.read(slots.only(records)).compile.agent_errors == 1
