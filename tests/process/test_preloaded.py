"""A process forked from a preloaded Python equals a freshly started one."""

from __future__ import annotations

import select
import signal
from pathlib import Path

import pytest

from support import slots
from support.preloaded import TESTS, Preloaded
from support.trainings import Training, environment, run, started

VARIABLES = ({"MY_OWN": "1"}, {"MY_OWN": "2"}, {"OTHER": "3"})


@pytest.fixture(autouse=True)
def _forks_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRESH_PYTHONS", raising=False)


ENDS = {
    "returns": ("pass", 0),
    "exit 3": ("sys.exit(3)", 3),
    "words": ("sys.exit('no data')", 1),
    "uncaught": ("1 / 0", 1),
    "interrupted": ("raise KeyboardInterrupt", -signal.SIGINT),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "os._exit": ("os._exit(5)", 5),
    "at its end": ("atexit.register(lambda: os._exit(6))", 6),
}
TELLS = """
import atexit, json, os, signal, sys, threading
atexit.register(print, "at exit", flush=True)
print(json.dumps([
    sys.argv, sys.path[0], os.getcwd(), dict(os.environ), __name__, __file__, sys.stdin.readline(),
    os.environb[b"WARMWATCH_RUN"].decode(), threading.active_count(), signal.getsignal(2).__name__,
    sorted(os.listdir("/proc/self/fd"))[:4], os.getpgid(0), sorted(globals()),
    [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)],
]), flush=True)
"""


def ended(place: Path, body: str, *, fresh: bool) -> tuple[int, list[str], list[str]]:
    """Its exit code, what it wrote, and the last line of its errors."""
    script = place / "train.py"
    script.write_text(body)
    env, errors = environment(place / "records", WARMWATCH_RUN="mine"), place / "errors"
    training = Training(started(script, place, env, errors, fresh=fresh), errors)
    training.go()
    code = training.wait()
    training.process.stdout.close()
    return code, training.output, training.stderr.splitlines()[-1:]


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS)
def test_a_forked_training_equals_a_freshly_started_one(
    tmp_path: Path, end: str, code: int
) -> None:
    forked = ended(tmp_path, TELLS + end, fresh=False)
    assert forked == ended(tmp_path, TELLS + end, fresh=True)
    assert forked[0] == code


def test_the_record_of_a_preloaded_process_equals_that_of_a_started_one(records: Path) -> None:
    run(records, "train(model := make(), torch.optim.SGD(model.parameters()), 1)")
    identity = slots.read(slots.only(records)).identity
    assert identity.run == "train"
    assert identity.launch.startswith(f"process:{identity.pid}:")


def test_one_process_forks_for_all_with_its_environment_and_outlives_a_killed_worker(
    tmp_path: Path,
) -> None:
    script = tmp_path / "one.py"
    script.write_text("print('here')")
    env = {"PYTHONPATH": str(TESTS)}
    one, same, other = (Preloaded({**env, **more}, (), ("MY_",)) for more in VARIABLES)
    assert all(fork.fits(env) for fork in (one, same))
    assert not other.fits(env)
    gone = Preloaded(env, (), ("MY_",))
    assert select.select([gone._orders], [], [], 600)[0]
    gone._orders.close()  # before it has read that it may send orders
    for fork in (one, same):
        with fork.start(script, tmp_path, env) as process:
            assert (process.stdout.read(), process.wait()) == ("here\n", 0)
    assert one._address == same._address != other._address
