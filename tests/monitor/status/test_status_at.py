"""``at`` of ``/status``: the time up to which the records were read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from support.daemon import daemon, status_of
from support.records import held, live_slot, update, wait_until, write_record
from warmwatch.shared.record import StepCounts


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
