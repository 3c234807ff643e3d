"""``report``, ``compare`` and ``export`` through the command line, of records on disk."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from support import builders as b
from support import reported as a
from support import stored_runs
from support.browser import chromium, violations
from support.builders import EPOCH
from support.records import held, warm, write_record
from support.values import replace
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.client import summaries
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.command import traced
from warmwatch_monitor.commands.report.html import html
from warmwatch_monitor.commands.report.wording import page as page_of
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.run_summary import RunSummary
from warmwatch_monitor.output.console import plain


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": "80", **environ})


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Two runs that have ended long ago."""
    for name in ("gpt2", "other"):
        slot = warm()
        slot = replace(slot, identity=replace(slot.identity, run=name))
        line = {
            "t": time.monotonic_ns(),
            "event": "compilation",
            "kind": "forward",
            "id": "0/0",
            "seconds": 12.5,
            "name": "forward",
            "file": "model.py",
            "line": 31,
        }
        write_record(tmp_path / "records", slot, name=name, events=[line])
    return str(tmp_path / "records")


def test_a_report_is_of_the_named_run(directory: str) -> None:
    done = run("report", "gpt2", "-v", "--dir", directory)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("gpt2: ")
    assert "Where the time went" in done.output
    assert "12.5 s" in done.output


def test_a_report_of_a_living_run_has_the_sentence_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen the run for longer than one poll."""
    slower = "gpt2: warm but slower: 400 ms a step (36 ms before, 11x)"
    of_these = {"WARMWATCH_DIR": str(tmp_path)}
    with held(write_record(tmp_path, warm())):
        answer = json.loads(run("status", "--json", **of_these).stdout)
        answer["runs"][0]["summary"] = slower
        monkeypatch.setattr(summaries, "from_daemon", lambda _: (answer, None))
        assert run("report", **of_these).stdout.startswith(f"{slower}\n")
        assert slower not in run("report", "--dir", str(tmp_path)).stdout
        answer["runs"][0]["state"] = "compiling"  # it has changed since
        assert slower not in run("report", **of_these).stdout


def test_a_daemon_replaces_no_other_start_and_no_fact_that_only_the_history_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was restarted, so it has measured less; a run's name may be used again."""
    energy = {"compile_joules": 700.0, "covered_seconds": 100.0}
    before = replace(a.run_summary(b.view(b.WARM), answers={"energy": energy}), seen=time.time())
    before = msgspec.json.decode(msgspec.json.encode(before), type=RunSummary)  # as it is stored
    environ = {"WARMWATCH_STATE": str(tmp_path / "state"), "WARMWATCH_DIR": str(tmp_path)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    Store(load_history_settings(environ)).save([before])
    less = {"compile_joules": 1.0, "covered_seconds": 1.0}
    rank = {**before.ranks[0].answer, "steps": 999, "energy": less}
    run = {"run": before.run, "owner": before.owner, "state": "warm", "summary": "gpt2: slower"}
    monkeypatch.setattr(
        summaries, "from_daemon", lambda _: ({"runs": [{**run, "ranks": [rank]}]}, 0)
    )
    (found,) = summaries.run_summaries(("gpt2",))
    answer = found.ranks[0].answer
    assert (found.summary, answer["steps"]) == ("gpt2: slower", 999)
    assert answer["energy"] == energy
    rank["attached_at"] += 1.0  # it started again
    assert summaries.run_summaries(("gpt2",)) == (before,)


def test_json_markdown_and_html_agree(directory: str, tmp_path: Path) -> None:
    document = json.loads(run("report", "gpt2", "--json", "--dir", directory).output)
    assert document["schema_version"] == 1
    assert document["functions"][0]["seconds"] == 12.5
    assert (
        "## Warmwatch report: gpt2"
        in run("report", "gpt2", "--markdown", "--dir", directory).output
    )
    file = tmp_path / "report.html"
    done = run("report", "gpt2", "--html", str(file), "--dir", directory)
    assert done.exit_code == 0, done.output
    assert document["summary"] in file.read_text()


def test_links_to_tlparse_are_relative_to_the_html_file(tmp_path: Path) -> None:
    """The names are those that tlparse 0.4.3 writes; a restarted compilation has two."""
    parsed = tmp_path / "tl out"
    parsed.mkdir()
    names = ("[-/-]", "[0/0]", "[0/1]", "[0/1_1]")
    (parsed / "compile_directory.json").write_text(json.dumps({name: {} for name in names}))
    found = traced(str(parsed), str(tmp_path / "report.html"))
    assert found["0/0"] == "tl%20out/index.html#%5B0/0%5D"
    assert found["0/1"] == "tl%20out/index.html#%5B0/1_1%5D"


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("report", "nobody"), 5, "no run named 'nobody'"),
        (("report", "gpt2", "--json", "--markdown"), 2, "give only one of"),
        (("report", "gpt2", "--html"), 2, "--html needs a file to write: --html report.html"),
        (("report", "*"), 2, "give one of them"),
        (("report", "gpt2", "--html", "/nowhere/x.html"), 1, "name another file"),
        (("report", "gpt2", "--tlparse", "out"), 2, "--tlparse needs --html FILE"),
        (("report", "gpt2", "--html", "-", "--tlparse", "/nowhere"), 1, "write it with: tlparse"),
        (("compare", "gpt2"), 2, "give 2 to"),
        (("compare", "gpt2", "gpt2"), 2, "names 1: gpt2; gpt2~1 is the start before it"),
        (("compare", "gpt2", "nobody"), 5, "no run named"),
        (("export", "gpt2"), 2, "nothing to write"),
        (("export", "gpt2", "--csv", "-"), 2, "give a directory, not -"),
        (("export", "gpt2", "--perfetto", "/nowhere/x.json"), 1, "name another place"),
        (("export", "gpt2", "--perfetto", "/dev/full"), 1, "/dev/full cannot be written (No space"),
    ],
)
def test_a_wrong_request_is_one_line(
    directory: str, words: tuple[str, ...], code: int, expected: str
) -> None:
    done = run(*words, "--dir", directory)
    assert done.exit_code == code
    assert expected in done.output
    assert len(done.output.splitlines()) == 1


