"""One definition for each number: every view of one real run shows the same."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser

from support.browser import chromium, visit
from support.daemon import daemon
from support.records import wait_until
from support.screens import screen
from support.trainings import result_of, run
from warmwatch.shared.phrases import took
from warmwatch.shared.values import NEW_INSTANCE
from warmwatch_monitor.commands.check.baseline import measured
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.report.goodput import LATER
from warmwatch_monitor.commands.terminal.reasons import reasons
from warmwatch_monitor.commands.terminal.table import functions, rows
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.sources.records.parsed_journal import parse_journal
from warmwatch_monitor.sources.records.source import RecordsSource

# An evaluation first, then training with a graph break. Then what PyTorch counts in its own way: a
# copy of a module, a batch in two parts, a function that reaches the recompile limit, one without a
# graph, Dynamo's reset. Then the batch size changes once. At the end a marked evaluation that
# compiles, and a save.
BODY = """
import copy, time, warmwatch
from warmwatch.pytest_plugin import compiles

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = make()

    def forward(self, x):
        return self.layers(x)

def forward_of(x):
    x = model(x)
    torch._dynamo.graph_break()
    return x * 2

def scaled(x, kind):
    return x + len(kind)

for limit in ("recompile_limit", "cache_size_limit"):  # the second until torch 2.6
    if hasattr(torch._dynamo.config, limit):
        setattr(torch._dynamo.config, limit, 3)
counted = compiles()
with counted:
    model = make(); o = torch.optim.SGD(model.parameters(), lr=.1)
    compiled = torch.compile(forward_of, backend="aot_eager")
    with torch.no_grad():
        compiled(torch.ones(4, 8))
    train(compiled, o, 6)
    net = Net(); ema = copy.deepcopy(net).requires_grad_(False)
    trained, averaged = (torch.compile(one, backend="aot_eager") for one in (net, ema))
    p = torch.optim.SGD(net.parameters(), lr=.1)
    for _ in range(4):
        for _ in range(2):
            trained(torch.randn(4, 8)).sum().backward()
        p.step(); p.zero_grad()
        averaged(torch.randn(4, 8))
    limited = torch.compile(scaled, backend="aot_eager")
    for kind in ("a", "bb", "ccc", "dddd", "eeeee", "dddd"):
        limited(torch.ones(2), kind)
    torch.compile(lambda: 3, backend="aot_eager")()  # has no graph
    torch._dynamo.reset()
    train(compiled, o, 5)
    train(compiled, o, 5, batch=7)
    with warmwatch.evaluating(), torch.no_grad():
        compiled(torch.ones(3, 8, requires_grad=True))
        time.sleep(0.2)
    with warmwatch.saving():
        time.sleep(0.1)
    train(compiled, o, 5, batch=7)
