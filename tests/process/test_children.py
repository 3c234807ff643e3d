"""A child of a training never writes to its record: it has its own run name, or no record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import slots
from support.daemon import completed
from support.trainings import environment, run

BEGIN = """
import os, sys
import multiprocessing as mp
import warmwatch
warmwatch.attach()
"""


def play(records: Path, body: str, **env: str) -> str:
    """Run a script that attaches and imports no PyTorch; its standard output."""
    script = records.parent / "train.py"
    script.write_text(BEGIN + body)
    return subprocess.run(
        [sys.executable, str(script)],
        env=environment(records, **env),
        cwd=records.parent,
        text=True,
        capture_output=True,
        check=True,
    ).stdout


def ranks_and_steps(records: Path) -> dict[str, tuple[int, int]]:
    """Of each run its rank and steps."""
    read = [slots.read(folder) for folder in slots.folders(records)]
    return {slot.identity.run: (slot.identity.rank, slot.steps.steps) for slot in read}


CHILD = """
def child(nested=False):
    warmwatch.step()
    if nested:
        p = mp.Process(target=child); p.start(); p.join()
"""


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("fork", "ForkProcess-1"),
        ("spawn", "SpawnProcess-1"),
        ("forkserver", "ForkServerProcess-1"),
    ],
)
def test_a_child_of_multiprocessing_has_a_name_of_its_own(
    records: Path, method: str, name: str
) -> None:
    """Also where it speaks before its parent does, and where the user named the run."""
    body = (
        CHILD
        + f"""
if __name__ == "__main__":
    context = mp.get_context({method!r})
    p = context.Process(target=child); p.start(); p.join()
    warmwatch.step(); warmwatch.step()
    p = context.Process(target=child, name="evaluator"); p.start(); p.join()
"""
    )
    play(records, body)
    assert ranks_and_steps(records) == {
        f"train.{name}": (0, 1),
        "train": (0, 2),
        "train.evaluator": (0, 1),
    }


def test_an_os_fork_child_has_its_own_name_and_does_not_write_its_parents_end(
    records: Path,
) -> None:
    body = """
warmwatch.step()
for _ in range(2):
    if not os.fork():
        warmwatch.step()
        if not os.fork():
            warmwatch.step()
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
warmwatch.step()
"""
    play(records, body)
    nested = {f"train.fork-{n}{more}": (0, 1) for n in (1, 2) for more in ("", "-1")}
    assert ranks_and_steps(records) == {"train": (0, 2), **nested}
    ends = {slots.read(f).identity.run: slots.read(f).compile.end_code for f in records.iterdir()}
    assert (ends["train"], ends["train.fork-1"]) == (1, 0)


def test_a_child_never_writes_its_parents_slot_whatever_its_logger_raises(memory: Path) -> None:
    """Both have its memory, and regular optimizer steps are counted without any call.

    Not with the `records` fixture: here an error must be counted, in the child.
    """
    records = memory / "records"
    records.mkdir()
    body = """
import logging
logger, parent = logging.getLogger("warmwatch"), os.getpid()
logger.setLevel(logging.INFO)

class Picky(type(logger)):
    def isEnabledFor(self, level):
        if os.getpid() != parent and level > logging.DEBUG: raise ValueError("no rank of mine")
        return False

logger.__class__ = Picky
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
for _ in range(9): optimizer.step()
if not os.fork():
    for _ in range(2): optimizer.step()
    os._exit(0)
os.wait()
"""
    run(records, BEGIN + body, attach=False)
    assert ranks_and_steps(records) == {"train": (0, 9), "train.fork-1": (0, 2)}
    read = [slots.read(folder) for folder in slots.folders(records)]
    assert [slot.compile.agent_errors for slot in read] == [0, 1]


def test_a_training_that_daemonizes_continues_its_run(records: Path) -> None:
    body = """
