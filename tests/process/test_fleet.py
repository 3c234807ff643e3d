"""A run over two hosts: two daemons, one Prometheus, and `warmwatch status --prometheus`."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support import dashboards
from support.daemon import completed, daemon
from support.prometheus import prometheus_process, query
from support.records import compiling, ended, held, wait_until, warm, write_record
from support.values import replace
from warmwatch.shared.record import Slot
from warmwatch_monitor.figures.rank import LimitedBy
from warmwatch_monitor.metrics import render
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.output.summary import details_of

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
  - job_name: warmwatch
    static_configs: [{{targets: {targets}}}]
"""


STEPS = (36_000_000, 35_000_000, 36_500_000, 41_000_000)


def hosts() -> tuple[list[Slot], list[Slot]]:
    """The records of two hosts, each with a part of the ranks of most runs."""
    # "g" is short: the sentence has room for what differs between ranks, whichever way it is read
    gpt2, mixed = ([_rank(run, rank) for rank in range(4)] for run in ("g", "mixed"))
    gpt2[2], mixed[2] = _recompiled(gpt2[2]), _recompiled(mixed[2])
    mixed[3] = compiling("mixed", rank=3, world_size=4)
    half = [_rank("half", rank) for rank in (0, 1)]
    gone = ended(warm("moved"), "failed")
    header = replace(
        gone.header,
        attached_ns=gone.header.attached_ns - 10**9,
        attached_epoch_ns=gone.header.attached_epoch_ns - 10**9,
    )
    one = [*gpt2[:2], *mixed[:2], *half, replace(gone, header=header)]
    return one, [*gpt2[2:], *mixed[2:], warm("moved", attempt=1), compiling("other")]


def _rank(run: str, rank: int) -> Slot:
    return replace(warm(run, rank=rank, world_size=4), clean_bins=b.bins(*STEPS))


