"""Two real trainings for minutes: one leaks, the other fills a cache that levels out."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.daemon import daemon
from support.records import wait_until
from support.trainings import training

BODY = """
import time
import warmwatch
warmwatch.attach(run="{name}")
model = make(); o = torch.optim.SGD(model.parameters(), lr=.01)
compiled = torch.compile(model, backend="eager")
held = []
for step in range(10**9):
    compiled(torch.randn(4, 8)).square().mean().backward(); o.step(); o.zero_grad()
    if {retains}:
        held.append(bytearray(b"x" * {size}))
    time.sleep(0.05)
"""
LEAK = 300_000  # bytes a step


@pytest.mark.long
def test_a_leak_is_reported_and_a_cache_that_levels_out_is_not(records: Path) -> None:
    leaks = BODY.format(name="leaks", retains="step > 200", size=LEAK)
    cache = BODY.format(name="cache", retains="step < 400", size=LEAK)

    def ranks(url: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{url}/status", timeout=60) as reply:
            found = json.load(reply)["runs"]
        return {one["run"]: one["ranks"][0] for one in found}

    reported: dict[str, Any] = {}

    def leak_is_reported() -> bool:
        now = ranks(url)
        for run, rank in now.items():
            if rank["memory_growing"]:
                reported.setdefault(run, rank)
        return "leaks" in reported

    with (
        training(records, leaks, name="leaks", fresh=True),
        training(records, cache, name="cache", fresh=True),
        daemon(records) as url,
    ):
        wait_until(lambda: len(ranks(url)) == 2)
        wait_until(leak_is_reported, 400)
        assert set(reported) == {"leaks"}
        assert ranks(url)["cache"]["steps"] > 400
    growth = reported["leaks"]["memory_growing"]
    assert growth["of"] == "host"
    assert growth["bytes_per_step"] == pytest.approx(LEAK, rel=0.1)
    assert growth["since_step"] >= 100
    assert growth["left_seconds"] > 0
    assert [one["condition"] for one in reported["leaks"]["conditions"]] == ["memory_growing"]
