"""Several processes of one torchrun, and a real daemon: one run, one answer."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from support.daemon import completed, daemon, status_of
from support.records import wait_until
from support.trainings import environment, training

# Each rank stops at a place until the test has made the file that lets it go on.
PRELUDE = """
import os, time

RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def stop_at(place):
    open(os.environ["HERE"] + f"{place}-{RANK}", "w").close()
    while not os.path.exists(os.environ["HERE"] + f"{place}-go"):
        assert os.getppid() > 1, "the launcher is gone"
        time.sleep(0.01)

"""
ONE_COMPILES = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def slowly(graph, inputs):
    if RANK == 1:
        stop_at("compiling")
    return graph.forward

from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=900))
c = DistributedDataParallel(torch.compile(make(), backend=slowly))
o = torch.optim.SGD(c.parameters(), lr=.1)
stop_at("begin")
train(c, o, 5)
stop_at("warm")
if RANK == 1:
    torch.compile(make(), backend="eager")(torch.randn(4, 8))
train(c, o, 4)
stop_at("apart")
dist.barrier()
dist.destroy_process_group()
"""
# No process group: gloo may meet the ports of the dead when it starts again.
FAILS_ONCE = """
model = make()
train(torch.compile(model, backend="eager"), torch.optim.SGD(model.parameters(), lr=.1), 5)
stop_at(f"attempt{ATTEMPT}")
if ATTEMPT == 0 and RANK == 0:
    raise RuntimeError("the first attempt fails")
if ATTEMPT == 0:
    time.sleep(600)  # until torchrun ends it
"""


class Places:
    """The files by which the ranks and the test talk."""

    def __init__(self, records: Path) -> None:
        self.prefix = f"{records.parent}/place-"

    def reached(self, place: str, ranks: int) -> None:
        wait_until(
            lambda: all(Path(f"{self.prefix}{place}-{rank}").exists() for rank in range(ranks))
        )

    def has(self, place: str, rank: int) -> bool:
        return Path(f"{self.prefix}{place}-{rank}").exists()

    def go(self, place: str) -> None:
        Path(f"{self.prefix}{place}-go").touch()


def only_run(url: str) -> dict[str, Any]:
    runs: list[dict[str, Any]] = status_of(url)["runs"]
    return runs[0] if len(runs) == 1 else {"state": "", "ranks": [], "summary": ""}


def states(url: str) -> list[str]:
    return [rank["state"] for rank in only_run(url)["ranks"]]


def warm_at(url: str, steps: int) -> int:
    """How many ranks are warm with so many steps."""
    ranks = only_run(url)["ranks"]
    return sum((rank["state"], rank["steps"]) == ("warm", steps) for rank in ranks)


def longer_by(run: dict[str, Any]) -> float:
    """How much longer rank 1 has compiled than any other."""
    seconds = {rank["rank"]: rank["compile"]["seconds"] for rank in run["ranks"]}
    return float(seconds.pop(1) - max(seconds.values()))


def torchrun(ranks: int, *more: str) -> tuple[str, ...]:
    return ("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone", *more)


@pytest.mark.first
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_the_rank_that_the_others_wait_for_is_named(records: Path, ranks: int) -> None:
    """While one compiles, and afterwards, where it compiled something that the others did not."""
    places = Places(records)
    env = {"HERE": places.prefix}
    with (
        training(records, PRELUDE + ONE_COMPILES, launcher=torchrun(ranks), env=env) as started,
        daemon(records) as url,
    ):
        places.reached("begin", ranks)  # the first collective may hang
        wait_until(lambda: states(url) == ["starting"] * ranks)
        timeouts = [rank["collective_timeout_seconds"] for rank in only_run(url)["ranks"]]
        assert timeouts == [900] * ranks
        places.go("begin")
        wait_until(lambda: places.has("compiling", 1))
        # the others have compiled, and wait for rank 1 in the first backward's collective
        others = "1 rank waits" if ranks == 2 else f"{ranks - 1} ranks wait"
        pattern = rf"train: compiling( .+)? for \S+ s \(\w+\).*, rank 1 of {ranks}; {others} for it"
        wait_until(lambda: re.match(pattern, only_run(url)["summary"]))
        run = only_run(url)
        assert (run["world_size"], run["missing_ranks"]) == (ranks, [])
        timeouts = [rank["collective_timeout_seconds"] for rank in run["ranks"]]
        assert (timeouts, run["deadline"]["backend"]) == ([900] * ranks, "gloo")
        wait_until(lambda: longer_by(only_run(url)) > 1)  # it goes on while it stands there
        places.go("compiling")
        places.reached("warm", ranks)
        wait_until(lambda: warm_at(url, 5) == ranks)
        run = only_run(url)
        assert [rank["rank"] for rank in run["ranks"]] == list(range(ranks))
        assert run["skew"]["graphs"]["max"] == run["skew"]["graphs"]["min"] == 1
        assert run["skew"]["compile_seconds"]["max_rank"] == 1
        assert run["skew"]["first_step_at"]["max"] - run["skew"]["first_step_at"]["min"] < 60
        places.go("warm")
        places.reached("apart", ranks)
        wait_until(lambda: warm_at(url, 9) == ranks)
        differences = only_run(url)["skew"]["differences"]
        apart = "ranks compiled different things: 2 graphs in rank 1, 1 in rank 0"
        assert any(one.startswith(apart) for one in differences), differences
        places.go("apart")
        assert started.wait() == 0, started.stderr
        wait_until(lambda: set(states(url)) == {"finished"})


