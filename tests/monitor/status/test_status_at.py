"""``at`` of ``/status``: the time up to which the records were read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.daemon import daemon, status_of
from support.documents import status
from support.records import held, live_slot, update, wait_until, write_record
from support.values import replace
from warmwatch.shared.record import StepCounts
from warmwatch_monitor.model import SourceHealth


def read_after(url: str, moment: float) -> dict[str, Any]:
    """The first answer of which all was read after ``moment``."""
    answers: list[dict[str, Any]] = []

    def there() -> bool:
        answers.append(status_of(url))
        return bool(answers[-1]["at"] > moment)

    wait_until(there)
    return answers[-1]


def test_the_answer_contains_everything_recorded_before_at(tmp_path: Path) -> None:
    """This holds from the first answer on whose time is after the write."""
    folder = write_record(tmp_path, live_slot(StepCounts(steps=1)))
    with held(folder), daemon(tmp_path) as url:
        for steps in range(2, 30):
            update(folder, live_slot(StepCounts(steps=steps)))
            answer = read_after(url, time.time())
            assert answer["runs"][0]["ranks"][0]["steps"] == steps


def test_at_is_the_begin_of_the_poll_and_not_its_end() -> None:
    slow = replace(b.HEALTH, last_success=b.EPOCH, read_seconds=4.0)
    assert status(b.snapshot(sources=(slow,)))["at"] == b.EPOCH - 4.0


@pytest.mark.parametrize(
    "sources",
    [
        (),
        (SourceHealth(source="host", up=True, last_success=b.EPOCH),),
        (replace(b.HEALTH, up=False, error="permission denied"),),
    ],
    ids=["no source", "another source", "a look that failed"],
)
def test_at_is_null_if_no_records_were_read(sources: tuple[SourceHealth, ...]) -> None:
    assert status(b.snapshot(sources=sources))["at"] is None
