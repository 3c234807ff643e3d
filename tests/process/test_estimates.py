"""Real trainings in turn: the second is compared with the history of the first.

A compilation stands at a gate while the command looks at it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.trainings import environment, training

BODY = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = make()

    def forward(self, x):
        return self.inner(x * 2).CALL()

def slowly(graph, inputs, **options):
    gate("compiling")
    return graph.forward

model = Model()
compiled = torch.compile(model, backend=slowly)
train(compiled, torch.optim.SGD(model.parameters(), lr=.1), 4)
"""


def body(call: str = "relu") -> str:
    return BODY.replace("CALL", call)


def status(records: Path) -> dict[str, Any]:
    """The output of ``warmwatch status --json`` without a daemon."""
    env = {**environment(records), "WARMWATCH_STATE": str(records.parent / "state")}
    command = [sys.executable, "-m", "warmwatch_monitor", "status", "--json", "--dir", str(records)]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return dict(run)


def estimated(
    records: Path, script: str, *, remembered: bool = False, **how: Any
) -> tuple[dict[str, Any] | None, str]:
    """What is estimated while it compiles, and the sentence then. It goes on to its end, and is
    ``remembered`` by a command that sees it.
    """
    with training(records, script, **how) as started:
        started.reach("compiling")
        run = status(records)
        started.go()
        assert started.wait() == 0
    if remembered:
        status(records)
    return run["ranks"][0]["compile"]["estimate"], run["summary"]


def test_a_run_is_compared_with_the_previous_one(records: Path) -> None:
    assert estimated(records, body(), remembered=True)[0] is None
    again, sentence = estimated(records, body())
    assert again is not None
    assert (again["of"], again["precedents"], again["of_rank"]) == ("warmup", 1, False)
    assert "last time" in sentence
    full = records.parent / "full" / "fxgraph"
    full.mkdir(parents=True)
    (full / "one").write_text("")
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(full.parent)}
    assert estimated(records, body(call="tanh"))[0] is None  # another code
    assert estimated(records, body(), env=caches)[0] is None
