"""A real Prometheus with the project's rules over 500 nodes of 8 GPUs and 8 jobs each.

Not among the figures of ``make benchmark``: it takes twenty minutes and some GB. Every GPU has a
job of its own, so there are 4,000 runs; two jobs came before each, as in the two to three hours
that Prometheus' head covers where jobs last an hour. One daemon's ``/metrics``, under the nodes'
names, is what the nodes answer with, so the cost measured is that of Prometheus alone.
``BLOCK_NODES`` of them also have a day of blocks, with a sample a minute.

The rules are measured by the CPU time of Prometheus, so other load on the machine does not count:
each is queried after the nodes have stopped, at the moment of the last evaluation.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import psutil
import yaml

from benchmarks import standin
from benchmarks.figure import Figure
from benchmarks.served import daemon
from support import builders as b
from support.nvml import board
from support.prometheus import ask, free_port, prometheus_process, query
from support.records import held, write_record
from support.values import replace

NODES = int(os.environ.get("NODES", "500"))
BLOCK_NODES = int(os.environ.get("BLOCK_NODES", "20"))
# the last job lasts longer than the ranges of most rules, so that they see no other
GPUS, EARLIER_JOBS, EARLIER_SECONDS, LAST_SECONDS = 8, 2, 60, 420
SCRAPE_SECONDS, EVALUATION_SECONDS = 15, 240
BLOCK_SAMPLE_SECONDS, HOUR = 60, 3600
RULES = Path(__file__).parents[1] / "dashboards" / "rules"
_RUN = 'run="'
_SAMPLE = re.compile(r"^(\S+) (\S+)$")
_GROWS = re.compile(r"_(total|sum|count|bucket|timestamp_seconds)\b")


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        (place / "template").write_text(_metrics(place))
        yield from _blocks(place)
        port = free_port()
        nodes = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fleet", str(port), str(place / "template")],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(nodes.kill)
        assert nodes.stdout
        assert nodes.stdout.readline() == "ready\n"
        rules = sorted(RULES.glob("*.yml"))
        url = stack.enter_context(prometheus_process(place, _config(port), *rules))
        time.sleep(EARLIER_JOBS * EARLIER_SECONDS + LAST_SECONDS)
        yield from _figures(url)
        at = _next_evaluation(url)
        nodes.kill()
        yield from _costs(url, at)


def _metrics(place: Path) -> str:
    """``/metrics`` of a real daemon: eight living jobs, each with one of the stand-in's GPUs."""
    environ = {**os.environ, **standin.gpus(GPUS, str(place)).environment}
    environ |= {"WARMWATCH_DIR": str(place / "records"), "WARMWATCH_STATE": "off"}
    with ExitStack() as stack:
        for number in range(GPUS):
            slot = b.moved(b.as_rank(b.WARM, 0, 1), time.monotonic_ns(), time.time_ns())
            own = {"run": str(number), "gpus": (board(number)["uuid"],)}
            slot = replace(slot, identity=replace(slot.identity, **own))
            stack.enter_context(held(write_record(place / "records", slot, name=str(number))))
        served = stack.enter_context(daemon(environ))
        while True:
            text = served.ask("/metrics").decode()
            counts = (text.count("warmwatch_steps_total{"), text.count("warmwatch_gpu_sm_active"))
            if counts[0] == GPUS and counts[1] >= GPUS:
                return text
            time.sleep(0.5)


class Node:
    """The samples of one node. What grows, grows with time."""

    def __init__(self, template: str, number: int) -> None:
        found = (_SAMPLE.match(line) for line in template.splitlines() if line[0] != "#")
        self._number = number
        self._samples = [
            (
                re.sub("GPU-[0-9a-f]{4}", f"GPU-{number:04x}", one[1]),
                float(one[2]),
                _GROWS.search(one[1]) is not None,
            )
            for one in found
            if one
        ]

    def __len__(self) -> int:
        return len(self._samples)

    def text(self, job: int, seconds: float, stamp: str = "") -> Iterator[str]:
        """A line for each sample, ``seconds`` after the beginning."""
        own = f"{_RUN}job-{self._number}-{job}-"
        for name, value, grows in self._samples:
            now = value + seconds if grows else value
            yield f"{name.replace(_RUN, own)} {now:.13g}{stamp}\n"


