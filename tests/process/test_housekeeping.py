"""Long-running use: records are pruned, and the monitor evicts ended runs."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import psutil
import pytest

from support.daemon import daemon_process
from support.records import ended, held, wait_until, warm, write_record
from support.trainings import run

MOST_RECORDS = 200
BATCHES, RUNS = 10, 100


def records_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_oldest_ended_records_of_a_user_are_removed_beyond_the_limit(records: Path) -> None:
    """Those of others stay, in a directory that everybody shares."""
    for number in range(MOST_RECORDS + 5):
        folder = write_record(records, ended(warm(), "finished"), name=f"old-{number:03d}")
        os.utime(folder / "slot", (number, number))
    if os.geteuid() == 0:
        os.chown(records / "old-000" / "slot", 12345, 12345)
    run(records, "train(make(), torch.optim.SGD(make().parameters()), 1)")
    left = records_in(records)
    foreign = 1 if os.geteuid() == 0 else 0
    assert len(left) == MOST_RECORDS + foreign
    assert ("old-000" in left) == bool(foreign)
    assert "old-001" not in left
    assert f"old-{MOST_RECORDS + 4}" in left


@pytest.mark.long  # test_simulated_week.py has as many on a clock of its own
def test_a_thousand_short_runs_leave_no_series_and_no_memory_behind(records: Path) -> None:
    """After their retention the series are those from before, and the memory that after a few."""
    with daemon_process("--dir", str(records), "--retention", "1", "--interval", "0.05") as (
        process,
        url,
    ):
        wait_until(lambda: "warmwatch_source_up" in metrics(url))
        before, resident = None, []
        for batch in range(BATCHES):
            for number in range(RUNS - 1):
                name = f"run-{batch}-{number}"
                write_record(records, ended(warm(run=name), "finished"), name=name)
            last = f"run-{batch}-{RUNS - 1}"  # it lives until it was seen, however late that is
            with held(write_record(records, warm(run=last), name=last)):
                wait_until(lambda last=last: f'run="{last}"' in metrics(url))
            wait_until(lambda batch=batch: f'run="run-{batch}-' not in metrics(url))
            before = before or series(url)
            assert series(url) == before
            resident.append(psutil.Process(process.pid).memory_info().rss)
    assert resident[-1] < resident[1] + 16 * 2**20


def metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        return str(reply.read().decode())


def series(url: str) -> set[str]:
    """Names and labels of every series, without their values."""
    lines = metrics(url).splitlines()
    return {line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")}
