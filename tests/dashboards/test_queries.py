"""Every query of every dashboard, in a real Prometheus that scrapes a real daemon."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from support import builders as b
from support import dashboards
from support.daemon import daemon_process
from support.dashboards import Query
from support.nvml import Standin, board
from support.prometheus import ask, prometheus_process, query, scraping
from support.records import held, update, wait_until, write_record
from support.values import replace
from warmwatch.shared.record import Slot

# With a scrape each second, what Grafana would put in for a graph of a few minutes.
VARIABLES = {
    "run": "gpt2",
    "rank": ".*",
    "gpu": ".*",
    "cluster": ".*",
    "node": ".*",
    "lines": "16",
    "rows": "50",
    "__interval": "2s",
    "__rate_interval": "5s",
    "__range": "60s",
}
# An alert that fires immediately, named like ours. The rules' own tests check when ours fire.
PROBE = """
groups:
  - name: probe
    rules: [{alert: WarmwatchProbe, expr: vector(1), labels: {severity: warning}}]
"""


# What only some trainings have: CUDA's allocator, CUDA graphs left out, frames at the limit.
RARE = {"memory": (10, 20, 30, 40), "memory_ns": 1, "cudagraph_skips": 1, "fallbacks": 1}
HOW_FAR = {"progress_of": 1, "progress_done": 31, "progress_total": 86}


class Training:
    """A run of five ranks without the last: 0 compiles again on GPU 0, 1 and 2 share GPU 1.

    3 failed with an exit code.
    """

    def __init__(self, directory: Path, holders: ExitStack) -> None:
        self._slots: dict[Path, Slot] = {}
        self._steps = 0
        for rank, state, gpu in ((0, b.RECOMPILING, 0), (1, b.WARM, 1), (2, b.WARM, 1)):
            slot = b.moved(b.as_rank(state, rank, 5), time.monotonic_ns(), time.time_ns())
            reported = {"gpus": (board(gpu)["uuid"],), "collective_timeout": 600.0}
            slot = replace(slot, identity=replace(slot.identity, **reported))
            slot = replace(slot, compile=replace(slot.compile, **RARE))
            if not rank:
                slot = replace(slot, compile=replace(slot.compile, **HOW_FAR))
            folder = write_record(directory, slot, name=f"rank{rank}")
            holders.enter_context(held(folder))
            if rank:
                self._slots[folder] = slot
        failed = b.as_rank(b.ended("failed"), 3, 5)
        compile = replace(failed.compile, exit_code=1 + 7)
        over = b.moved(replace(failed, compile=compile), time.monotonic_ns(), time.time_ns())
        write_record(directory, over, name="rank3")

    def step(self) -> None:
        """One more clean step and one more with compile activity, of each rank that trains."""
        self._steps += 1
        for folder, slot in self._slots.items():
            update(folder, _after(slot, self._steps))


def _after(slot: Slot, steps: int) -> Slot:
    clean, dirty, now_ns = 36_000_000, 2 * b.SECOND, time.monotonic_ns()
    compile = replace(
        slot.compile,
        irregular_step_ns=now_ns,
        clean_sum_ns=slot.compile.clean_sum_ns + steps * clean,
        compile_step_sum_ns=slot.compile.compile_step_sum_ns + steps * dirty,
        saving_ns=slot.compile.saving_ns + steps * clean,
    )
    return replace(
        slot,
        steps=replace(
            slot.steps,
            steps=slot.steps.steps + 2 * steps,
            last_step_ns=now_ns,
            batches=slot.steps.batches + 2 * steps,
            last_batch_ns=now_ns,
            batch_wait_ns=slot.steps.batch_wait_ns + steps * clean,
        ),
        compile=compile,
        clean_bins=_added(slot.clean_bins, b.bins(clean), steps),
        compile_bins=_added(slot.compile_bins, b.bins(dirty), steps),
    )


def _added(bins: tuple[int, ...], one: tuple[int, ...], times: int) -> tuple[int, ...]:
    return tuple(before + times * more for before, more in zip(bins, one, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboards")


@pytest.fixture(scope="module")
def nvml(folder: Path) -> dict[str, str]:
    """The environment in which a daemon finds two boards that use energy."""
    (folder / "nvml").mkdir()
    standin = Standin(folder / "nvml")
    standin.say(board(0, energy="1000 118"), board(1, energy="1000 686"))
    return standin.environment


@pytest.fixture(scope="module")
def training(folder: Path) -> Iterator[Training]:
    (folder / "records").mkdir()
    with ExitStack() as holders:
        yield Training(folder / "records", holders)


@pytest.fixture(scope="module")
def prometheus(folder: Path, training: Training, nvml: dict[str, str]) -> Iterator[str]:
    """A Prometheus with all rules that scrapes a daemon which sees training and GPUs."""
    (folder / "probe.yml").write_text(PROBE)
    arguments = ("--dir", str(folder / "records"), "--interval", "0.1", "--gpu-interval", "0.2")
    rules = (*dashboards.RULES, folder / "probe.yml")
    with (
        daemon_process(*arguments, **nvml) as (_, daemon),
        prometheus_process(folder, scraping(daemon), *rules) as url,
    ):
        yield url


def _answerable() -> list[Query]:
    """All queries; without the recording rules only those that do without them."""
    every = list(dashboards.queries())
    if dashboards.RULES:
        return every
    return [one for one in every if not any(":" in metric for metric in one.metrics)]


def _numbers(prometheus: str, target: Query) -> list[float]:
    """What it gives now, without what is not a number."""
    found = query(prometheus, target.filled(**VARIABLES))
    values = [float(one["value"][1]) for one in found]
    return [value for value in values if not math.isnan(value)]


def _expr(where: str) -> Query:
    (found,) = (one for one in dashboards.queries() if one.where == where)
    return found


@pytest.mark.slow
def test_every_query_returns_data(prometheus: str, training: Training) -> None:
    left = {one.where: one for one in _answerable()}
    assert len(left) > 30

    def all_answered() -> bool:
        training.step()
        for where, one in list(left.items()):
            if _numbers(prometheus, one):
                del left[where]
        return not left

    with suppress(AssertionError):  # the assertion below names the queries that are left
        wait_until(all_answered)
    assert left == {}


def test_every_variable_lists_the_existing_values(prometheus: str) -> None:
    gpus = [board(0)["uuid"], board(1)["uuid"]]
    offered = {"$run": ["gpt2"], "$rank": ["0", "1", "2", "3"], "$gpu": gpus}
    named = [
        (query.where.split(": ")[1], query, label) for query, label in dashboards.label_queries()
    ]
    # clusters and nodes: see the test of many nodes
    assert {name for name, *_ in named} - {"$cluster", "$node"} == {*offered}
    for name, target, label in named:
        if name not in offered:
            continue
        series = {"match[]": target.filled(**VARIABLES)}
        wait_until(
            lambda label=label, series=series, name=name: (
                set(ask(prometheus, f"label/{label}/values", **series)) >= set(offered[name])
            )
        )


CLUSTERS, NODES_EACH = ("east", "west"), 16
LINES, ROWS = 8, 20
_GROWS = re.compile(r"_(total|sum|count|bucket)\b")


class ManyNodes:
    """Two clusters of nodes, each of which serves the answer of one daemon under other names.

    Half of the nodes of each have ranks of one run, the other half have runs of their own.
    """

    def __init__(self, text: str) -> None:
        self._lines = [line for line in text.splitlines() if not line.startswith("#")]
        self._began = time.time()

    def text(self, cluster: str, node: int) -> str:
        together = node < NODES_EACH // 2
        run = "gpt2" if together else f"run-{cluster}-{node}"
        grown = round(time.time() - self._began)

        def renamed(line: str) -> str:
            line = re.sub('run="[^"]*"', f'run="{run}"', line)
            line = line.replace('uuid="GPU-0000', f'uuid="GPU-{cluster}{node:02}')
            if together:
                line = re.sub('rank="([0-9])"', f'rank="{node}\\1"', line)
            name, value = line.rsplit(" ", 1)
            return f"{name} {float(value) + grown * bool(_GROWS.search(name))}\n"

        return "".join(map(renamed, self._lines))


@pytest.fixture(scope="module")
def many_nodes(prometheus: str, training: Training, folder: Path) -> Iterator[str]:
    """A Prometheus with all rules over many nodes, each like the daemon of the other tests."""
    wait_until(lambda: ask(prometheus, "targets")["activeTargets"])
    (target,) = ask(prometheus, "targets")["activeTargets"]

    def metrics() -> str:
        training.step()
        with urlopen(target["scrapeUrl"]) as reply:
            return str(reply.read().decode())

    # which are there once energy and activity were measured over several steps
    late = ("warmwatch_clean_step_energy_joules{", "warmwatch_limited_by{")
    wait_until(lambda: all(name in metrics() for name in late))
    nodes = ManyNodes(metrics())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, cluster, node = self.path.split("/")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(nodes.text(cluster, int(node)).encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    targets = [
        {
            "targets": [f"127.0.0.1:{server.server_port}"],
            "labels": {
                "__metrics_path__": f"/{cluster}/{node}",
                "cluster": cluster,
                "instance": f"{cluster}-{node}:10464",
            },
        }
        for cluster in CLUSTERS
        for node in range(NODES_EACH)
    ]
    config = {
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "scrape_configs": [{"job_name": "warmwatch", "static_configs": targets}],
    }
    place = folder / "many"
    place.mkdir()
    rules = (*dashboards.RULES, folder / "probe.yml")
    with prometheus_process(place, yaml.safe_dump(config), *rules) as url:
        yield url
    server.shutdown()


@pytest.mark.slow
def test_no_panel_draws_a_line_for_each_of_many_ranks_gpus_or_runs(many_nodes: str) -> None:
    """Each query gives data, of both clusters together and of one node alone, and few series."""
    values = {**VARIABLES, "lines": str(LINES), "rows": str(ROWS), "__rate_interval": "10s"}
    # a rank has two GPUs or several states, phases and kinds of figures; never one for each node
    most = 3 * LINES
    for chosen in ({}, {"cluster": "east", "node": "east-3:10464"}):
        left = {one.where: one for one in _answerable() if "Firing" not in one.where}

        def all_answered(left: dict[str, Query] = left, chosen: Any = chosen) -> bool:
            for where, one in list(left.items()):
                if found := query(many_nodes, one.filled(**{**values, **chosen})):
                    limit = ROWS if "$rows" in one.expr else most
                    assert len(found) <= limit, where
                    clusters = {series["metric"].get("cluster", "") for series in found}
                    assert clusters <= {"", chosen.get("cluster", ""), *CLUSTERS}, where
                    del left[where]
            return not left

        with suppress(AssertionError):
            wait_until(all_answered)
        assert left == {}


def test_rules_and_variables_keep_clusters_and_nodes_apart(many_nodes: str) -> None:
    def found(series: str, label: str) -> set[str]:
        return set(ask(many_nodes, f"label/{label}/values", **{"match[]": series}))

    recorded = {
        rule["name"]
        for group in ask(many_nodes, "rules")["groups"]
        for rule in group["rules"]
        if rule["type"] == "recording" and rule["name"] != "warmwatch:settings"
    }
    # of runs that are over, stall, are slower, compile for long, or wait for a rank without having
    # lost one; of ranks that save; of GPUs with errors; of daemons that do not answer
    rare = {"run:warmwatch_failed:max", "run:warmwatch_stalled_seconds:max"}
    rare |= {f"run:warmwatch_end_seconds:{name}" for name in ("age", "spread")}
    rare |= {
        f"run:warmwatch_{name}_seconds:max"
        for name in ("compile_wait", "long_compile", "first_step_wait")
    }
    rare |= {"gpu:warmwatch_errors:sum"}
    rare |= {f"run:warmwatch_{name}:max" for name in ("down", "slower_ratio")}
    rare |= {f"run:warmwatch_ranks_{name}:count" for name in ("lost", "gone", "unseen")}
    rare |= {f"instance:warmwatch_{name}" for name in ("ranks:unseen", "up:silent", "other_up:max")}
    rare |= {"rank:warmwatch_unseen_seconds:age", "rank:warmwatch_silent:max"}
    rare |= {"rank:warmwatch_pause_seconds:age", "run:warmwatch_busy_without_step_seconds:max"}
    rare |= {"run_condition:warmwatch_ranks:count"}

    def incomplete() -> set[str]:
        return {name for name in recorded - rare if found(name, "cluster") != {*CLUSTERS}}

    with suppress(AssertionError):  # the assertion below names them
        wait_until(lambda: not incomplete())
    assert incomplete() == set()
    for target, label in dashboards.label_queries():
        east = target.filled(**{**VARIABLES, "cluster": "east"})
        offered = found(east, label)
        if label == "cluster":
            assert offered == {*CLUSTERS}
        elif label == "instance":
            nodes = {f"east-{node}:10464" for node in range(NODES_EACH)}
            wait_until(lambda east=east, nodes=nodes: found(east, "instance") == nodes)
        else:
            assert offered, target.where
            assert not any("west" in one for one in offered), target.where


def test_the_timeline_shows_each_rank_in_its_state(prometheus: str, training: Training) -> None:
    target = _expr("warmwatch-run: State of each rank A").filled(**VARIABLES)
    wanted = {"0": "4", "1": "6", "2": "6", "3": "8"}  # recompiling, warm, warm, failed

    def shown() -> dict[str, str]:
        training.step()
        return {one["metric"]["rank"]: one["value"][1] for one in query(prometheus, target)}

    wait_until(lambda: shown() == wanted)
    if dashboards.RULES:
        run = _expr("warmwatch-run: State A").filled(**VARIABLES)
        wait_until(lambda: [one["value"][1] for one in query(prometheus, run)] == ["4"])


def test_a_short_recompilation_remains_visible_in_a_zoomed_out_graph(
    prometheus: str, folder: Path
) -> None:
    target = _expr("warmwatch-run: State of each rank A")

    def shown(interval: str) -> list[str]:
        expr = target.filled(**{**VARIABLES, "run": "bert", "__interval": interval})
        return [one["value"][1] for one in query(prometheus, expr)]

    record = write_record(folder / "records", _of_bert(b.RECOMPILING), name="bert")
    with held(record):
        wait_until(lambda: shown("1s") == ["4"])
        update(record, _of_bert(b.WARM))
        wait_until(lambda: shown("1s") == ["6"])
        assert shown("5m") == ["4"]


def _of_bert(state: Slot) -> Slot:
    slot = b.moved(state, time.monotonic_ns(), time.time_ns())
    return replace(slot, identity=replace(slot.identity, run="bert"))


def test_the_end_of_a_warm_up_is_marked_at_its_time(prometheus: str) -> None:
    """130 s before the record was written, in milliseconds; the rank that is not warm has none."""
    target = _expr("warmwatch-run: Warm-up ended").filled(**VARIABLES)
    wait_until(lambda: len(query(prometheus, target)) == 3)
    found = {one["metric"]["rank"]: one["value"][1] for one in query(prometheus, target)}
    assert found.keys() == {"1", "2", "3"}
    for milliseconds in found.values():
        assert 129 < time.time() - float(milliseconds) / 1000 < 129 + 600


def test_each_of_several_ranks_on_one_gpu_shows_it(prometheus: str) -> None:
    target = _expr("warmwatch-run: Power of the ranks' GPUs A").filled(**VARIABLES)
    wait_until(lambda: len(query(prometheus, target)) == 3)
    found = {one["metric"]["rank"]: one["metric"]["gpu"] for one in query(prometheus, target)}
    assert found == {"0": "0", "1": "1", "2": "1"}


def test_the_tables_of_ends_name_the_rank_that_failed_and_its_exit_code(prometheus: str) -> None:
    for name, whose in (("run", {"rank": "3"}), ("fleet", {"run": "gpt2"})):
        target = _expr(f"warmwatch-{name}: Ends A").filled(**VARIABLES)
        wanted = [{**whose, "end": "failed", "exit_code": "7"}]

        def found(target: str = target) -> list[dict[str, str]]:
            return [one["metric"] for one in query(prometheus, target)]

        wait_until(lambda found=found, wanted=wanted: found() == wanted)