def test_without_any_record_there_is_no_report(tmp_path: Path) -> None:
    done = run("report", "--dir", str(tmp_path))
    assert (done.exit_code, "No run found" in done.output) == (5, True)


def test_runs_are_compared_and_exported(directory: str, tmp_path: Path) -> None:
    done = run("compare", "gpt2", "other", "--dir", directory)
    assert done.exit_code == 0, done.output
    assert "Side by side" in done.output
    trace = tmp_path / "trace.json"
    assert run("export", "gpt2", "--perfetto", str(trace), "--dir", directory).exit_code == 0
    assert json.loads(trace.read_text())["traceEvents"]
    one = tmp_path / "compilations.csv"
    assert run("export", "gpt2", "--csv", str(one), "--dir", directory).exit_code == 0
    assert "model.py" in one.read_text()


def test_a_run_without_records_is_reported_from_the_history(tmp_path: Path) -> None:
    state = {"WARMWATCH_STATE": str(tmp_path / "state"), "WARMWATCH_DIR": str(tmp_path)}
    state["WARMWATCH_STATE_DAYS"] = "36500"  # they are of a fixed day
    before = a.finished(id="aaaaaaaa", run="gpt2", began=EPOCH - 9000)
    Store(load_history_settings(state)).save([before, a.finished()])
    for name in ("gpt2", "k3nuf63p", "k3n"):
        document = json.loads(run("report", name, "--json", **state).output)
        assert document["id"] == "k3nuf63p"
        assert document["recompiled"][0]["seconds"] == 14.0
    assert json.loads(run("report", "--json", **state).output)["id"] == "k3nuf63p"
    done = run("compare", "gpt2", "gpt2~1", **state)
    assert done.exit_code == 0, done.output
    assert "gpt2 (aaaaaaaa)" in done.output
    lives = a.finished(id="cccccccc", run="lives", ended=None, state="warm")
    Store(load_history_settings(state)).save([a.finished(id="bbbbbbbb", run="job[1]"), lives])
    for name in ("gpt2", "'job[1]'"):  # a pattern too
        gone = run("status", name.strip("'"), **state)
        assert (gone.exit_code, gone.stderr) == (0, ""), gone.output
        words = " ".join(gone.stdout.split())
        assert words.startswith("gpt2: finished"), words  # the stored sentence
        assert re.search(rf"; it ended [0-9 a-z]+ ago: warmwatch report {re.escape(name)} ", words)
        assert run("status", name.strip("'"), "--json", **state).exit_code == 5
    gone = run("status", "lives", **state)  # one with records elsewhere
    assert gone.exit_code == 5
    assert "; the history has it: warmwatch report lives" in gone.output
    assert "ended" not in gone.output
    hung = run("stacks", "gpt2", **state)
    assert hung.exit_code == 1
    assert "no rank is alive: gpt2: finished" in hung.output
    assert "the history has it" not in run("status", "gpt3", **state).output
    nobody = run("report", "gpt3", **state)
    assert (nobody.exit_code, "did you mean gpt2" in nobody.output) == (5, True)


def test_the_start_before_is_counted_from_the_one_that_is_still_there(
    directory: str, tmp_path: Path
) -> None:
    """Which no daemon has remembered."""
    state = {"WARMWATCH_STATE": str(tmp_path / "state"), "WARMWATCH_DIR": directory}
    state["WARMWATCH_STATE_DAYS"] = "36500"
    before = [a.finished(id=id, began=EPOCH - ago) for id, ago in (("earlier", 300), ("old", 900))]
    store = Store(load_history_settings(state))
    store.save(before)

    def reported(name: str) -> str:
        return str(json.loads(run("report", name, "--json", **state).output)["id"])

    last = reported("gpt2")
    assert [reported("gpt2~1"), reported("gpt2~2")] == ["earlier", "old"]
    store.save([replace(before[0], id=last, began=EPOCH)])
    assert [reported("gpt2~1"), reported("gpt2~2")] == ["earlier", "old"]
    fewer = run("report", "gpt2~3", **state)
    assert (fewer.exit_code, "the history has fewer runs named 'gpt2'; " in fewer.output) == (
        5,
        True,
    )
    assert "no run named" not in fewer.output