def _recompiled(slot: Slot) -> Slot:
    return replace(
        slot, compile=replace(slot.compile, recompiles_by_category=b.categories(shape=2))
    )


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A Prometheus over a daemon for each host, and one daemon that reads all records."""
    folder = tmp_path_factory.mktemp("fleet")
    one, other = hosts()
    with ExitStack() as stack:
        urls = []
        for name, slots in (("one", one), ("other", other), ("whole", [*one, *other])):
            directory = folder / name
            for number, slot in enumerate(slots):
                record = write_record(directory, slot, name=str(number))
                if not slot.compile.end_code:
                    stack.enter_context(held(record))
            urls.append(stack.enter_context(daemon(directory)))
        *scraped, whole = urls
        config = CONFIG.format(targets=json.dumps([url.removeprefix("http://") for url in scraped]))
        prometheus = stack.enter_context(prometheus_process(folder, config))
        ranks = len(one) + len(other)
        wait_until(lambda: len(query(prometheus, "warmwatch_steps_total")) == ranks)
        yield prometheus, whole


def summary(url: str, run: str) -> str:
    with urllib.request.urlopen(f"{url}/status?run={run}", timeout=60) as reply:
        return str(json.load(reply)["summary"])


def timeless(sentence: str) -> str:
    """Without durations that grow between two queries, and without what needs more than series
    (docs/how-to/many-hosts.md): the time left, and whether a compiler of another kind works.
    """
    sentence = sentence.replace("PyTorch compiles nothing", "nothing compiles")
    sentence = re.sub(
        r"; (last time|another rank took|longer than (last time|another rank)) [^;]*", "", sentence
    )
    return re.sub(r"(for|in the) [\d.]+ (ms|s|min)\b", r"\1 some time", sentence)


@pytest.mark.parametrize(("run", "code"), [("mixed", 3), ("g", 0)])
def test_prometheus_gives_the_sentences_of_one_daemon_with_all_ranks(
    fleet: tuple[str, str], run: str, code: int
) -> None:
    """Sentence, states and counts, for ranks 0 and 1 on one host and 2 and 3 on another."""
    prometheus, whole = fleet
    output = completed("status", run, "--prometheus", prometheus, "--json")
    answer = json.loads(output.stdout)
    expected = summary(whole, run)
    assert timeless(answer["summary"]) == timeless(expected)
    assert output.returncode == code
    (found,) = answer["runs"]
    assert (found["world_size"], found["missing_ranks"]) == (4, [])
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    assert found["ranks"][2]["compile"]["recompiles"] == 2
    assert found["ranks"][0]["step_seconds"]["p99"] is None  # no series tells
    plain = completed("status", run, "--prometheus", prometheus)
    assert timeless(plain.stdout.splitlines()[0]) == timeless(expected)


def test_ranks_on_a_host_that_is_not_scraped_are_missing(fleet: tuple[str, str]) -> None:
    output = completed("status", "half", "--prometheus", fleet[0])
    assert "2 of 4 ranks (ranks 2-3) are not seen here" in output.stdout


def test_a_rank_that_restarts_on_another_host_has_its_own_state(fleet: tuple[str, str]) -> None:
    answer = json.loads(completed("status", "moved", "--prometheus", fleet[0], "--json").stdout)
    assert [run["state"] for run in answer["runs"]] == ["warm"]


def test_an_unknown_run_and_an_address_without_prometheus_are_reported_in_one_line(
    fleet: tuple[str, str], tmp_path: Path
) -> None:
    prometheus, whole = fleet
    unknown = completed("status", "bert", "--prometheus", prometheus)
    assert unknown.returncode == 5
    known = "g, half, mixed, moved, other"
    assert unknown.stderr == f"warmwatch: no run named 'bert'; runs here: {known}\n"
    for url in (whole, "http://127.0.0.1:1"):
        other = completed("status", "--prometheus", url)
        assert (other.returncode, other.stderr.count("\n")) == (6, 1)
        assert "give the address of a Prometheus server" in other.stderr
    assert completed("status", "--prometheus", "localhost:9090").returncode == 2
    both = completed("status", "--prometheus", "http://127.0.0.1:1", "--dir", str(tmp_path))
    assert (both.returncode, "give one" in both.stderr) == (2, True)


def test_wait_accepts_a_name_or_a_pattern_for_a_run_on_two_hosts(fleet: tuple[str, str]) -> None:
    def wait(*words: str) -> tuple[int, str]:
        done = completed("wait", *words)
        return done.returncode, done.stdout + done.stderr

    prometheus, _ = fleet
    for run in ("g", "g*"):
        code, output = wait(run, "--prometheus", prometheus, "--timeout", "60")
        assert (code, output.startswith("g: ")) == (0, True), output
    code, output = wait("other", "--prometheus", prometheus, "--timeout", "0.1")
    assert (code, "not warm after 0.1 s: other: " in output) == (124, True), output
    code, output = wait("g", "--prometheus", "http://127.0.0.1:1", "--timeout", "60")
    assert (code, "does not answer as Prometheus: Connection refused;" in output) == (6, True)


class Metrics(BaseHTTPRequestHandler):
    """Serves what a daemon of a service would."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """In silence."""


@contextmanager
def scraped(folder: Path, *views: RankView, only: tuple[str, ...] = ()) -> Iterator[str]:
    """A Prometheus with the rules over a daemon that shows these ranks.

    ``only``: the begins of its series.
    """
    body: bytes = render(b.snapshot(*views), None)[0]
    if only:
        heads = tuple(name.encode() for name in only)
        body = b"".join(line for line in body.splitlines(True) if line.startswith(heads))
    handler = type("Handler", (Metrics,), {"body": body})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            config = CONFIG.format(targets=json.dumps([f"127.0.0.1:{server.server_port}"]))
            with prometheus_process(folder, config, *dashboards.RULES) as url:
                wait_until(lambda: len(query(url, "warmwatch_steps_total")) == len(views))
                yield url
        finally:
            server.shutdown()
            thread.join()


def test_a_name_selects_the_runs_of_every_user(tmp_path: Path) -> None:
    """A daemon of a service has each run's owner behind its name."""
    labels = ("gpt2", "gpt2@alice", "gpt2@bob", "gpt2@alice@bob", "gpt2-large@alice")
    with scraped(tmp_path, *(b.in_every_state(run)["warm"] for run in labels)) as prometheus:
        for requested, runs in (
            ("gpt2", {"gpt2", "gpt2@alice", "gpt2@bob"}),
            ("gpt2-large", {"gpt2-large@alice"}),
            ("gpt2@alice", {"gpt2@alice"}),
            ("gpt2@alice@bob", {"gpt2@alice@bob"}),
            ("*@alice", {"gpt2@alice", "gpt2-large@alice"}),
        ):
            output = completed("status", requested, "--prometheus", prometheus, "--json")
            assert {run["run"] for run in json.loads(output.stdout)["runs"]} == runs, requested
        waited = completed("wait", "gpt2-large", "--prometheus", prometheus)
        assert (waited.returncode, waited.stderr) == (0, "")


