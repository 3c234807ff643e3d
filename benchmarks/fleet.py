"""One Prometheus that scrapes 200 endpoints of 8 ranks and 8 GPUs each, with the project's rules.

Not among the figures of ``make benchmark``: it takes five minutes and both cores. The endpoints
share the cores with Prometheus, so its CPU time is counted apart. The last
figures are in ``docs/explanation/scale.md``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.figure import Figure
from support.prometheus import ask, prometheus_process, query

PROCESSES, ENDPOINTS_EACH, FIRST_PORT = 4, 50, 21000
SCRAPE_SECONDS, WATCHED_SECONDS = 15, 180
RULES = Path(__file__).parents[1] / "dashboards" / "rules"
CONFIG = """
global: {{scrape_interval: {interval}s, evaluation_interval: {interval}s}}
scrape_configs:
  - job_name: warmwatch
    static_configs: [{{targets: {targets}}}]
"""


def measure() -> Iterator[Figure]:
    total = PROCESSES * ENDPOINTS_EACH
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        for number in range(PROCESSES):
            first = number * ENDPOINTS_EACH
            words = [place, str(first), str(ENDPOINTS_EACH), str(FIRST_PORT + first)]
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.endpoints", *words],
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        targets = [f"127.0.0.1:{FIRST_PORT + number}" for number in range(total)]
        config = CONFIG.format(interval=SCRAPE_SECONDS, targets=json.dumps(targets))
        rules = sorted(RULES.glob("*.yml"))
        url = stack.enter_context(prometheus_process(Path(place), config, *rules))
        time.sleep(3 * SCRAPE_SECONDS)
        yield from _figures(url, total, targets[0])


def _figures(url: str, total: int, target: str) -> Iterator[Figure]:
    (program,) = [p for p in psutil.process_iter() if p.name() == "prometheus"]
    before, began = sum(program.cpu_times()[:2]), time.monotonic()
    appended = _own(url, "prometheus_tsdb_head_samples_appended_total")
    time.sleep(WATCHED_SECONDS)
    spent = time.monotonic() - began
    share = (sum(program.cpu_times()[:2]) - before) / spent
    rate = (_own(url, "prometheus_tsdb_head_samples_appended_total") - appended) / spent
    with urllib.request.urlopen(f"http://{target}/metrics") as reply:
        lines = [one for one in reply.read().decode().splitlines() if not one.startswith("#")]
    groups = ask(url, "rules")["groups"]
    evaluation = {group["name"]: group["evaluationTime"] for group in groups}
    bad = [rule for group in groups for rule in group["rules"] if rule["health"] != "ok"]
    up = float(query(url, 'sum(up{job="warmwatch"})')[0]["value"][1])
    yield Figure(name="fleet: endpoints that answer", value=-up, limit=-total)
    yield Figure(name="fleet: rules in error", value=len(bad), limit=0)
    yield Figure(name="fleet: series of an endpoint", value=len(lines))
    yield Figure(name="fleet: series in all", value=_own(url, "prometheus_tsdb_head_series"))
    yield Figure(name="fleet: samples a second", value=rate)
    for name, seconds in evaluation.items():
        yield Figure(name=f"fleet: rules of {name}, ms", value=seconds * 1e3)
    yield Figure(name="fleet: Prometheus, share of a core", value=share)
    yield Figure(name="fleet: Prometheus, resident MB", value=program.memory_info().rss / 1e6)
    took = query(url, 'quantile(0.99, scrape_duration_seconds{job="warmwatch"})')
    yield Figure(name="fleet: a scrape, p99, ms", value=float(took[0]["value"][1]) * 1e3)


def _own(url: str, name: str) -> float:
    """One of Prometheus' own figures."""
    with urllib.request.urlopen(f"{url}/metrics") as reply:
        for text in reply.read().decode().splitlines():
            if text.startswith((f"{name} ", f'{name}{{type="float"}} ')):
                return float(text.split()[-1])
    raise LookupError(name)