result([counted.graphs, counted.breaks, counted.recompiles, counted.fallbacks, counted.failures])
"""


class Numbers:
    """The value of each number in each view."""

    def __init__(self) -> None:
        self.by_name: defaultdict[str, dict[str, Any]] = defaultdict(dict)

    def say(self, view: str, **numbers: Any) -> None:
        for name, value in numbers.items():
            self.by_name[name][view] = value

    def check(self) -> None:
        for name, views in self.by_name.items():
            values = list(views.values())
            assert all(_same(value, values[0]) for value in values), (name, views)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str):
        return bool(one == other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(
        one == pytest.approx(other, rel=1e-6, abs=1e-6) if one is not None else other is None
    )


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return str(reply.read().decode())


def command(*words: str, **environ: str) -> str:
    done = CliRunner().invoke(cli, words, env={"COLUMNS": "200", **environ})
    assert not done.exception or isinstance(done.exception, SystemExit), done.output
    return done.output


def of_series(text: str, name: str, sums: str = "") -> float:
    """The value of a series, or its sum over the labels."""
    lines = [line for line in text.splitlines() if re.match(rf"warmwatch_{name}[{{ ]", line)]
    return sum(float(line.rpartition(" ")[2]) for line in lines if sums in line)


def of_status(numbers: Numbers, view: str, answer: dict[str, Any]) -> None:
    (rank,) = answer["runs"][0]["ranks"]
    compile = rank["compile"]
    numbers.say(
        view,
        compilations=compile["compilations"],
        graphs=compile["graphs"],
        graph_breaks=compile["graph_breaks"],
        recompiles=compile["recompiles"],
        after_warm=compile["recompiles_after_warm"],
        fallbacks=compile["fallbacks"],
        failures=compile["failures"],
        skips=compile["cudagraph_skips"],
        new_instances=compile["new_instances"],
        compile_seconds=compile["seconds"],
        phases=compile["phase_seconds"],
        steps=rank["steps"],
        of_functions={one["called"]: one["compilations"] for one in compile["functions"]},
        seconds_of_functions={one["called"]: one["seconds"] for one in compile["functions"]},
        phases_of_functions={one["called"]: one["phase_seconds"] for one in compile["functions"]},
        misses={one["called"]: one["cache_misses"] for one in compile["functions"]},
        breaks={one["reason"]: one["count"] for one in compile["breaks"]},
        costs={one["id"]: one["total_seconds"] for one in compile["last"] if one["category"]},
        warmup=rank["warmup"]["first"]["seconds"],
        evaluations=rank["pauses"]["evaluation_seconds"],
        saves=rank["pauses"]["checkpoint_seconds"],
        steady_step=rank["cost"]["steady_step_seconds"],
    )
    numbers.say(
        f"{view}, added up",
        compilations=sum(one["compilations"] for one in compile["functions"]),
        graph_breaks=sum(one["count"] for one in compile["breaks"]),
    )
    # one accounting: what the functions took is part of what the run did, phase by phase
    for phase, seconds in compile["phase_seconds"].items():
        parts = sum(one["phase_seconds"].get(phase, 0.0) for one in compile["functions"])
        assert parts <= seconds + 0.001 * len(compile["functions"]), phase
    whole = sum(sum(one["phase_seconds"].values()) for one in compile["functions"])
    assert whole >= 0.95 * compile["seconds"]


def of_check(records: Path) -> dict[str, Any]:
    """What the gate compares. Its command runs a training of its own, so this is its function."""
    reading = RecordsSource([str(records)], retention=3600).read()
    runs, _ = Judging().of(reading.records, OtherReadings(now_ns=time.monotonic_ns()), None)
    (record,) = reading.records
    causes = parse_journal(record.folder)
    (rank,) = measured(runs, {record.folder: causes})[0].ranks
    return {
        **{_OF_CHECK.get(name, name): count for name, count in rank.counts.items()},
        "compilations": sum(counts["compilations"] for counts in rank.functions.values()),
        "new_instances": sum(one.category == NEW_INSTANCE for one in causes.recompiles),
    }


_OF_CHECK = {"recompiles_after_warm": "after_warm", "cudagraph_skips": "skips"}


def of_page(numbers: Numbers, browser: Browser, url: str) -> None:
    """What a browser shows in the page's tables."""
    with visit(browser, url) as page:
        page.until("document.querySelector('#ranks [data-f=steps]')?.textContent !== ''")
        cells = {
            name: page.text(f"#ranks [data-f={name}]")
            for name in ("steps", "graphs", "breaks", "recompiles", "compile")
        }
        each = "(all) => all.map((one) => one.textContent)"
        found = {
            name: page.page.locator(f"#functions [data-f={name}]").evaluate_all(each)
            for name in ("name", "compilations")
        }
    numbers.say(
        "page",
        steps=_number(cells["steps"]),
        graphs=_number(cells["graphs"]),
        graph_breaks=_number(cells["breaks"]),
        recompiles=_number(cells["recompiles"]),
        compile_seconds_shown=cells["compile"],
        compilations=sum(map(_number, found["compilations"])),
        of_functions=dict(zip(found["name"], map(_number, found["compilations"]), strict=True)),
    )


def of_top(numbers: Numbers, answer: dict[str, Any]) -> None:
    """What stands on the screen of ``top``: the list of ranks, and the functions of one."""

    async def show() -> str:
        async with screen(lambda: answer, (160, 50)) as shown:
            await shown.press("e", "3")
            return shown.text

    text = asyncio.run(show())
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.split()[:2] == ["rank", "state"])
    head, row = lines[at], lines[at + 1]

    def cell(name: str) -> str:
        """Numbers stand right, below the end of their name."""
        end = head.index(name) + len(name)
        return row[:end].split()[-1]

    numbers.say(
        "top",
        steps=_number(cell("steps")),
        recompiles=_number(cell("recompiles")),
        graph_breaks=_number(cell("breaks")),
    )
    shown = [line for line in lines if re.search(r" \(\S+:\d+\) +\d+ ", line)]
    assert shown, text
    counts = [int(line.rpartition(")")[2].split()[0]) for line in shown]
    numbers.say("top, its functions", compilations=sum(counts))