OF_A_RANK = (
    *("warmwatch_state{", "warmwatch_limited_by{", "warmwatch_limited_share_ratio{"),
    *("warmwatch_steps_total{", "warmwatch_recent_step_seconds{", "warmwatch_world_size{"),
)


@pytest.mark.long
def test_the_rank_that_a_thousand_wait_for_is_named(tmp_path: Path) -> None:
    """No daemon sees all ranks: each of them waits on its own host."""
    waits = LimitedBy(verdict="communication", share=0.7)
    slow = LimitedBy(verdict="input", share=0.6)
    views = [
        replace(b.view(b.as_rank(b.WARM, rank, 1000)), limited_by=slow if rank == 617 else waits)
        for rank in range(1000)
    ]
    with scraped(tmp_path, *views, only=OF_A_RANK) as prometheus:
        runs: list[Any] = []

        def answered() -> bool:
            """See ``slowest``: there may be no series at a moment."""
            done = completed("status", "--prometheus", prometheus, "--json")
            runs[:] = json.loads(done.stdout)["runs"]
            return bool(runs)

        wait_until(answered)
        (run,) = runs
        assert len(run["ranks"]) == 1000
        assert run["ranks"][0]["limited_by"]["evidence"] == [
            "waits for rank 617, which input limits"
        ]
        assert run["limited_by"]["verdict"] == "input"
        sentence = "; ".join([run["summary"], *details_of(run)])
        assert "the other 999 ranks wait for rank 617" in sentence
        assert slowest(prometheus) == ("617", pytest.approx(0.7))


@pytest.mark.parametrize("ranks", [2, 20])
def test_the_dashboard_names_the_rank_with_the_longest_step(tmp_path: Path, ranks: int) -> None:
    """Ranks that do not wait for each other in each step."""
    views = [b.view(b.as_rank(b.WARM, rank, ranks)) for rank in range(ranks)]
    seconds = views[1].figures.steps.length
    assert seconds
    steps = replace(views[1].figures.steps, recent=1.12 * seconds)
    views[1] = replace(views[1], figures=replace(views[1].figures, steps=steps))
    with scraped(tmp_path, *views, only=OF_A_RANK) as prometheus:
        usual = 1.06 if ranks == 2 else 1.0
        assert slowest(prometheus) == ("1", pytest.approx(1.12 / usual - 1))


def slowest(prometheus: str) -> tuple[str, float]:
    """The rank in the fleet dashboard's table, and by how much of a step it is slower."""
    (requested,) = (one for one in dashboards.queries() if "Slowest rank to train" in one.where)
    expression = requested.filled(cluster=".*", node=".*", rows="50")
    answers: list[Any] = []

    def answered() -> bool:
        """A scrape that takes more than a second leaves no series until the next."""
        answers[:] = query(prometheus, expression)
        return bool(answers)

    wait_until(answered)
    (found,) = answers
    return found["metric"]["rank"], float(found["value"][1])
