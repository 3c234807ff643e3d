"""Saving in real trainings: counted if the training waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import slots
from support.trainings import result_of, run, training

START = """
import gc, io, sys, threading
from torch import save
import warmwatch
import torch._dynamo
warmwatch.attach()
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
train(model, o, 1)
"""
GATED = """
class Gated(io.BytesIO):
    def write(self, data):
        if not self.tell(): gate("saving")
        return super().write(data)
save(model.state_dict(), Gated(), _use_new_zipfile_serialization=ZIP)
gate("saved")
"""


@pytest.mark.parametrize("new", [True, False])
def test_a_save_is_shown_while_it_runs_under_each_name_of_torch_save(
    records: Path, new: bool
) -> None:
    with training(records, START + GATED.replace("ZIP", str(new)), attach=False) as one:
        one.reach("saving")
        during = slots.read(slots.only(records)).compile
        one.go()
        one.reach("saved")
        after = slots.read(slots.only(records)).compile
        one.go()
        one.wait()
    assert during.saving_since_ns > 0
    assert (after.saving_since_ns, during.saving_ns) == (0, 0)
    assert after.saved_ns - during.saving_since_ns == after.saving_ns > 0


BACKWARD = """
import ctypes
libc, made = ctypes.CDLL(None), ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def on_thread_of_c(work):
    call, thread = made(lambda _: work()), ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, call, None) == 0
    assert libc.pthread_join(thread, None) == 0
def iteration():
    o.step()
    if NAMED: threading.current_thread()
for _ in range(4): on_thread_of_c(iteration)
save(model.state_dict(), io.BytesIO())
with warmwatch.evaluating(): pass
thread = threading.Thread(target=save, args=(model.state_dict(), io.BytesIO()))
thread.start(); thread.join()
"""


@pytest.mark.parametrize("named", [False, True])
def test_a_save_on_the_main_thread_is_a_pause_even_if_autograds_thread_steps(
    records: Path, named: bool
) -> None:
    """On a GPU an optimizer within the backward runs on a thread that C++ started.

    ``named``: some library has called ``threading.current_thread()`` there.
    """
    start = START.replace("train(model, o, 1)", "")
    run(records, start + BACKWARD.replace("NAMED", str(named)), attach=False)
    slot = slots.read(slots.only(records))
    counts = slot.compile
    assert slot.steps.steps == 4
    assert 0 < counts.saving_ns != counts.background_saving_ns > 0
    assert counts.evaluations == 1


def test_the_distributed_checkpoint_is_one_save_and_never_imported_by_the_agent(
    records: Path, tmp_path: Path
) -> None:
    body = f"""
name = "torch.distributed.checkpoint.state_dict_saver"
before = name in sys.modules
import torch.distributed.checkpoint as dcp
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
from warmwatch.ledger.pauses import Pausing
changes = []
publish = Pausing._paused
Pausing._paused = lambda self, changed: (changes.append(changed), publish(self, changed))
dcp.save({{"model": model.state_dict()}}, checkpoint_id={str(tmp_path / "checkpoint")!r})
result([before, changes[0], changes[-1], len(changes) > sum(changes)])
"""
    # those of torch.save lie within it, so the record is not written for each of them
    assert result_of(records, START + body, attach=False) == [False, True, True, True]
    assert slots.read(slots.only(records)).compile.saving_ns > 0


ASKS = """
from torch._dynamo.utils import counters
def f(x):
    x = x + warmwatch.is_warm()
    with warmwatch.evaluating():
        torch._dynamo.graph_break()
        return x * 2
torch.compile(f, backend="eager")(torch.ones(2))
result(counters["frames"]["total"])
"""


def test_dynamo_compiles_no_more_than_the_api_if_a_compiled_function_calls_it(
    records: Path,
) -> None:
    """It compiled some 100 functions of the agent."""
    assert result_of(records, ASKS) < 20


EVALUATES = """
train(model, o, 5)
for _ in range(2):
    with warmwatch.evaluating():
        gate("evaluating")
        with warmwatch.saving():
            save(model.state_dict(), io.BytesIO())  # within it, twice over
    train(model, o, 3)
"""


def test_an_evaluation_is_shown_while_it_runs_and_is_not_part_of_a_step(records: Path) -> None:
    """The three kinds of time add up to all of it: a save within an evaluation is no part of it."""
    with training(records, START + EVALUATES, attach=False) as one:
        one.reach("evaluating")
        during = slots.read(slots.only(records)).compile
        one.go()
        one.reach("evaluating")
        one.go()
        one.wait()
    assert during.evaluating_since_ns > 0
    slot = slots.read(slots.only(records))
    counts = slot.compile
    assert (counts.evaluations, counts.evaluating_since_ns) == (2, 0)
    assert counts.saving_ns > 0
    total = slot.steps.last_step_ns - counts.first_step_ns
    assert slot.clean_sum_ns + counts.evaluating_ns + counts.saving_ns == total
    assert sum(slot.clean_bins) == slot.steps.steps - 1 == 11


LONG = """
import io, time
import warmwatch
model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
c = torch.compile(model, backend="eager")
data = [torch.randn(8) for _ in range(400)]
class Slow(torch.utils.data.Dataset):
    wait = 0
    def __len__(self): return len(data)
    def __getitem__(self, n):
        time.sleep(Slow.wait); Slow.wait = 0
        return data[n]
loader = lambda: iter(torch.utils.data.DataLoader(Slow()))
class Disk(io.BytesIO):
    def write(self, data):
        if not self.tell(): time.sleep(1.5)
        return super().write(data)
batches = loader()
def step():
    c(next(batches)).sum().backward(); o.step(); o.zero_grad()
for _ in range(20): step()
torch.save(model.state_dict(), Disk())
step()
Slow.wait = 1.5
step()
with torch.no_grad():
    for batch in loader(): c(batch)
for _ in range(5): step()
with torch.no_grad():
    for batch in loader(): c(batch)
time.sleep(1.5)
for _ in range(5): step()
"""


def test_a_long_step_is_reported_with_its_cause_and_not_as_a_compilation(records: Path) -> None:
    run(records, LONG)
    lines = slots.events(slots.only(records))
    reported = {line["n"]: line for line in lines if line["event"] == "long_step"}
    assert set(reported) >= {21, 22, 28}  # on a machine that stood still others may be, too
    assert reported[21]["saving"] >= 1.5 > reported[21]["data"]
    assert reported[22]["data"] >= 1.5 > reported[22]["saving"]
    assert (reported[28]["batches"], reported[28]["saving"]) == (401, 0)
    assert 23 not in reported, "that one held the evaluation's compilation"
