"""What each function cost: folded from a journal, in /status, and as a table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from support import builders as b
from support.documents import status
from support.records import live_slot, write_record
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.commands.status import status as status_command
from warmwatch_monitor.commands.terminal.table import functions as table
from warmwatch_monitor.model.journal import Compilation, Cost
from warmwatch_monitor.model.records import FunctionCost
from warmwatch_monitor.sources.records.folder import Folder
from warmwatch_monitor.sources.records.followed_record import Journal
from warmwatch_monitor.sources.records.journal_sums import MOST, Functions

FORWARD = {
    "t": 5,
    "event": "compilation",
    "kind": "forward",
    "id": "0/0",
    "seconds": 10.0,
    "name": "forward",
    "file": "model.py",
    "line": 31,
    "cache": "miss",
    "ops": 120,
    "guards": 31,
    "guard_us": 117,
    "kernels": 86,
    "phase_us": {"dynamo": 1_000_000, "inductor": 9_000_000, "a new one": 5},
    "slowest": [["triton_poi_fused_add_0", 2_000_000], ["triton_red_fused_1", 1_000_000]],
    "allocated": 100,
    "reserved": 200,
}
BACKWARD = {
    **{key: FORWARD[key] for key in ("event", "id")},
    "t": 6,
    "kind": "backward",
    "seconds": 20.0,
    "cache": "hit",
    "kernels": 14,
    "phase_us": {"inductor": 20_000_000},
    "slowest": [["triton_poi_fused_mul_3", 1_500_000], ["triton_poi_fused_mul_4", 5]],
    "allocated": 150,
}


def read(folder: Path, *lines: dict[str, Any]) -> Journal:
    place = write_record(folder, live_slot(), events=lines)
    journal = Journal()
    with Folder(str(place)) as opened:
        journal.follow(opened)
    return journal


def test_a_function_has_all_of_its_compilations_including_the_backward(tmp_path: Path) -> None:
    again = {**FORWARD, "id": "0/1", "seconds": 2.0, "ops": 130, "failure": "Broken"}
    (one,) = read(tmp_path, FORWARD, BACKWARD, again).sums.functions.most_expensive
    assert (one.name, one.file, one.line, one.others) == ("forward", "model.py", 31, 0)
    assert (one.compilations, one.failures, one.seconds) == (3, 1, 32.0)
    assert (one.cache_hits, one.cache_misses) == (1, 2)
    assert one.cost == Cost(
        phase_seconds={"dynamo": 2.0, "inductor": 38.0},
        ops=130,
        guards=31,
        guard_seconds=117 / 1e6,
        kernels=186,
        slowest=(
            *(("triton_poi_fused_add_0", 2.0), ("triton_poi_fused_add_0", 2.0)),
            ("triton_poi_fused_mul_3", 1.5),
        ),
        allocated=100,
        reserved=200,
    )


def test_stored_functions_are_bounded_and_the_others_summed() -> None:
    folded = Functions()
    for n in range(MOST + 40):
        folded.fold(
            Compilation(id=f"{n}/0", kind="forward", at_ns=n, seconds=float(n), name=f"f{n}")
        )
    *retained, rest = folded.most_expensive
    assert [one.name for one in retained] == [f"f{n}" for n in range(MOST + 39, 39, -1)]
    assert (rest.name, rest.others, rest.compilations) == (None, 40, 40)
    total = sum(one.seconds for one in folded.most_expensive)
    assert math.isclose(total, sum(range(MOST + 40)))
    assert folded.most_expensive is folded.most_expensive


def rank_with(*costs: FunctionCost) -> dict[str, Any]:
    answer = status(b.snapshot(b.view(b.WARM, journal={"functions": costs})))
    return json.loads(json.dumps(answer))["runs"][0]  # type: ignore[no-any-return]


MODEL = FunctionCost(
    name="forward",
    file="model.py",
    line=31,
    compilations=3,
    seconds=32.0,
    cache_hits=1,
    cache_misses=2,
    cost=Cost(phase_seconds={"dynamo": 2.0, "inductor": 38.0}, ops=130, kernels=186),
)


def test_status_has_the_ten_most_expensive_functions_and_the_sum_of_the_others() -> None:
    long = FunctionCost(name="a_function_with_a_rather_long_name", file="quite_a_module.py", line=9)
    run = rank_with(MODEL, long, *[FunctionCost(name=f"f{n}", seconds=1.0) for n in range(20)])
    reported = run["ranks"][0]["compile"]["functions"]
    assert [one["name"] for one in reported[:3]] == ["forward", long.name, "f0"]
    assert len(reported) == 11
    assert (reported[-1]["others"], reported[-1]["seconds"]) == (12, 12.0)
    assert table([run], 80)[-1].split() == ["12", "others", "0", "12", "s", *"----"]
    title, head, first, second, numbers, *_ = table([run], 80)
    assert title == "gpt2, rank 0: what each function cost to compile"
    assert head.split() == ["function", "count", "took", "mostly", "ops", "kernels", "cached"]
    assert first.split() == [
        *("forward", "(model.py:31)", "3", "32", "s", "inductor", "95", "%"),
        *("130", "186", "1/3"),
    ]
    assert second == f"{long.name} (quite_a_module.py:9)", "whole, on a line of its own"
    assert numbers.split()[0] == "0"
    assert max(map(len, table([run], 80))) <= 80
    assert table([run], 120)[3].startswith(f"{long.name} (quite_a_module.py:9)")


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    write_record(tmp_path, live_slot(), events=[FORWARD, BACKWARD])
    ran = CliRunner().invoke(status_command, ["--functions", "--dir", str(tmp_path)])
    assert ran.exit_code != 2, ran.output
    assert "gpt2, rank 0: what each function cost to compile\n" in ran.output
    assert ran.output.splitlines()[-1].startswith("forward (model.py:31)")
    both = CliRunner().invoke(status_command, ["--functions", "--watch", "--dir", str(tmp_path)])
    assert isinstance(both.exception, UsageError)


def test_the_table_reports_that_no_data_exists() -> None:
    run = rank_with()
    run["ranks"][0]["compile"]["functions"] = None
    assert table([run], 80) == ["gpt2: what each function cost is not known here"]


def test_the_table_reports_that_no_function_has_compiled() -> None:
    """So it is in the first compilation, of an eager run, and of one with other compilers."""
    run = rank_with()
    run["ranks"][0]["compile"]["functions"] = []
    assert table([run], 80) == ["gpt2: no compilation of a function has ended"]
