"""Real trainings with a real daemon: all states, and all ways in which a training ends."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
