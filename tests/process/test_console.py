"""Console messages (``WARMWATCH_SAY=1``) in a training that draws a progress bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.trainings import training
from warmwatch.shared.reasons import plain

BODY = """
from tqdm import trange
import warmwatch
model = make(); optimizer = torch.optim.SGD(model.parameters())
compiled = torch.compile(model, backend="eager")
for batch in trange(10):
    train(compiled, optimizer, 1, batch=4 if batch < 5 else 6)
result(None)
"""
# what follows the tensor's name, which depends on the PyTorch version
CHANGE = str(plain("tensor 'x' size mismatch at index 0. expected 4, actual 6")).rpartition("`")[2]


def lines_of(stderr: str) -> list[str]:
    """The output without the warning about a long compilation, which a slow machine adds."""
    text = [line.partition("warmwatch: ")[2] for line in stderr.splitlines()]
    return [line for line in text if line and not line.startswith("compiling for ")]


def test_it_prints_when_it_is_warm_what_recompiled_and_a_summary(records: Path) -> None:
    with training(records, BODY, env={"WARMWATCH_SAY": "1"}) as started:
        started.result()
        assert started.wait() == 0
    text = lines_of(started.stderr)
    first, recompiled, again, ended = (one.split(",")[0] for one in text)
    assert first == "warm since step 4"
    assert recompiled.startswith("recompiled ")
    assert CHANGE in text[1]
    assert again == "warm again since step 9"
    assert ended.startswith("ended after 10 steps: ")


TRAINS = """
import warmwatch
model = make(); optimizer = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch.compile(model, backend="eager")
"""


def console_lines(records: Path, body: str, **options: Any) -> list[str]:
    """The lines that a training writes to the console."""
    with training(records, body, env={"WARMWATCH_SAY": "1"}, **options) as started:
        started.result()
        assert started.wait() == 0
    return lines_of(started.stderr)


def test_functions_compiled_before_it_attached_are_not_reported_as_eager(records: Path) -> None:
    late = "train(compiled, optimizer, 2)\nwarmwatch.attach()\ntrain(compiled, optimizer, 8)\n"
    warm, ended = console_lines(records, TRAINS + late + "result(None)", attach=False)
    assert warm.startswith("warm since step 3: no compile event since the agent was attached; ")
    assert "no compile event since the agent was attached" in ended


@pytest.mark.long  # test_children.py has spawned ranks, and how they end
def test_a_spawned_rank_ends_once(records: Path) -> None:
    """It comes to its end as multiprocessing ends it, and again at Python's exit."""
    body = """
import os, torch.multiprocessing as mp
def main(rank):
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    model = make()
    train(model, torch.optim.SGD(model.parameters(), lr=.1), 4)
if __name__ == "__main__":
    mp.spawn(main, nprocs=1)
    result(None)
"""
    # with a parent that trains nothing, and so has no reason to import the compiler
    text = console_lines(records, body, plain=True)
    assert [line.split()[0] for line in text] == ["runs", "ended"]
