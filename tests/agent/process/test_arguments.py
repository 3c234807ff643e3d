"""Arguments of ``attach()``: which are accepted, which are refused, and the messages."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import slots
from support.trainings import run, training
from warmwatch.process.settings import checked
from warmwatch.shared.values import LARGEST


class Shape(int, Enum):
    TOKENS = 491_520


class Strange:
    def __index__(self) -> int:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value", [491_520, np.int64(491_520), np.uint32(491_520), np.array(491_520), Shape.TOKENS]
)
def test_every_kind_of_integer_is_accepted(value: Any) -> None:
    taken, complaints = checked({"tokens_per_step": value, "samples_per_step": None})
    assert taken == {"tokens_per_step": 491_520}
    assert (type(taken["tokens_per_step"]), complaints) == (int, ())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("491520", "the str '491520'"),
        (True, "True"),
        (1.5, "1.5"),
        (0, "0"),
        (-1, "-1"),
        (LARGEST + 1, str(LARGEST + 1)),
        (10**400, "an integer of 1329 bits"),
        pytest.param(10**5000, "an integer of 16610 bits", id="more than Python prints"),
        (np.float64(5), "of type float64"),
        (np.ones(2, dtype=int), "of type ndarray"),
        ([5], "of type list"),
        (Strange(), "of type Strange"),
    ],
)
def test_an_invalid_size_is_refused_by_name(value: Any, words: str) -> None:
    taken, (complaint,) = checked({"tokens_per_step": value, "samples_per_step": 4})
    assert taken == {"samples_per_step": 4}
    assert complaint.startswith(f"attach(tokens_per_step=...) is {words}")


def test_a_tensor_is_refused_and_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one that is on a GPU waits for everything that the GPU has to do."""
    import torch

    reads = []
    for name in ("item", "__index__", "__float__", "__int__", "__repr__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_: reads.append(1))
    for tensor in (torch.ones(()), torch.nn.Parameter(torch.ones(()))):
        for name in ("tokens_per_step", "flops_per_step", "dtype"):
            taken, (complaint,) = checked({name: tensor})
            assert taken == {}
            assert complaint.startswith(f"attach({name}=...) is a torch.Tensor, which is not read")
    assert reads == []


@pytest.mark.parametrize("value", [6e12, 6, np.float32(2.0), LARGEST * 4])
def test_operations_are_any_number_above_0(value: Any) -> None:
    assert checked({"flops_per_step": value}) == ({"flops_per_step": float(value)}, ())


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 1e305, 0.0, -1, "6e12", True, 10**400, 1j],
)
def test_operations_too_large_for_the_record_are_refused(value: Any) -> None:
    taken, complaints = checked({"flops_per_step": value})
    assert (taken, len(complaints)) == ({}, 1)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("a/b c", "a/b c"),
        ("run\x1b]0;x\x07", "run_]0;x_"),
        ("\ud800", "_"),
        ("x" * 300, "x" * 200),
    ],
)
def test_unprintable_characters_of_a_name_are_replaced(given: str, taken: str) -> None:
    found, complaints = checked({"run": given})
    assert (found, bool(complaints)) == ({"run": taken}, given != taken)


@pytest.mark.parametrize("value", [5, "", "  ", b"gpt2", Path("gpt2")])
def test_an_invalid_name_is_refused(value: Any) -> None:
    taken, (complaint,) = checked({"run": value})
    assert (taken, complaint[:18]) == ({}, "attach(run=...) is")


STEPS = """
o = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
def steps(count):
    for _ in range(count): o.step()
"""


def test_a_refused_argument_costs_one_warning_at_the_users_line_and_no_record(
    records: Path,
) -> None:
    body = (
        STEPS
        + "import warmwatch\n"
        + "for _ in range(2): warmwatch.attach(run='mine', tokens_per_step='491520')\n"
        + "steps(4)"
    )
    with training(records, body) as started:
        assert started.wait() == 0
    warning, line = started.stderr.splitlines()
    assert "/train.py:" in warning
    assert "UserWarning: warmwatch: attach(tokens_per_step=...) is the str '491520'" in warning
    assert line.strip().startswith("for _ in range(2): warmwatch.attach(")
    slot = slots.read(slots.only(records))
    assert (slot.identity.run, slot.identity.tokens_per_step, slot.tokens) == ("mine", None, None)
    assert slot.steps.steps == 4


def test_a_warning_never_raises_even_if_warnings_are_errors(records: Path) -> None:
    body = "import warnings; warnings.simplefilter('error')\n" + STEPS
    body += "import warmwatch; warmwatch.attach(tokens_per_step='1'); steps(4)"
    run(records, body)
    assert slots.read(slots.only(records)).steps.steps == 4


def test_a_changed_value_does_not_change_what_earlier_steps_counted(records: Path) -> None:
    """A value that is set late applies to all earlier steps."""
    body = (
        STEPS
        + """
import warmwatch
steps(4); warmwatch.attach(tokens_per_step=1000)
steps(3); warmwatch.attach(tokens_per_step=10, samples_per_step=2)
steps(2); warmwatch.attach(flops_per_step=1)
steps(1)
"""
    )
    run(records, body)
    slot = slots.read(slots.only(records))
    assert (slot.steps.steps, slot.tokens, slot.samples) == (10, 7 * 1000 + 3 * 10, 10 * 2)
    assert slot.identity.tokens_per_step == 10


def test_a_number_of_warm_steps_out_of_bounds_is_the_default(records: Path) -> None:
    values = [str(10**30), "9" * 5000, "0", "-1", "1000001", "5"]
    body = f"""
import os, warmwatch
for value in {values!r}:
    os.environ["WARMWATCH_WARM_STEPS"] = value
    warmwatch.attach(); steps(4); warmwatch.detach()
"""
    run(records, STEPS + body, attach=False)
    read = [slots.read(folder).header.warm_steps for folder in slots.folders(records)]
    assert read == [3, 3, 3, 3, 3, 5]


def test_a_dtype_is_accepted_by_name_or_as_torch_dtype() -> None:
    import torch

    for value in ("bfloat16", torch.bfloat16):
        assert checked({"dtype": value}) == ({"dtype": "bfloat16"}, ())
    assert checked({"dtype": torch.float8_e4m3fn}) == ({"dtype": "float8"}, ())


def test_an_unknown_dtype_is_refused() -> None:
    import torch

    for value in ("bf16", torch.int8, 16, Strange()):
        taken, (complaint,) = checked({"dtype": value})
        assert taken == {}
        assert complaint.startswith("attach(dtype=...) is ")
