"""Training speed on a real GPU with agent and daemon over without, in one process.

``python -m benchmarks.throughput``: the model is compiled once; then blocks of steps alternate:
with the agent attached and the daemon polling NVML once a second and scraped as often, and with the
agent detached and the daemon stopped. All blocks share one compilation, so nothing else differs.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import warmwatch
from benchmarks import served
from benchmarks.figure import Figure
from benchmarks.gpt import Trainer

PAIRS, STEPS, WARM_UP = 12, 60, 40


def measure() -> Iterator[Figure]:
    """Medians over PAIRS pairs of blocks; the order within a pair alternates."""
    trainer = Trainer("default")
    trainer.seconds(WARM_UP)
    spent: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as place:
        os.environ["WARMWATCH_DIR"] = place
        with served.daemon(os.environ) as daemon, _scraped(daemon) as resume:
            for pair in range(PAIRS):
                for watched in (True, False) if pair % 2 else (False, True):
                    block = _watched if watched else _alone
                    spent[watched].append(block(trainer, daemon, resume))
    medians = {how: statistics.median(values) for how, values in spent.items()}
    ratios = [b / a for a, b in zip(spent[True], spent[False], strict=True)]
    yield Figure(
        name="throughput: with agent and daemon / without, medians",
        value=medians[False] / medians[True],
        detail=f"{1e3 * medians[True] / STEPS:.3f} ms over {1e3 * medians[False] / STEPS:.3f} ms "
        f"a step; pairs from {min(ratios):.4f} to {max(ratios):.4f}",
    )


def _alone(trainer: Trainer, daemon: served.Daemon, resume: threading.Event) -> float:
    resume.clear()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        return trainer.seconds(STEPS)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def _watched(trainer: Trainer, _daemon: served.Daemon, resume: threading.Event) -> float:
    resume.set()
    warmwatch.attach(run="throughput")
    try:
        trainer.seconds(3)
        return trainer.seconds(STEPS)
    finally:
        warmwatch.detach()


@contextmanager
def _scraped(daemon: served.Daemon) -> Iterator[threading.Event]:
    """Request /metrics once a second in a thread while the given event is set."""
    resume, over = threading.Event(), threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            if resume.is_set():
                daemon.ask("/metrics")

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield resume
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    for figure in measure():
        print(figure, flush=True)
    sys.exit(0)
