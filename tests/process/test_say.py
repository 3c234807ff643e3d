"""``WARMWATCH_SAY=1``, beside a training that draws a progress bar."""

from __future__ import annotations

from pathlib import Path

from support.trainings import training

BODY = """
from tqdm import trange
import warmwatch
model = make(); compiled = torch.compile(model); optimizer = torch.optim.SGD(model.parameters())
for batch in trange(10):
    train(compiled, optimizer, 1, batch=4 if batch < 5 else 6)
result(None)
"""


def test_it_says_when_it_is_warm_what_recompiled_and_what_it_came_to(records: Path) -> None:
    with training(records, BODY, env={"WARMWATCH_SAY": "1"}) as started:
        started.result()
        assert started.wait() == 0
    lines = [line for line in started.stderr.splitlines() if "warmwatch: " in line]
    said = [line.partition("warmwatch: ")[2] for line in lines]
    # on a slow machine also what it says of a compilation that has taken 10 s
    said = [line for line in said if not line.startswith("compiling for ")]
    first, recompiled, again, ended = (one.split(",")[0] for one in said)
    assert first == "warm since step 4"
    assert recompiled.startswith("recompiled ")
    assert "batch size" in said[1]
    assert again == "warm again since step 9"
    assert ended.startswith("ended after 10 steps: ")
