"""Compilation on another thread while the training goes on, in real processes.

The truth is the script's own: its backend notes when it compiles, and it marks each step itself.
"""

from __future__ import annotations

from pathlib import Path

from support import slots
from support.trainings import result_of

BACKGROUND = """
import threading, time
import warmwatch
from warmwatch.lifecycle import api as _current
inside, release = threading.Event(), threading.Event()

def slow(graph, inputs):
    inside.set()
    release.wait()
    return graph.forward

def counts(): return _current.attached.agent.record.image().compile

def steps(count, seconds=0.02):
    found = []
    for _ in range(count):
        train(compiled, optimizer, 1)
        found.append(warmwatch.is_warm())
        time.sleep(seconds)
    return found

def background():
    other = torch.compile(make(), backend=slow)
    other(torch.randn(4, 8))

def begin():
    global thread
    thread = threading.Thread(target=background)
    thread.start()
    inside.wait()

model = make(); optimizer = torch.optim.SGD(model.parameters(), lr=.1)
compiled = torch.compile(model, backend="eager")
steps(20)
before = counts().touched_steps
begin()
at_begin = warmwatch.is_compiling()
"""


def test_steps_that_complete_while_another_thread_compiles_are_clean(records: Path) -> None:
    """The backend compiles from before the first of them until after the last."""
    body = f"""{BACKGROUND}
warm = steps(30)
during = counts()
release.set(); after = []
while thread.is_alive(): after += steps(1)
after += steps(5)
end = counts()
result(dict(at_begin=at_begin, warm=warm, after=after, touched=before == end.touched_steps,
    during=[during.background, during.background_since_ns > 0, during.active_since_ns],
    end=[end.background_since_ns, end.background_ns > 0, end.warmups, end.graphs]))
"""
    found = result_of(records, body)
    assert found["at_begin"]  # whether the training waits for it is not known yet
    assert found["warm"] == [True] * 30
    assert all(found["after"])
    assert found["touched"]
    assert found["during"] == [1, True, 0]
    assert found["end"] == [0, True, 1, 2]
    ends = [e for e in slots.events(slots.only(records)) if e["event"] == "end"]
    assert [bool(end.get("background")) for end in ends] == [False, True]


def test_a_recompile_of_the_training_counts_during_a_background_compilation(records: Path) -> None:
    """A recompile by the thread of the steps, while another compiles in the background."""
    body = f"""{BACKGROUND}
steps(5)
steps_before = _current.attached.agent.record.image().steps.steps
release.set()  # Dynamo lets one thread compile at a time: this one waits for the other
again = torch.compile(make(), backend="eager", dynamic=False)
again(torch.randn(4, 8))
touched = steps(1)
now = counts()
thread.join()
result([touched, now.touched_steps[0] - steps_before, now.background])
"""
    assert result_of(records, body) == [[False], 1, 1]
