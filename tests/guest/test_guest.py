"""The agent is a guest: a training runs with it as without it. ``make guest`` runs all of them."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path

import pytest

from guest.comparison import compared
from guest.headers import Training, all_trainings, read
from support.torch_versions import VERSION

_VERSION = tuple(map(int, VERSION.split(".")))
TRAININGS = [
    pytest.param(one, marks=[pytest.mark.long] * (not one.core))
    for one in all_trainings()
    if one.torch <= _VERSION and not one.long
]


@pytest.mark.training
@pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.name)
def test_a_training_is_the_same_with_the_agent(training: Training) -> None:
    found = compared(training)

    assert found.as_expected, "\n".join(found.differences)


RUDE = """
    import os, random, warnings
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    @torch.compiler.disable
    def hook(optimizer, args, kwargs):
        random.random()
        torch.rand(1)
        warnings.warn("a guest speaks")
        print("and prints")

    register_optimizer_step_post_hook(hook)
    os.environ["RUDE"] = "1"
"""
TRAINED = '''
    """Seen by a rude guest."""
    # steps: 1

    import optimizers
    import torch

    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    torch.compile(optimizers.Sign([weight]).step, backend="eager")()
'''


@pytest.mark.training
def test_a_guest_that_is_none_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that draws random numbers, warns, prints and breaks a graph, in place of ours."""
    script = tmp_path / "trained.py"
    script.write_text(textwrap.dedent(TRAINED).lstrip())
    for name, text in (("rude", RUDE), ("optimizers", _library())):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    # a fork looks for what it imports beside the script
    training = read(script)

    found = "\n".join(compared(training, attach=("rude",), most=10_000).differences)

    assert "steps: the training makes (1,), the agent counts ()" in found
    for change in (
        "random state: ",
        "random state of torch: ",
        "a guest speaks",
        "+and prints",
        "-frames: ok: 1",
        "graph_op_count",
        "+RUDE=1",
    ):
        assert change in found


def _library() -> str:
    return (Path(__file__).parent / "scripts" / "optimizers.py").read_text()


def test_a_training_that_fails_by_itself_is_no_proof() -> None:
    (plain,) = (one for one in all_trainings() if one.name == "plain_loop")

    found = compared(dataclasses.replace(plain, exit=3))

    assert found.differences[0] == "it exits with (0,) without the agent, not with 3:"


def test_a_need_that_is_none_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text('"""Title."""\n# stesp: 3\n')

    with pytest.raises(ValueError, match="no such need: # stesp: 3"):
        read(script)


def test_a_known_fault_of_another_pytorch_excuses_nothing(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f'"""Title."""\n# fault: torch 1.0: old\n# fault: torch {VERSION}: new\n')

    assert read(script).fault == "new"

    script.write_text('"""Title."""\n# fault: torch 1.0: old\n')

    assert not read(script).fault
