"""A real Prometheus scrapes the real daemon; its query API returns the values of /status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support import builders as b
from support.prometheus import ask, prometheus_process, scraping
from support.records import at_rest, environment, held, update, wait_until, write_record
from warmwatch.shared.record import Slot


def live(slot: Slot) -> Slot:
    return at_rest(b.moved(slot, time.monotonic_ns(), time.time_ns()))


def fetch(url: str) -> Any:
    with urlopen(url, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def daemon(directory: Path) -> Iterator[str]:
    """The daemon's address."""
    command = [sys.executable, "-m", "warmwatch_monitor", "serve"]
    options = ["--dir", str(directory), "--address", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " event=start " in line
            yield re.findall(r" url=http://(\S+)", line)[0]
        finally:
            process.terminate()


@pytest.fixture
def prometheus(daemon: str, tmp_path: Path) -> Iterator[str]:
    """The base URL of a Prometheus that scrapes the daemon every second."""
    with prometheus_process(tmp_path, scraping(daemon)) as url:
        yield url


def query(
    prometheus: str, expression: str, at: float | None = None
) -> dict[tuple[str, str], float]:
    """The value by run and rank: the present one, or that ``at`` the time of a scrape.

    A scrape that the daemon does not answer within its second leaves no value behind.
    """
    when = {} if at is None else {"time": str(at)}
    found = ask(prometheus, "query", query=expression, **when)["result"]
    return {
        (one["metric"].get("run", ""), one["metric"].get("rank", "")): float(one["value"][1])
        for one in found
    }


def ranks(daemon: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The ranks of /status, by run and rank."""
    answer = fetch(f"http://{daemon}/status")
    return {
        (run["run"], str(rank["rank"])): rank for run in answer["runs"] for rank in run["ranks"]
    }


def test_the_query_api_returns_the_values_of_status(
    directory: Path, daemon: str, prometheus: str
) -> None:
    with ExitStack() as holders:
        recompiling = write_record(directory, live(b.as_rank(b.RECOMPILING, 0, 2)), name="zero")
        holders.enter_context(held(recompiling))
        warm = write_record(directory, live(b.as_rank(b.WARM, 1, 2)), name="one")
        holders.enter_context(held(warm))
        bert = b.in_every_state("bert")["finished"].reading.slot
        write_record(directory, live(bert), name="ended")
        _same_answer(daemon, prometheus)

        update(recompiling, live(b.as_rank(b.WARM, 0, 2)))
        wait_until(lambda: query(prometheus, "warmwatch_warm").get(("gpt2", "0")) == 1)
        assert ranks(daemon)["gpt2", "0"]["state"] == "warm"


def _same_answer(daemon: str, prometheus: str) -> None:
    keys = {("gpt2", "0"), ("gpt2", "1"), ("bert", "0")}
    wait_until(lambda: query(prometheus, "warmwatch_warm").keys() == keys)
    before, moment, scrapes = ranks(daemon), time.time(), list[float]()

    def scraped_since() -> bool:
        scrapes.append(query(prometheus, "max(timestamp(warmwatch_warm))").get(("", ""), 0))
        return scrapes[-1] > moment

    wait_until(scraped_since)
    at = scrapes[-1]
    seconds = query(prometheus, "sum by (run, rank) (warmwatch_compile_seconds_total)", at)
    after = ranks(daemon)
    assert before.keys() == after.keys() == seconds.keys() == keys
    for key, rank in after.items():
        state = query(prometheus, f'warmwatch_state{{state="{rank["state"]}"}}', at)
        assert state[key] == 1
        assert query(prometheus, "warmwatch_warm", at)[key] == (rank["state"] == "warm")
        assert query(prometheus, "warmwatch_steps_total", at)[key] == rank["steps"]
        assert seconds[key] <= rank["compile"]["seconds"] + 1e-6
    assert seconds["gpt2", "1"] == pytest.approx(after["gpt2", "1"]["compile"]["seconds"])
    assert seconds["gpt2", "0"] > after["gpt2", "1"]["compile"]["seconds"]
    assert query(prometheus, "up", at) == {("", ""): 1}