def test_an_unreadable_history_affects_only_its_own_part(directory: str, tmp_path: Path) -> None:
    (tmp_path / "history.db").write_text("something else" * 100)
    for name in ((), ("gpt2",)):
        done = run("report", *name, WARMWATCH_STATE=str(tmp_path), WARMWATCH_DIR=directory)
        assert done.exit_code == 0, done.output
        assert "All of it: warmwatch report" in done.output
        assert "without the history" in done.output


@pytest.mark.slow
def test_a_damaged_run_of_the_history_is_an_error_only_if_needed(tmp_path: Path) -> None:
    """Its answer lacks what a report needs, but nothing that the next run is compared with."""
    state, empty = tmp_path / "state", str(tmp_path / "none")
    environ = {"WARMWATCH_STATE": str(state), "WARMWATCH_DIR": empty}
    known = {"run": "gpt2", "owner": "alice", "host": "node1", "what": a.H100}
    broken = stored_runs.run_summary("broken11", **known, began=EPOCH - 2000, seen=EPOCH - 1000)
    (rank,) = broken.ranks
    broken = replace(broken, ranks=(replace(rank, compiled=a.TWICE),))
    whole = a.finished(id="whole111", **known)
    stored_runs.store(state).save([broken, whole])
    for command in (("report",), ("compare", "whole111"), ("export", "--csv", str(tmp_path))):
        done = run(command[0], "broken11", *command[1:], **environ)
        assert done.exit_code == 1
        output = done.output.replace("\n", " ")
        assert "run 'gpt2' (broken11) is damaged, or of another warmwatch: rank 0, " in output
    done = run("report", "whole111", "-v", **environ)
    assert done.exit_code == 0, done.output
    assert "Where the time went" in done.output
    assert "Compared with gpt2 of " in done.output


@pytest.mark.slow
def test_the_file_makes_no_requests_and_runs_no_scripts(tmp_path: Path) -> None:
    """As a browser has it, in both schemes and on paper."""
    evil = "<script>document.title = 'x'</script><img src=http://a.invalid/>"
    account = a.finished(
        run=evil, summary=evil, samples=a.steps(), gpu_samples={"GPU-1": a.power()}
    )
    made = plain(report(account))
    file = tmp_path / "report.html"
    file.write_text(html(page_of(made), made, account), encoding="utf-8")
    requests, output, grounds = [], [], []
    with chromium() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_context(color_scheme=scheme).new_page()
            page.on("request", lambda one: requests.append(one.url))
            page.on("console", lambda one: output.append(one.text))
            page.goto(file.as_uri())
            assert evil in page.inner_text("#summary")
            assert page.locator("svg[aria-label]").count() == 4
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.pdf()
        page.emulate_media(media="print")
        size = "(one) => parseFloat(getComputedStyle(one).fontSize)"
        text, remark = (page.eval_on_selector(one, size) for one in ("body", ".remark"))
        assert 8 < remark < text
    assert {one for one in requests if not one.startswith("data:")} == {file.as_uri()}
    assert output == []
    assert len(set(grounds)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_file_has_no_accessibility_violations(tmp_path: Path, scheme: str) -> None:
    account = a.finished(compiled=a.TWICE, samples=a.steps())
    made = plain(report(account))
    file = tmp_path / "report.html"
    file.write_text(html(page_of(made), made, account), encoding="utf-8")
    with chromium() as browser:
        page = browser.new_context(color_scheme=scheme).new_page()
        page.goto(file.as_uri())
        assert page.locator("main svg a").count()
        assert violations(page) == []


@pytest.mark.slow
def test_tables_and_charts_are_legible_on_a_phone(
    tmp_path: Path,
) -> None:
    long = replace(a.FORWARD, phase_seconds={"aot_autograd": 80.0})
    account = a.finished(compiled=(long,), samples=a.steps())
    made = plain(report(account))
    file = tmp_path / "report.html"
    file.write_text(html(page_of(made), made, account), encoding="utf-8")
    heights = "[...document.querySelectorAll('thead th')].map((one) => one.offsetHeight)"
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 320, "height": 844}).new_page()
        page.goto(file.as_uri())
        assert len(set(page.evaluate(heights))) == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        size = "(one) => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a"
        assert min(page.locator("svg text").evaluate_all(f"(all) => all.map({size})")) >= 10
        right = "(all) => Math.max(...all.map((one) => one.getBoundingClientRect().right))"
        shown = "figure > svg, figure > svg > rect, .plot > text, .key span"
        assert page.locator(shown).evaluate_all(right) <= 320, "nothing is cut off"
