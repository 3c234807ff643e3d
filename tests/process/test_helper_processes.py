"""Helper processes of a training are not ranks, and never write its record."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.trainings import run


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