if os.fork(): os._exit(0)
os.setsid(); first = os.getpid()
if os.fork(): os._exit(0)
while os.getppid() == first: pass
warmwatch.step()
os.write(1, b"done")
"""
    assert play(records, body) == "done"
    assert ranks_and_steps(records) == {"train": (0, 1)}


def test_a_helper_of_a_rank_is_not_a_rank_unless_its_environment_makes_it_one(
    records: Path,
) -> None:
    """A child inherits the launcher's settings of its parent; its own reports stay its own."""
    body = (
        CHILD
        + """
def rank(number):
    os.environ.update(RANK=str(number), WORLD_SIZE="4")
    warmwatch.step()
if __name__ == "__main__":
    warmwatch.step()
    context = mp.get_context("spawn")
    p = context.Process(target=child); p.start(); p.join()
    p = context.Process(target=rank, args=(3,)); p.start(); p.join()
"""
    )
    play(records, body, RANK="1", WORLD_SIZE="2")
    slot = [slots.read(folder).identity for folder in slots.folders(records)]
    assert [(one.run, one.rank, one.world_size) for one in slot] == [
        ("train", 1, 2),
        ("train.SpawnProcess-1", 1, None),
        ("train", 3, 4),
    ]


DAEMONIC = """
import time
def work(begun):
    warmwatch.step()
    {at_work}
    begun.set(); time.sleep(99)
if __name__ == "__main__":
    warmwatch.step()
    context = mp.get_context("fork"); begun = context.Event()
    p = context.Process(target=work, args=(begun,), daemon={daemon}); p.start(); begun.wait()
    {then}
"""


@pytest.mark.parametrize(
    ("daemon", "at_work", "then", "state"),
    [
        (True, "", "", "finished"),  # as the workers of multiprocessing.Pool
        (True, "warmwatch.activity('kernels').__enter__()", "os.kill(p.pid, 9)", "lost"),
        (False, "", "p.terminate()", "lost"),
    ],
)
def test_a_child_that_its_parent_terminates_at_its_own_end_has_finished(
    records: Path, daemon: bool, at_work: str, then: str, state: str
) -> None:
    play(records, DAEMONIC.format(daemon=daemon, at_work=at_work or "pass", then=then or "pass"))
    answer = json.loads(completed("status", "--dir", str(records), "--json").stdout)
    states = {run["run"]: run["state"] for run in answer["runs"]}
    assert states == {"train": "finished", "train.ForkProcess-1": state}


# Helper processes of a training are not ranks, and never write its record


@pytest.mark.long  # test_launch.py has such workers below `warmwatch run`
@pytest.mark.parametrize("method", ["subprocess", "fork"])
def test_compile_workers_have_no_record(records: Path, method: str) -> None:
    env = {"TORCHINDUCTOR_WORKER_START": method, "TORCHINDUCTOR_COMPILE_THREADS": "2"}
    body = """
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(torch.compile(model), o, 2)
"""
    run(records, body, env=env, fresh=True)
    assert slots.read(slots.only(records)).steps.steps == 2


def test_a_forked_process_that_trains_has_its_own_record(records: Path) -> None:
    """As ``multiprocessing`` starts ranks; its end is recorded, but ``atexit`` never runs."""
    body = """
import torch.multiprocessing as mp
def child():
    m = make(); train(m, torch.optim.SGD(m.parameters(), lr=.1), 2)
m = make(); o = torch.optim.SGD(m.parameters(), lr=.1)
train(m, o, 4)
p = mp.get_context("fork").Process(target=child); p.start(); p.join()
train(m, o, 1)
"""
    run(records, body)
    parent, child = map(slots.read, slots.folders(records))
    assert (parent.steps.steps, child.steps.steps) == (5, 2)
    assert parent.identity.launch == child.identity.launch
    assert parent.identity.pid != child.identity.pid
    endings = [slots.events(folder)[-1]["how"] for folder in slots.folders(records)]
    assert endings == ["finished", "finished"]


@pytest.mark.long
def test_processes_of_torch_spawn_are_ranks_and_their_parent_is_not(records: Path) -> None:
    body = """
import os, torch.distributed as dist, torch.multiprocessing as mp
def rank(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    m = make()
    train(m, torch.optim.SGD(m.parameters(), lr=.1), 3)
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    import socket
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
    mp.spawn(rank, args=(port,), nprocs=2)
"""
    run(records, body, plain=True)
    read = [slots.read(folder) for folder in slots.folders(records)]
    assert sorted((s.identity.rank, s.identity.world_size, s.steps.steps) for s in read) == [
        (0, 2, 3),
        (1, 2, 3),
    ]
    assert len({s.identity.launch for s in read}) == 1
    assert {slots.events(f)[-1]["how"] for f in slots.folders(records)} == {"finished"}
