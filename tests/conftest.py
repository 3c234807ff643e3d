"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from support import slots
from support.filesystems import MEMORY
from support.isolation import clean_up, isolate

PROCESS = Path(__file__).parent / "process"

# A shell ignores Ctrl-C in its background jobs, and processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
isolate()
# No deadline for an example: the machine may be slow. pytest-timeout ends a test that hangs.
settings.register_profile("warmwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For `make mutants`: the same examples each time, and no search for a smaller failing one.
settings.register_profile(
    "mutants",
    settings.get_profile("warmwatch"),
    derandomize=True,
    database=None,
    max_examples=25,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("warmwatch")


def pytest_unconfigure() -> None:
    clean_up()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark trainings: all of ``tests/process``, and every test that uses ``records``."""
    below = f"{PROCESS}{os.sep}"
    for item in items:
        if str(item.path).startswith(below) or "records" in getattr(item, "fixturenames", ()):
            item.add_marker("training")
    yield  # pytest leaves out what `-m` does not select
    _deal(items)


def _deal(items: list[pytest.Item]) -> None:
    """Each worker of xdist begins with its share of the tests marked ``first``.

    xdist gives each worker an equal part of the list. A long test at the end of a part would run
    while the other workers have nothing left.
    """
    if "PYTEST_XDIST_WORKER_COUNT" not in os.environ:
        return
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    first = [item for item in items if item.get_closest_marker("first")]
    rest = iter([item for item in items if not item.get_closest_marker("first")])
    count = len(items)
    items.clear()
    for worker in range(workers):
        begins = first[worker::workers]
        share = (count - len(items)) // (workers - worker)
        items += [*begins, *islice(rest, max(0, share - len(begins)))]
    items += rest


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory, as the default ones for records are.

    Its name is ours: people and programs that remove ``/dev/shm/tmp*`` end no test.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="warmwatch-test-") as place:
        yield Path(place)


@pytest.fixture
def records(tmp_path: Path, memory: Path) -> Iterator[Path]:
    """A record directory. An error that an agent swallowed while writing to it fails the test.

    In memory: a store is then visible immediately, also from a process that is killed right after.
    ``test_records_on_disk.py`` tests what differs on a disk.
    """
    place = tmp_path / "records"
    place.symlink_to(memory)
    with slots.without_errors(place) as directory:
        yield directory
