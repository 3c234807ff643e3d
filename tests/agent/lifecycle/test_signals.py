"""A signal handler of the training that raises while the agent happens to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import builders, slots
from support.records import write_record
from support.trainings import environment, result_of

LEDGER = """
import random, signal
from support.ranks import Rank

class Stopped(Exception): pass

def stop(number, frame): raise Stopped

signal.signal(signal.SIGALRM, stop)
rank, drawn, stopped = Rank(), random.Random(0), 0
while stopped < 3000:
    try:
        signal.setitimer(signal.ITIMER_REAL, drawn.uniform(1e-6, 60e-6))
        while True:
            rank.ledger.begin("dynamo"); rank.ledger.end("dynamo")
    except Stopped:
        stopped += 1
rank.step()  # what was interrupted half way is over by then
assert not rank.judge().compiling, "an activity stays open"
begun = rank.slot().compile.begun
rank.ledger.begin("dynamo"); rank.ledger.end("dynamo")
assert rank.slot().compile.begun == rank.slot().compile.ended == begun + 1, "no thread has the turn"
"""


def test_an_exception_inside_the_ledger_releases_its_lock(tmp_path: Path) -> None:
    """3,000 real signals arrive at any point."""
    done = subprocess.run(
        [sys.executable, "-c", LEDGER],
        env=environment(tmp_path / "records"),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


TRAINING = """
import random, signal, warmwatch
raised = caught = 0

def time_is_up(number, frame):
    global raised
    raised += 1
    raise TimeoutError

class Handler:
    def __call__(self, number, frame): time_is_up(number, frame)

drawn, o = random.Random(0), torch.optim.SGD([torch.zeros(1, requires_grad=True)])
on_step = torch.optim.Optimizer._optimizer_step_code
for handler in (time_is_up, Handler()):
    signal.signal(signal.SIGALRM, handler)
    for _ in range(1000):
        try:
            signal.setitimer(signal.ITIMER_REAL, drawn.uniform(1e-6, 60e-6))
            while True: on_step(o)
        except TimeoutError:
            caught += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
for _ in range(5): o.step()
result([raised, caught, warmwatch.state()])
"""


def test_an_exception_of_a_signal_handler_reaches_the_training(records: Path) -> None:
    """It is the training's own exception, not an error of the agent, for any kind of handler."""
    raised, caught, state = result_of(records, TRAINING)
    assert (raised, caught, state) == (2000, 2000, "eager")
    assert slots.read(slots.only(records)).compile.agent_errors == 0


ARGUMENTS = """
import os, signal, warnings, warmwatch

class Stopped(Exception): pass

def stop(number, frame): raise Stopped

class Number:  # raises exactly when its value is read
    def now(self): os.kill(os.getpid(), signal.SIGUSR1)
    __index__ = __float__ = now

signal.signal(signal.SIGUSR1, stop)
reached = []
for given in ({"tokens_per_step": Number()}, {"flops_per_step": Number()}):
    try:
        warmwatch.attach(run="t", **given)
    except Stopped:
        reached.append(*given)
warnings.showwarning = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGUSR1)
try:
    warmwatch.attach(tokens_per_step=-1)
except Stopped:
    reached.append("warning")
assert reached == ["tokens_per_step", "flops_per_step", "warning"], reached
"""


def test_an_exception_raised_while_arguments_are_read_reaches_the_training(records: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", ARGUMENTS],
        env=environment(records),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


NEIGHBOURS = """
import os, signal, warmwatch

def time_is_up(number, frame): raise TimeoutError  # which is an OSError

def opened(path, *args, **kwargs):
    if os.path.basename(path) == "slot" and os.path.dirname(path) == os.environ["NEIGHBOUR"]:
        os.kill(os.getpid(), signal.SIGUSR1)
    return open_(path, *args, **kwargs)

signal.signal(signal.SIGUSR1, time_is_up)
open_, os.open = os.open, opened
try:
    warmwatch.attach()  # without an explicit name, so that other records are checked for theirs
    warmwatch.step()
except TimeoutError:
    raise SystemExit(0)
raise SystemExit("it was taken for a neighbour's")
"""


def test_a_timeout_of_the_training_is_not_read_as_a_neighbour_s_lock(records: Path) -> None:
    neighbour = write_record(records, builders.slot(run="t"), name="t-r0-1-abc")
    folder = records.parent / "t"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", NEIGHBOURS],
        cwd=folder,
        env=environment(records) | {"NEIGHBOUR": str(neighbour)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


FORKS = """
import os
registered = []
os.register_at_fork = lambda **hooks: registered.append(hooks)
import warmwatch
warmwatch.attach(run="t")
from warmwatch.lifecycle import attaching
ours = [hooks for hooks in registered if hooks.get("after_in_child") is attaching._forked]
assert [set(hooks) for hooks in ours] == [{"before", "after_in_child"}], registered
assert not hasattr(ours[0]["before"], "__code__")
"""


def test_no_python_code_of_the_agent_runs_in_a_fork_hook_that_swallows_ctrl_c(
    tmp_path: Path,
) -> None:
    """An exception of a handler in a fork hook is printed and lost; no handler runs in C."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        env=environment(tmp_path / "records"),
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