JOINS = """
import torch.distributed as dist
from datetime import timedelta

if RANK == 1:
    stop_at("init")
dist.init_process_group("gloo", timeout=timedelta(seconds=900))
stop_at("joined")
dist.destroy_process_group()
"""


def test_ranks_are_seen_from_the_call_on_in_which_they_wait_for_each_other(records: Path) -> None:
    """Without an optimizer and without Dynamo: they may hang there, or in the next collective."""
    places = Places(records)
    env = {"HERE": places.prefix}
    with (
        training(records, PRELUDE + JOINS, launcher=torchrun(2), env=env) as started,
        daemon(records) as url,
    ):
        wait_until(lambda: places.has("init", 1))
        wait_until(lambda: states(url) == ["starting"])
        assert only_run(url)["missing_ranks"] == [1]
        places.go("init")
        places.reached("joined", 2)
        wait_until(lambda: states(url) == ["starting"] * 2)
        timeouts = lambda: [rank["collective_timeout_seconds"] for rank in only_run(url)["ranks"]]  # noqa: E731
        wait_until(lambda: timeouts() == [900, 900])
        places.go("joined")
        assert started.wait() == 0, started.stderr
        wait_until(lambda: states(url) == ["finished"] * 2)


@pytest.mark.long
def test_a_restart_continues_the_run_with_a_new_attempt(records: Path) -> None:
    places = Places(records)
    env = {"HERE": places.prefix}
    launcher = torchrun(2, "--max-restarts=1")
    with (
        training(records, PRELUDE + FAILS_ONCE, launcher=launcher, env=env) as started,
        daemon(records) as url,
    ):
        places.reached("attempt0", 2)
        wait_until(lambda: warm_at(url, 5) == 2)
        assert {rank["attempt"] for rank in only_run(url)["ranks"]} == {0}
        places.go("attempt0")
        places.reached("attempt1", 2)
        wait_until(lambda: {rank["attempt"] for rank in only_run(url)["ranks"]} == {1})
        wait_until(lambda: warm_at(url, 5) == 2)
        run = only_run(url)
        assert run["run"] == "train"
        assert {rank["attempt"] for rank in run["ranks"]} == {1}
        places.go("attempt1")
        assert started.wait() == 0, started.stderr
        wait_until(lambda: states(url) == ["finished", "finished"])


DIES = """
model = make()
train(torch.compile(model, backend="eager"), torch.optim.SGD(model.parameters(), lr=.1), 5)
stop_at("warm")
if RANK == 1:
    HOW
time.sleep(600)  # until torchrun ends it
"""
ABORTS = "os.abort()"
IS_KILLED = "os.kill(os.getpid(), 9)"


@pytest.mark.first
@pytest.mark.parametrize(
    ("how", "name"),
    [
        pytest.param(ABORTS, "SIGABRT", id="abort", marks=pytest.mark.long),
        pytest.param(IS_KILLED, "SIGKILL", id="kill"),
    ],
)
def test_the_rank_that_died_first_fails_the_run_not_those_that_the_launcher_killed(
    records: Path, how: str, name: str
) -> None:
    """torchrun ends the others with SIGTERM; NCCL's watchdog aborts like this."""
    places = Places(records)
    body = PRELUDE + DIES.replace("HOW", how)
    env = {"HERE": places.prefix}
    with (
        training(records, body, launcher=torchrun(2), env=env) as started,
        daemon(records) as url,
    ):
        places.reached("warm", 2)
        wait_until(lambda: warm_at(url, 5) == 2)
        places.go("warm")
        assert started.wait() == 1
        wait_until(lambda: sorted(states(url)) == ["failed", "lost"])
        # a rank's signal may be known a moment after its end
        wait_until(lambda: all(rank["end"]["signal"] for rank in only_run(url)["ranks"]))
        run = only_run(url)
        ends = {rank["rank"]: rank["end"] for rank in run["ranks"]}
        assert (ends[1]["how"], ends[1]["signal"]) == ("failed", name)
        assert (ends[0]["how"], ends[0]["signal"]) == ("lost", "SIGTERM")
        assert run["state"] == "failed"
        assert re.match(rf"train: failed\b.*\b{name}, rank 1 of 2", run["summary"]), run["summary"]
        assert "outside" not in run["summary"]
        # a command that reads records has the daemon's sentence: it saw the signal
        asked = environment(records, WARMWATCH_ADDRESS=url.removeprefix("http://"))
        assert f"no rank is alive: {run['summary']}" in completed("stacks", env=asked).stderr


@pytest.mark.long  # another torchrun; the test above has ranks that end by SIGTERM
def test_a_run_whose_ranks_were_all_terminated_was_ended_from_outside(records: Path) -> None:
    """As ``scancel`` does: SIGTERM to every process of the job."""
    places = Places(records)
    body = PRELUDE + DIES.replace("HOW", "pass")
    env = {"HERE": places.prefix}
    with (
        training(records, body, launcher=torchrun(2), env=env) as started,
        daemon(records) as url,
    ):
        places.reached("warm", 2)
        wait_until(lambda: warm_at(url, 5) == 2)
        places.go("warm")
        for pid in (*(rank["pid"] for rank in only_run(url)["ranks"]), started.pid):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: states(url) == ["lost", "lost"])
        wait_until(lambda: "by SIGTERM" in only_run(url)["summary"])
        assert {rank["end"]["signal"] for rank in only_run(url)["ranks"]} == {"SIGTERM"}
        assert only_run(url)["state"] == "lost"
