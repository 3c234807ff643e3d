"""Real trainings with a real daemon: all states, and all ways in which a training ends."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.daemon import daemon, daemon_process
from support.records import wait_until
from support.trainings import training

COMPILED = """
model = make(); o = torch.optim.AdamW(model.parameters())
c = torch.compile(model, backend=slowly)
"""
SLOWLY = """
def slowly(graph, inputs):
    gate("compiling")
    return graph.forward
"""


def get(url: str, path: str = "/status") -> Any:
    with urllib.request.urlopen(url + path, timeout=60) as reply:
        return json.load(reply)


def rank_of(url: str, run: str = "train") -> Any:
    (rank,) = get(url, f"/status?run={run}")["runs"][0]["ranks"]
    return rank


def until(url: str, condition: Callable[[Any], bool]) -> Any:
    """Wait for an answer that fulfils ``condition``, and whose records were read after this call.

    So it contains everything that a training did before this call.
    """
    last: list[Any] = []
    now = time.time()

    def is_fulfilled() -> bool:
        last[:] = [get(url)]
        return last[0]["at"] is not None and last[0]["at"] > now and condition(last[0])

    wait_until(is_fulfilled)
    return last[0]


def state_is(state: str) -> Callable[[Any], bool]:
    return lambda answer: [run["state"] for run in answer["runs"]] == [state]


def metric(url: str, name: str, **labels: str) -> float | None:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        for family in text_string_to_metric_families(reply.read().decode()):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
    return None


def test_a_training_passes_through_all_its_states(records: Path) -> None:
    """Starting, compiling, warming, warm; a new shape reopens it, with its reason; finished."""
    body = (
        SLOWLY
        + COMPILED.replace("c = ", "gate('starting')\nc = ")
        + """
