"""A real Prometheus with the project's rules over 500 nodes of 8 GPUs, with a day of churn.

Not among the figures of ``make benchmark``: it takes half an hour and some GB. With
``BLOCK_NODES=1 EARLIER_SECONDS=30 LAST_SECONDS=150`` it takes a third of that, and rules that look
back for more than two minutes see the earlier jobs as well. Every GPU has a job of its own, so
there are 4,000 runs, and a new one each hour. A day of that is in blocks, with two samples of each
hour: the cost of a day of churn is its series. Then the nodes are scraped. Each has had two earlier
jobs, as in the two to three hours that Prometheus' head covers. All nodes serve the
``/metrics`` of one daemon under their own names, so the measured cost is that of Prometheus alone.
TEMPLATE names a file with that text, for a machine on which no daemon runs. CORES (``0,1``) are
those of Prometheus; WORKERS blocks are made at a time.

Rules and dashboards are measured by the CPU time of Prometheus, so other load on the machine does
not count: each is queried after the nodes have stopped, at the moment of the last evaluation, and
Prometheus evaluates no rules meanwhile. Graphs cover all scrapes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import yaml

from benchmarks import standin
from benchmarks.figure import Figure
from benchmarks.served import daemon
from support import builders as b
from support import dashboards
from support.nvml import board
from support.prometheus import ask, free_port, prometheus_process, query
from support.records import held, write_record
from support.values import replace

NODES = int(os.environ.get("NODES", "500"))
BLOCK_NODES = int(os.environ.get("BLOCK_NODES", str(NODES)))
WORKERS = int(os.environ.get("WORKERS", "1"))
CORES = [int(core) for core in os.environ.get("CORES", "").split(",") if core]
# the last job lasts longer than the ranges of most rules, so that they see no other
GPUS, EARLIER_JOBS = 8, 2
EARLIER_SECONDS = int(os.environ.get("EARLIER_SECONDS", "60"))
LAST_SECONDS = int(os.environ.get("LAST_SECONDS", "1080"))
SCRAPE_SECONDS, EVALUATION_SECONDS = 15, 60
BLOCK_SAMPLE_SECONDS, HOUR = 1800, 3600
# of jobs that last an hour, those that ended within the daemon's retention of 15 minutes: settled
ENDED, ENDED_SECONDS = GPUS * 15 // 60, 300.0
RULES = Path(__file__).parents[1] / "dashboards" / "rules"
# what Grafana fills in for a graph of all scrapes, without the run
VARIABLES = {
    **dict.fromkeys(("rank", "gpu", "cluster", "node"), ".*"),
    "lines": "16",
    "rows": "50",
    "__interval": f"{SCRAPE_SECONDS}s",
    "__rate_interval": f"{4 * SCRAPE_SECONDS}s",
    "__range": f"{EARLIER_JOBS * EARLIER_SECONDS + LAST_SECONDS}s",
}
APPENDED = "prometheus_tsdb_head_samples_appended_total"
MISSED = "prometheus_rule_group_iterations_missed_total"
_SAMPLE = re.compile(r"^(\w+)\{?(.*?)\}? (\S+)$")
# what an alert counts does not grow, or 9,000 alerts would fire
_GROWS = re.compile(
    r"(?<!errors)(?<!after_warm)(?<!fallbacks)_(total|sum|count|bucket|timestamp_seconds)$"
)


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        template = place / "template"
        given = os.environ.get("TEMPLATE")
        template.write_text(Path(given).read_text() if given else _metrics(place))
        yield from _blocks(place)
        port = free_port()
        nodes = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fleet", str(port), str(template)],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(nodes.kill)
        assert nodes.stdout
        assert nodes.stdout.readline() == "ready\n"
        rules = sorted(RULES.glob("*.yml"))
        if CORES:  # inherited by Prometheus, which uses as many threads; the nodes run already
            os.sched_setaffinity(0, CORES)
        url = stack.enter_context(prometheus_process(place, _config(port), *rules))
        time.sleep(EARLIER_JOBS * EARLIER_SECONDS + LAST_SECONDS)
        yield from _figures(url)
        at = _next_evaluation(url)
        nodes.kill()
        groups = ask(url, "rules")["groups"]
        yield from _evaluations(url, groups)
        _end_evaluations(url, place)
        yield from _costs(url, at, groups)


def _metrics(place: Path) -> str:
    """``/metrics`` of a real daemon: a living job on each GPU of the stand-in, and ended ones."""
    environ = {**os.environ, **standin.gpus(GPUS, str(place)).environment}
    environ |= {"WARMWATCH_DIR": str(place / "records"), "WARMWATCH_STATE": "off"}
    now = time.monotonic_ns(), time.time_ns()
    with ExitStack() as stack:
        for number in range(GPUS):
            slot = b.moved(b.as_rank(b.WARM, 0, 1), *now)
            own = {"run": f"@job@-{number}", "gpus": (board(number)["uuid"],)}
            slot = replace(slot, identity=replace(slot.identity, **own))
            stack.enter_context(held(write_record(place / "records", slot, name=str(number))))
            if number < ENDED:
                slot = b.moved(b.ended("finished", b.as_rank(b.WARM, 0, 1), ENDED_SECONDS), *now)
                own = {"run": f"@ended@-{number}", "gpus": (board(number)["uuid"],)}
                slot = replace(slot, identity=replace(slot.identity, **own))
                write_record(place / "records", slot, name=f"ended-{number}")
        served = stack.enter_context(daemon(environ))
        while True:
            text = served.ask("/metrics").decode()
            counts = (text.count("warmwatch_steps_total{"), text.count("warmwatch_gpu_sm_active"))
            if counts[0] == GPUS + ENDED and counts[1] >= GPUS:
                return text
            time.sleep(0.5)


class Node:
    """The samples of one node. The value of what grows is the time."""

    def __init__(self, template: str, number: int, scraped: str = "", stamp: str = "") -> None:
        lines = []
        for line in template.splitlines():
            if line[0] != "#" and (found := _SAMPLE.match(line)):
                name, labels, value = found.groups()
                labels = ",".join(filter(None, (scraped, labels)))
                value = "@time@" if _GROWS.search(name) else value
                lines.append(f"{name}{{{labels}}} {value}{stamp}\n")
        text = re.sub("GPU-[0-9a-f]{4}", f"GPU-{number:04x}", "".join(lines))
        self._number, self._text, self.samples = number, text.encode(), len(lines)

    def text(self, job: int, moment: int) -> bytes:
        """What it answers with, while its jobs have this number."""
        filled = self._text.replace(b"@time@", b"%d" % moment)
        filled = filled.replace(b"@ended@", b"job-%d-%d" % (self._number, job - 1))
        return filled.replace(b"@job@", b"job-%d-%d" % (self._number, job))


async def _serve(port: int, template: str) -> None:
    nodes = [Node(template, number) for number in range(NODES)]
    began = time.time()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            node = nodes[int(head.split(b" ", 2)[1].strip(b"/"))]
            now = time.time()
            job = min(int((now - began) / EARLIER_SECONDS), EARLIER_JOBS)
            body = node.text(job, int(now))
            words = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}"
            writer.write(words.encode() + b"\r\n\r\n" + body)
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The head of a request; nothing where the connection has ended."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _config(port: int) -> str:
    def target(number: int) -> dict[str, object]:
        labels = {"instance": f"node-{number}:10464", "__metrics_path__": f"/{number}"}
        return {"targets": [f"127.0.0.1:{port}"], "labels": labels}

    job = {"job_name": "warmwatch", "static_configs": [target(n) for n in range(NODES)]}
    intervals = {
        "scrape_interval": f"{SCRAPE_SECONDS}s",
        "evaluation_interval": f"{EVALUATION_SECONDS}s",
    }
    return str(yaml.safe_dump({"global": intervals, "scrape_configs": [job]}))


def _blocks(place: Path) -> Iterator[Figure]:
    """A day of blocks, WORKERS at a time: promtool reads its whole input for each."""
    began, last = time.monotonic(), int(time.time())
    last -= last % (2 * HOUR)
    with ProcessPoolExecutor(WORKERS) as pool:
        starts = range(last - 24 * HOUR, last, 2 * HOUR)
        samples = sum(pool.map(partial(_block, place, last), starts))
    blocks = [json.loads(one.read_text()) for one in (place / "tsdb").glob("*/meta.json")]
    size = sum(one.stat().st_size for one in (place / "tsdb").rglob("*") if one.is_file())
    made = f"{size / 1e6:.0f} MB, made in {time.monotonic() - began:.0f} s"
    yield Figure(name="fleet: nodes with a day of blocks", value=BLOCK_NODES)
    yield Figure(name="fleet: blocks", value=len(blocks), detail=made)
    series = sum(one["stats"]["numSeries"] for one in blocks)
    yield Figure(name="fleet: series in them, millions", value=series / 1e6)
    yield Figure(name="fleet: samples in them, millions", value=samples / 1e6)


def _block(place: Path, last: int, start: int) -> int:
    """Make the block of the two hours from ``start``; return how many samples it has."""
    template, file = (place / "template").read_text(), place / f"samples-{start}"
    nodes = [
        Node(template, number, f'instance="node-{number}:10464",job="warmwatch"', " @time@")
        for number in range(BLOCK_NODES)
    ]
    moments = range(start, start + 2 * HOUR, BLOCK_SAMPLE_SECONDS)
    with file.open("wb") as out:
        for moment in moments:
            for node in nodes:
                out.write(node.text((moment - last) // HOUR, moment))
        out.write(b"# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file)]
    subprocess.run([*command, str(place / "tsdb")], check=True, stdout=subprocess.DEVNULL)
    file.unlink()
    return len(moments) * sum(node.samples for node in nodes)


def _figures(url: str) -> Iterator[Figure]:
    program = _program(url)
    before, appended, began = _cpu(program), _own(url, APPENDED), time.monotonic()
    time.sleep(4 * SCRAPE_SECONDS)
    spent = time.monotonic() - began
    up = float(query(url, 'sum(up{job="warmwatch"})')[0]["value"][1])
    live = float(query(url, 'sum(scrape_samples_scraped{job="warmwatch"})')[0]["value"][1])
    head = ask(url, "status/tsdb")["headStats"]["numSeries"]
    yield Figure(name="fleet: nodes that do not answer", value=NODES - up, limit=0)
    yield Figure(name="fleet: series, living", value=live)
    yield Figure(name="fleet: series in the head", value=head)
    yield Figure(name="fleet: samples a second", value=(_own(url, APPENDED) - appended) / spent)
    yield Figure(name="fleet: share of a core", value=(_cpu(program) - before) / spent)
    yield Figure(name="fleet: resident MB", value=program.memory_info().rss / 1e6)


def _next_evaluation(url: str) -> float:
    """The moment after the next evaluation of all groups."""
    before = {group["name"]: group["lastEvaluation"] for group in ask(url, "rules")["groups"]}
    while True:
        groups = ask(url, "rules")["groups"]
        if all(before[group["name"]] != group["lastEvaluation"] for group in groups):
            return time.time()
        time.sleep(1)


def _evaluations(url: str, groups: list[dict[str, Any]]) -> Iterator[Figure]:
    bad = [rule for group in groups for rule in group["rules"] if rule["health"] != "ok"]
    yield Figure(name="fleet: evaluations missed", value=_own(url, MISSED), limit=0)
    yield Figure(name="fleet: rules in error", value=len(bad), limit=0)
    for group in groups:
        name = f"fleet: last evaluation of {group['name']}, wall-clock s"
        yield Figure(name=name, value=group["evaluationTime"])


def _end_evaluations(url: str, place: Path) -> None:
    """On a busy machine one follows the other, and each query would be measured with them."""
    (place / "prometheus.yml").write_text("")
    _program(url).send_signal(signal.SIGHUP)
    while ask(url, "rules")["groups"]:
        time.sleep(1)


def _costs(url: str, at: float, groups: list[dict[str, Any]]) -> Iterator[Figure]:
    """CPU time of each rule and panel, and of all of a group or dashboard."""
    for costs in (_rule_costs(url, at, groups), _panel_costs(url, at)):
        found = list(costs)
        for whole in {group: None for group, _, _ in found}:
            parts = [cost for group, _, cost in found if group == whole]
            spent, slowest = sum(cost[0] for cost in parts), max(cost[1] for cost in parts)
            detail = f"slowest query {slowest:.2f} s of wall-clock time"
            yield Figure(name=f"fleet: CPU of {whole}, s", value=spent, detail=detail)
        for _, name, (spent, _, series) in sorted(found, key=lambda one: one[2], reverse=True)[:12]:
            yield Figure(name=f"fleet: CPU of {name}, s", value=spent, detail=f"{series} series")


# A rule or panel: its group or dashboard, its name, and what `_cost` gives.
Cost = tuple[str, str, tuple[float, float, int]]


def _rule_costs(url: str, at: float, groups: list[dict[str, Any]]) -> Iterator[Cost]:
    for group in groups:
        for rule in group["rules"]:
            yield group["name"], rule["name"], _cost(url, at, rule["query"], instant=True)


def _panel_costs(url: str, at: float) -> Iterator[Cost]:
    last = {"query": "topk(1, run:warmwatch_warm:min)", "time": f"{at:.3f}"}
    (some,) = ask(url, "query", **last)["result"]
    variables = {**VARIABLES, "run": some["metric"]["run"]}
    for one in dashboards.queries():
        cost = _cost(url, at, one.filled(**variables), one.instant)
        yield one.where.partition(":")[0], one.where, cost


def _cost(url: str, at: float, query: str, instant: bool) -> tuple[float, float, int]:
    """CPU time and wall-clock time in seconds of one query, and how many series it gives."""
    program, parameters = _program(url), {"query": query, "time": f"{at:.3f}"}
    if not instant:
        start = at - float(VARIABLES["__range"].rstrip("s"))
        parameters |= {"start": f"{start:.3f}", "end": f"{at:.3f}", "step": str(SCRAPE_SECONDS)}
    path = f"{url}/api/v1/query{'' if instant else '_range'}?{urlencode(parameters)}"
    before, began = _cpu(program), time.monotonic()
    with urllib.request.urlopen(path, timeout=600) as reply:
        found = len(json.load(reply)["data"]["result"])
    return _cpu(program) - before, time.monotonic() - began, found


def _program(url: str) -> psutil.Process:
    (program,) = [one for one in psutil.process_iter() if _listens(one, url)]
    return program


def _cpu(program: psutil.Process) -> float:
    return sum(program.cpu_times()[:2])


def _listens(process: psutil.Process, url: str) -> bool:
    try:
        return f"--web.listen-address={url.removeprefix('http://')}" in process.cmdline()
    except psutil.Error:
        return False


def _own(url: str, name: str) -> float:
    """The sum of a metric of Prometheus itself; of samples, only plain ones (no histograms)."""
    with urllib.request.urlopen(f"{url}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    found = [line for line in lines if re.match(rf"{name}[ {{]", line) and "histogram" not in line]
    return sum(float(line.split()[-1]) for line in found)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]).read_text()))