async def _serve(port: int, template: str) -> None:
    nodes = [Node(template, number) for number in range(NODES)]
    began = time.time()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            node = nodes[int(head.split(b" ", 2)[1].strip(b"/"))]
            elapsed = time.time() - began
            job = min(int(elapsed / EARLIER_SECONDS), EARLIER_JOBS)
            body = "".join(node.text(job, elapsed)).encode()
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
    """A day of blocks; two hours at a time, since promtool reads its whole input for each block."""
    template = (place / "template").read_text()
    nodes = [Node(template, number) for number in range(BLOCK_NODES)]
    now, samples, file = int(time.time()), 0, place / "samples"
    for hours in range(24, 0, -2):
        with file.open("w") as out:
            for hour in (hours, hours - 1):
                start = now - hour * HOUR
                for moment in range(start, start + HOUR, BLOCK_SAMPLE_SECONDS):
                    for number, node in enumerate(nodes):
                        lines = node.text(-hour, moment - start, f" {moment}")
                        out.writelines(_scraped(line, number) for line in lines)
                        samples += len(node)
            out.write("# EOF\n")
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file)]
        subprocess.run([*command, str(place / "tsdb")], check=True, stdout=subprocess.DEVNULL)
    file.unlink(missing_ok=True)
    blocks = list((place / "tsdb").glob("*/meta.json"))
    size = sum(one.stat().st_size for one in (place / "tsdb").rglob("*") if one.is_file())
    yield Figure(name="fleet: nodes with a day of blocks", value=BLOCK_NODES)
    yield Figure(name="fleet: blocks", value=len(blocks), detail=f"{size / 1e6:.0f} MB")
    yield Figure(name="fleet: samples in them, millions", value=samples / 1e6)


def _scraped(line: str, number: int) -> str:
    """With the labels that a scrape adds."""
    own = f'instance="node-{number}:10464",job="warmwatch"'
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{own},{rest}"
    name, _, rest = line.partition(" ")
    return f"{name}{{{own}}} {rest}"


def _figures(url: str) -> Iterator[Figure]:
    program = _program(url)
    before, appended, began = _cpu(program), _appended(url), time.monotonic()
    time.sleep(4 * SCRAPE_SECONDS)
    spent = time.monotonic() - began
    up = float(query(url, 'sum(up{job="warmwatch"})')[0]["value"][1])
    live = float(query(url, 'sum(scrape_samples_scraped{job="warmwatch"})')[0]["value"][1])
    head = ask(url, "status/tsdb")["headStats"]["numSeries"]
    yield Figure(name="fleet: nodes that answer", value=-up, limit=-NODES)
    yield Figure(name="fleet: series, living", value=live)
    yield Figure(name="fleet: series in the head", value=head)
    yield Figure(name="fleet: samples a second", value=(_appended(url) - appended) / spent)
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


def _costs(url: str, at: float) -> Iterator[Figure]:
    """CPU time of each rule, and of all of them."""
    program, groups = _program(url), ask(url, "rules")["groups"]
    rules = [(group["name"], rule) for group in groups for rule in group["rules"]]
    bad = [rule for _, rule in rules if rule["health"] != "ok"]
    yield Figure(name="fleet: rules in error", value=len(bad), limit=0)
    costs = []
    for group, rule in rules:
        before = _cpu(program)
        asked = urlencode({"query": rule["query"], "time": f"{at:.3f}"})
        with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=600) as reply:
            found = len(json.load(reply)["data"]["result"])
        costs.append((_cpu(program) - before, rule["name"], group, found))
    for group in {one["name"]: None for one in groups}:
        spent = sum(seconds for seconds, _, of, _ in costs if of == group)
        yield Figure(name=f"fleet: CPU of {group}, s", value=spent)
    for seconds, name, _, found in sorted(costs, reverse=True)[:12]:
        yield Figure(name=f"fleet: CPU of {name}, s", value=seconds, detail=f"{found} series")


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


def _appended(url: str) -> float:
    """Samples that Prometheus has stored, by its own metrics."""
    name = "prometheus_tsdb_head_samples_appended_total"
    with urllib.request.urlopen(f"{url}/metrics") as reply:
        for text in reply.read().decode().splitlines():
            if text.startswith((f"{name} ", f'{name}{{type="float"}} ')):
                return float(text.split()[-1])
    raise LookupError(name)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]).read_text()))