for n in range(4): train(c, o, 1); gate(f"step {n + 1}")
train(c, o, 1, batch=7); gate("reopened")
train(c, o, 3, batch=7); gate("warm again")
"""
    )
    with training(records, body) as started, daemon(records) as url:
        started.reach("starting")
        answer = until(url, state_is("starting"))
        assert (answer["compiling"], answer["warm"]) == (False, False)
        started.go()
        started.reach("compiling")
        answer = until(url, state_is("compiling"))
        assert (answer["compiling"], answer["warm"]) == (True, False)
        first = rank_of(url)["compile"]["seconds"]
        until(url, lambda _: rank_of(url)["compile"]["seconds"] > first)  # while it stands there
        assert metric(url, "warmwatch_compiling", run="train", rank="0") == 1
        started.go()
        for n in range(3):
            started.reach(f"step {n + 1}")
            until(url, lambda _, n=n: rank_of(url)["steps"] == n + 1)
            rank = rank_of(url)  # `until` requested its answer before it checked the condition
            assert (rank["state"], rank["clean_steps"]) == ("warming", n)
            assert metric(url, "warmwatch_warmup_seconds") is None
            started.go()
        started.reach("step 4")
        answer = until(url, state_is("warm"))
        assert (answer["compiling"], answer["warm"]) == (False, True)
        assert rank_of(url)["warmup"]["steps"] == 1
        assert metric(url, "warmwatch_warmup_steps") == 1
        started.go()
        started.reach("compiling")
        until(url, state_is("recompiling"))
        started.go()
        started.reach("reopened")
        until(url, lambda _: rank_of(url)["steps"] == 5)
        (entry,) = [e for e in rank_of(url)["compile"]["last"] if e["category"]]
        assert "size mismatch" in entry["reason"]
        assert (entry["category"], rank_of(url)["state"]) == ("shape", "recompiling")
        assert rank_of(url)["warmup"]["ended"] is False
        started.go()
        started.reach("warm again")
        until(url, state_is("warm"))
        assert metric(url, "warmwatch_recompiles_after_warm_total") == 1
        assert started.wait() == 0
        answer = until(url, state_is("finished"))
        assert (answer["compiling"], answer["warm"]) == (None, None)


def test_a_killed_training_is_lost_at_the_next_poll(records: Path) -> None:
    body = "train(make(), torch.optim.SGD(make().parameters()), 5)\ngate('here')\n"
    with training(records, body) as started, daemon_process("--dir", str(records)) as (_, url):
        started.reach("here")
        until(url, state_is("eager"))
        started.kill()
        gone = time.time()
        answer = until(url, lambda answer: answer["at"] > gone)
        assert state_is("lost")(answer)
        # the signal is known where the daemon could see the process die
        assert answer["runs"][0]["ranks"][0]["end"]["signal"] in {None, "SIGKILL"}


@pytest.mark.long  # test_ends.py compares the tracebacks of exceptions too
def test_a_training_that_raises_has_failed_and_its_traceback_is_unchanged(records: Path) -> None:
    body = "train(make(), torch.optim.SGD(make().parameters()), 2)\ngate('here')\n1 / 0\n"
    reported = {}
    for attach in (False, True):
        alone = training(records, body, attach=attach, fresh=True)  # who forks is in a traceback
        with alone as started, daemon(records) as url:
            started.reach("here")
            assert started.wait() == 1
            reported[attach] = started.stderr
            if attach:
                until(url, state_is("failed"))
    # the one import shifts the script's lines by one
    shifted = re.sub(r"line (\d+)", lambda line: f"line {int(line[1]) - 1}", reported[True])
    assert shifted == reported[False]
    assert reported[False].splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_a_daemon_that_is_killed_and_started_again_continues_every_counter(records: Path) -> None:
    body = SLOWLY + COMPILED + "train(c, o, 5); gate('five'); train(c, o, 2); gate('seven')\n"
    with training(records, body) as started:
        with daemon_process("--dir", str(records)) as (process, url):
            started.reach("compiling")
            until(url, state_is("compiling"))
            process.send_signal(signal.SIGKILL)
        started.go()
        started.reach("five")
        with daemon(records) as url:
            until(url, state_is("warm"))
            rank = rank_of(url)
            assert (rank["steps"], rank["compile"]["compilations"]) == (5, 1)
            assert rank["warmup"]["steps"] == 1
            compiled = metric(url, "warmwatch_compile_seconds_total", phase="other")
            assert compiled
            started.go()
            started.reach("seven")
            until(url, lambda _: rank_of(url)["steps"] == 7)
            assert metric(url, "warmwatch_compile_seconds_total", phase="other") == compiled


def test_two_concurrent_runs_of_one_script_have_different_names(records: Path) -> None:
    body = "train(make(), torch.optim.SGD(make().parameters()), STEPS)\ngate('here')\n"
    first = body.replace("STEPS", "4")
    with training(records, first) as one:
        one.reach("here")
        with training(records, body.replace("STEPS", "2")) as other, daemon(records) as url:
            other.reach("here")
            answer = until(url, lambda answer: len(answer["runs"]) == 2)
            steps = {run["run"]: run["ranks"][0]["steps"] for run in answer["runs"]}
            assert steps == {"train": 4, "train-2": 2}
            assert answer["warm"] is False  # one of them is not


RANKS = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(make())
o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="aot_eager")
train(c, o, 5)
there = os.environ["HERE"] + os.environ["RANK"]
open(there, "w").close()
while not os.path.exists(os.environ["HERE"] + "go"): time.sleep(0.02)
dist.destroy_process_group()
"""


@pytest.mark.long  # test_launch.py and test_ranks.py have ranks of torchrun too
def test_the_ranks_of_a_torchrun_are_one_run(records: Path) -> None:
    here = f"{records.parent}/here-"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    env = {"HERE": here}
    with training(records, RANKS, launcher=launcher, env=env) as started, daemon(records) as url:
        wait_until(lambda: all(Path(here + rank).exists() for rank in "01"))
        answer = until(url, lambda answer: steps_of(answer) == [(0, 5), (1, 5)])
        (run,) = answer["runs"]
        assert run["run"] == "train"  # not the UUID that --standalone drew
        assert run["state"] == "warm"
        Path(here + "go").touch()
        assert started.wait() == 0, started.stderr
        until(url, state_is("finished"))


def steps_of(answer: Any) -> list[tuple[int, int]]:
    return [(rank["rank"], rank["steps"]) for run in answer["runs"] for rank in run["ranks"]]
