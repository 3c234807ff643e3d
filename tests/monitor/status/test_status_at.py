"""``at`` of ``/status``: to when the records are known."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.daemon import daemon
from support.documents import status
from support.records import held, live_slot, update, wait_until, write_record
from support.values import replace
from warmwatch.shared.record import StepCounts
from warmwatch_monitor.model import SourceHealth


def requested(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def read_after(url: str, moment: float) -> dict[str, Any]:
    """The first answer of which all was read after ``moment``."""
    answers: list[dict[str, Any]] = []

    def there() -> bool:
        answers.append(requested(url))
        return bool(answers[-1]["at"] > moment)

    wait_until(there)
    return answers[-1]


def test_what_was_recorded_by_then_is_in_the_answer(tmp_path: Path) -> None:
    """In the first answer, too, whose time is past the moment of recording."""
    folder = write_record(tmp_path, live_slot(StepCounts(steps=1)))
    with held(folder), daemon(tmp_path) as url:
        for steps in range(2, 30):
            update(folder, live_slot(StepCounts(steps=steps)))
            answer = read_after(url, time.time())
            assert answer["runs"][0]["ranks"][0]["steps"] == steps


def test_it_is_when_the_look_began_not_when_it_ended() -> None:
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
def test_where_no_records_were_read_it_is_not_known(sources: tuple[SourceHealth, ...]) -> None:
    assert status(b.snapshot(sources=sources))["at"] is None