def of_comparison(numbers: Numbers, run: str, *where: str, **environ: str) -> None:
    """The run and another one."""
    made = json.loads(command("compare", run, "other", "--json", *where, **environ))
    side = next(one for one in made["sides"] if one["run"] == run)
    numbers.say(
        "compare",
        graphs=side["graphs"],
        graph_breaks=side["graph_breaks"],
        recompiles=side["recompiles"],
        compile_seconds=side["compile_seconds"],
        steps=side["steps"],
        first_step=side["first_step_seconds"],
        steady_step=side["steady_seconds"],
        warmup=side["warmup_seconds"],
    )


def _number(shown: str) -> int:
    return int(shown.replace(",", ""))


def of_text(numbers: Numbers, view: str, text: str) -> None:
    """The prose of a report, as text or as HTML without its tags."""
    text = re.sub(r"\s+", " ", re.sub(r"<[^>\s][^>]*>", " ", text).replace("&#x27;", "'"))
    found = re.search(r"Compiling: \S+ \S+ in (\d+) compilations", text)
    broken = re.search(r"(\d+) graph breaks", text)
    assert found, text
    assert broken, text
    numbers.say(view, compilations=int(found[1]), graph_breaks=int(broken[1]))


@pytest.mark.first
def test_every_view_reports_the_same_numbers_of_one_run(records: Path, tmp_path: Path) -> None:
    numbers, where = Numbers(), ("--dir", str(records))
    counts = ("graphs", "graph_breaks", "recompiles", "fallbacks", "failures")
    numbers.say("pytest plugin", **dict(zip(counts, result_of(records, BODY), strict=True)))
    numbers.say("check", **of_check(records))
    state = {"WARMWATCH_STATE": "off"}
    with daemon(records) as url:
        wait_until(lambda: json.loads(get(f"{url}/status"))["runs"])
        answer, series = json.loads(get(f"{url}/status")), get(f"{url}/metrics")
        with chromium() as browser:
            of_page(numbers, browser, url)
    of_top(numbers, answer)
    of_status(numbers, "page and /status", answer)
    of_status(numbers, "status --json", json.loads(command("status", "--json", *where, **state)))

    (rank,) = answer["runs"][0]["ranks"]
    (cells,) = rows(answer["runs"], answer["at"], every_rank=True)
    numbers.say(
        "status and top",
        recompiles=int(cells["recompiles"]),
        graph_breaks=int(cells["breaks"]),
        steps=int(cells["steps"]),
    )
    table = functions(answer["runs"], 200)
    assert table[1].split()[:2] == ["function", "count"]
    of_each = table[2 : 2 + len(rank["compile"]["functions"])]
    assert [row.split("  ")[0].strip() for row in of_each] == [
        one["called"] for one in rank["compile"]["functions"]
    ]
    counts = [int(row.split(")")[1].split()[0]) for row in of_each]
    found = (row.split(" graph break") for row in table[2 + len(of_each) :])
    broken = [int(count) for count, *rest in found if rest]
    numbers.say("status --functions", compilations=sum(counts), graph_breaks=sum(broken))
    numbers.say(
        "/status, as the page shows it", compile_seconds_shown=took(rank["compile"]["seconds"])
    )
    lasted = [one["total_seconds"] for one in rank["compile"]["last"] if one["category"]]
    output = " ".join(words for words, _ in reasons(answer["runs"], most=9))
    shown = re.findall(r"recompiled in (\S+ \S+) \(", output)  # each reason once
    assert shown
    assert set(shown) <= {took(seconds) for seconds in lasted}

    made = json.loads(command("report", "--json", *where, **state))
    (made,) = made if isinstance(made, list) else [made]
    times = [one for function in made["functions"] for one in function["times"]]
    numbers.say(
        "report --json",
        compilations=made["compilations"],
        graphs=made["graphs"],
        graph_breaks=made["graph_breaks"],
        recompiles=made["recompiles"],
        after_warm=made["recompiles_after_warm"],
        fallbacks=made["fallbacks"],
        failures=made["failures"],
        skips=made["cudagraph_skips"],
        compile_seconds=made["compile_seconds"],
        phases=made["phases"],
        steps=made["steps"],
        breaks={one["reason"]: one["count"] for one in made["breaks"]},
        costs={one["id"]: one["seconds"] for one in times if one["category"]},
        warmup=made["warmup_seconds"],
    )
    shares = {one["name"]: one["seconds"] for one in made["goodput"]["shares"]}
    in_evaluations = made["goodput"]["evaluation_compile_seconds"]
    assert in_evaluations > 0
    numbers.say(
        "report, where the time went",
        warmup=shares["warm-up"],
        evaluations=shares["evaluation"] + in_evaluations,
        saves=shares["saving"],
    )
    numbers.say("report, what compiling cost", warmup=made["costs"][0]["seconds"])
    last = {one["id"] for one in rank["compile"]["last"] if one["category"]}
    numbers.by_name["costs"]["report --json"] = {
        one["id"]: one["seconds"] for one in times if one["id"] in last
    }
    numbers.say(
        "report, its functions",
        compilations=sum(one["compilations"] for one in made["functions"]),
        recompiles=sum(one["count"] for one in made["recompiled"]),
        new_instances=sum(
            one["count"] for one in made["recompiled"] if one["category"] == NEW_INSTANCE
        ),
    )
    costs = {one["what"]: one["seconds"] for one in made["costs"]}
    numbers.say("report, where the time went", after_warm_seconds=shares[LATER])
    numbers.say("report, what compiling cost", after_warm_seconds=costs[LATER])
    for key, name in (
        ("of_functions", "compilations"),
        ("seconds_of_functions", "seconds"),
        ("phases_of_functions", "phase_seconds"),
        ("misses", "cache_misses"),
    ):
        by_line = {(one["name"], one["line"]): one[name] for one in made["functions"]}
        named = {(o["name"], o["line"]): o["called"] for o in rank["compile"]["functions"]}
        numbers.by_name[key]["report"] = {named[at]: value for at, value in by_line.items()}
    of_text(numbers, "report", command("report", "-v", *where, **state))
    command("report", "--html", str(tmp_path / "report.html"), *where, **state)
    of_text(numbers, "report --html", (tmp_path / "report.html").read_text())

    numbers.say(
        "metrics",
        compilations=of_series(series, "compilations_total"),
        graphs=of_series(series, "graphs_total"),
        graph_breaks=of_series(series, "graph_breaks_total"),
        recompiles=of_series(series, "recompiles_total"),
        after_warm=of_series(series, "recompiles_after_warm_total"),
        fallbacks=of_series(series, "compile_fallbacks_total"),
        failures=of_series(series, "compile_failures_total"),
        skips=of_series(series, "cudagraph_skips_total"),
        new_instances=of_series(series, "recompiles_total", f'category="{NEW_INSTANCE}"'),
        compile_seconds=of_series(series, "compile_seconds_total"),
        steps=of_series(series, "steps_total"),
        warmup=of_series(series, "first_warmup_seconds"),
        evaluations=of_series(series, "evaluation_seconds_total"),
        saves=of_series(series, "checkpoint_seconds_total"),
        steady_step=of_series(series, "steady_step_seconds"),
    )
    command("export", "--csv", str(tmp_path / "csv"), *where, **state)
    with (tmp_path / "csv" / "compilations.csv").open() as file:
        lines = [one for one in csv.DictReader(file) if one["at_limit"] == "False"]
    numbers.say(
        "export",
        compilations=len([one for one in lines if one["kind"] in ("forward", "backward")]),
        recompiles=len([one for one in lines if one["category"]]),
        new_instances=len([one for one in lines if one["category"] == NEW_INSTANCE]),
    )
    run(records, BODY, env={"WARMWATCH_RUN": "other"})
    of_comparison(numbers, made["run"], *where, **state)
    first, steady = rank["step_seconds"]["first"], rank["step_seconds"]["typical"]
    numbers.say("/status of a step", first_step=first, steady_step=steady)
    numbers.check()
    assert numbers.by_name["compilations"]["metrics"] > 4
    # what is easily counted otherwise is there
    compile = rank["compile"]
    assert (compile["fallbacks"], compile["new_instances"]) == (1, 1)
    forward = [one for one in times if "forward" in one["kinds"] and not one["at_limit"]]
    assert compile["graphs"] < len(forward)
    assert sum(one["at_limit"] for one in made["recompiled"]) == 1
