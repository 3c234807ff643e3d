"""The page at ``/``, in a real browser."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.browser import chromium, visit
from support.builders import kinds
from support.daemon import daemon, daemon_process
from support.records import held, ranks_of, warm, write_record
from support.standing import training
from support.values import replace
from support.web import ask
from warmwatch_monitor.api import page_files
from warmwatch_monitor.api.page_files import FILES

pytestmark = pytest.mark.slow

LIVE = "document.getElementById('connection').dataset.is === 'live'"


def says(words: str, of: str = "summary") -> str:
    return f"document.getElementById('{of}').textContent.includes({words!r})"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def test_it_is_live_and_asks_nobody_else(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path) as one, daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        page.until(says("gpt2: compiling"))
        one.warm()
        page.until(says("gpt2: warm"))
        one.compiles()
        page.until(says("gpt2: recompiling"))
        page.until(says("gpt2: recompiling", of="news"))  # for who does not see it
        page.until("document.querySelector('#ranks .state').textContent === 'recompiling'")
        page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
        assert (page.errors, page.elsewhere) == ([], [])


def test_it_outlives_the_daemon_and_says_so_meanwhile(browser: Browser, tmp_path: Path) -> None:
    options = ("--dir", str(tmp_path))
    with (
        training(tmp_path),
        daemon_process(*options) as (process, url),
        visit(browser, url) as page,
    ):
        page.until(says("gpt2: compiling"))
        process.terminate()
        process.wait(60)
        page.until("document.getElementById('connection').dataset.is === 'lost'")
        assert "the daemon does not answer" in page.text("#connection")
        address = url.removeprefix("http://")
        with daemon_process(*options, "--address", address) as (_, again):
            assert again == url
            page.until(LIVE)
            page.until(says("gpt2: compiling"))


def test_a_link_to_a_run_that_is_not_there_says_so(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url, visit(browser, url, "#run=bert") as page:
        page.until(says("bert is not seen here. gpt2: compiling"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with training(tmp_path) as one, daemon(tmp_path) as url:
        one.warm()
        one.compiles()
        at = "#run=gpt2&rank=0"
        with visit(browser, url, at, color_scheme=scheme) as page:
            page.until("!document.getElementById('rank').hidden")
            page.until(LIVE)
            assert page.violations() == []


def test_a_link_opens_a_run_a_rank_and_a_moment(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), training(tmp_path, "bert"), daemon(tmp_path) as url:
        with visit(browser, url) as page:
            page.until("document.querySelectorAll('#ranks tbody tr').length === 2")
            page.page.click("#ranks tbody tr:nth-child(2) a")
            page.until("document.activeElement.id === 'h-rank'")
            page.page.focus("#moment")
            page.page.keyboard.press("ArrowLeft")
            page.until("location.hash.includes('at=')")
            link = page.page.evaluate("location.hash")
        assert link.startswith("#run=gpt2&rank=0&at=")
        with visit(browser, url, link) as page:
            page.until("!document.getElementById('rank').hidden")
            assert page.text("#h-rank") == "Rank 0 of gpt2"
            assert page.page.input_value("#run") == "gpt2"
            assert page.text("#summary").startswith("gpt2:")


DRAWN = """() => {
  const context = CanvasRenderingContext2D.prototype, draw = context.fillText;
  window.drawn = new Set();
  context.fillText = function (said, ...rest) {
    drawn.add(said);
    return draw.call(this, said, ...rest);
  };
}"""


def test_a_lane_beside_those_of_other_runs_has_its_run_s_name(
    browser: Browser, tmp_path: Path
) -> None:
    with training(tmp_path), training(tmp_path, "bert"), daemon(tmp_path) as url:
        with visit(browser, url) as page:
            page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
            page.page.evaluate(DRAWN)
            page.until("drawn.has('gpt2 0') && drawn.has('bert 0')")
        with visit(browser, url, "#run=gpt2") as page:
            page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
            page.page.evaluate(DRAWN)
            page.until("drawn.has('0')")


def test_the_graphs_of_a_rank_are_those_that_dynamo_counts(
    browser: Browser, tmp_path: Path
) -> None:
    """Not its compilations: a backward is one too, and what captured nothing."""
    slot = warm()
    counted = replace(slot.compile, compilations=kinds(forward=4), graphs=1, graph_breaks=3)
    folder = write_record(tmp_path, replace(slot, compile=counted))
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#ranks tbody tr').length === 1")
        heads = page.page.locator("#ranks thead th").all_text_contents()
        cells = page.page.locator("#ranks tbody tr").locator("td, th").all_text_contents()
    told = dict(zip(heads, cells, strict=True))
    assert (told["graphs"], told["graph breaks"]) == ("1", "3")


def test_what_a_recompile_took_is_with_its_backward_and_no_other(
    browser: Browser, tmp_path: Path
) -> None:
    def told(kind: str, seconds: float, of: str = "0/1", **more: str) -> dict[str, object]:
        line = {"t": 5, "event": "compilation", "kind": kind, "id": of, "seconds": seconds}
        return {**line, "name": "forward", **more}

    why = {"reason": "0/0: words of a PyTorch to come", "category": "other"}
    events = [
        told("backward", 3.0),
        told("forward", 13.0, **why),
        told("backward", 50.0, of="1/0"),
        told("backward", 10.0),
        told("forward", 70.0),
        told("backward", 4.0),
    ]
    folder = write_record(tmp_path, warm(), events=events)
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#recompiles tbody tr').length === 1")
        cells = page.page.locator("#recompiles tbody tr").locator("td, th").all_text_contents()
    assert "23.0 s" in cells, cells


@pytest.mark.parametrize("at", ["1e300", "-1", "nan", "8e12"])
def test_a_link_to_no_moment_shows_the_page_all_the_same(
    browser: Browser, tmp_path: Path, at: str
) -> None:
    with ExitStack() as stack:
        stack.enter_context(training(tmp_path))
        url = stack.enter_context(daemon(tmp_path))
        page = stack.enter_context(visit(browser, url, f"#run=gpt2&at={at}"))
        page.until("document.querySelectorAll('#ranks tbody tr').length === 1")
        page.until(LIVE)
        assert page.errors == []


def test_its_time_goes_on_where_the_clock_is_set_back(browser: Browser, tmp_path: Path) -> None:
    """What was shown till then is loaded again, as the clock has it now."""
    with training(tmp_path), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        added = page.page.evaluate("""async () => {
            const { Past } = await import('./page/past.js');
            const past = new Past();
            const told = (at) => past.add({ at, ranks: [], gpus: [] });
            return [told(5000), told(5001), told(5000.8), told(1400)];
        }""")
    assert added == [True, True, True, False]


def test_many_ranks_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        ranks_of(tmp_path, 64)
        url = stack.enter_context(daemon(tmp_path))
        phone = {"width": 390, "height": 844}
        page = stack.enter_context(visit(browser, url, viewport=phone))
        page.until("document.querySelectorAll('#ranks tbody tr').length === 64")
        page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.errors == []


def test_a_name_is_text_whatever_it_says(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=document.title=1>"
    with ExitStack() as stack:
        stack.enter_context(training(tmp_path, name, name="odd"))
        url = stack.enter_context(daemon(tmp_path))
        page = stack.enter_context(visit(browser, url))
        page.until("document.querySelectorAll('#runs tbody tr').length === 1")
        page.until(says(name))
        assert page.page.query_selector("main img") is None
        assert page.page.title() == "Warmwatch"
        assert page.errors == []


WEEKS = """async () => {
  const { Past } = await import("/page/past.js");
  const past = new Past();
  const gpu = { uuid: "gpu", index: 0, utilization_ratio: 1, power_watts: 1, memory_used_bytes: 1 };
  const step = { steps: 1, step_seconds: 1, compile_seconds: 0 };
  const told = { rank: 0, state: "warm", phase: null, ...step };
  for (let at = 1; at <= 3000; at += 1) {
    const ranks = [{ ...told, run: `run${Math.floor(at / 300)}` }];
    past.add({ at, ranks, gpus: at < 300 ? [gpu] : [] });
  }
  return [[...past.ranks.values()].map((one) => one.run), past.gpus.size];
}"""


def test_a_page_that_is_open_for_weeks_keeps_those_of_its_range_alone(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        runs, gpus = page.page.evaluate(WEEKS)
    assert runs[-2:] == ["run9", "run10"]
    assert len(runs) <= 3
    assert gpus == 0


STARTS = """async () => {
  const { stepped } = await import("/page/charts.js");
  const shown = (length) => (length === undefined ? "on" : length);
  const line = (steps, step_seconds) => stepped({ steps, step_seconds }).map(shown);
  return [
    line([1, 1, 2, 2, 0, 0, 1], [9, 9, 2, 2, 2, null, 8]),
    line([7, 7, 1, 2], [2, 2, 9, 3]),
    line([1, 2, null, null, 2, 3], [9, 2, null, null, 2, 4]),
  ];
}"""


def test_the_line_of_steps_does_not_join_one_start_of_a_run_to_the_next(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        anew, at_once, gone = page.page.evaluate(STARTS)
    assert anew == [9, "on", 2, "on", None, "on", 8]
    assert at_once == [2, None, 9, 3]
    assert gone == [9, 2, None, "on", 2, 4]


SLOWER = """async () => {
  const { slower } = await import("/page/lanes.js");
  const period = (began_at, ended_at) => ({ began_at, ended_at });
  return slower([
    { slower_periods: [period(null, 10), period(20, 30), period(40, null)] },
    { slower_periods: [] }, {},
  ], 50);
}"""


def test_each_time_in_which_a_rank_was_slower_is_a_band_on_the_chart_of_steps(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(SLOWER) == [[20, 30], [40, 50]]


STANDS = """async () => {
  const { standing } = await import("/page/charts.js");
  const line = [undefined, 21, undefined, undefined, null, undefined];
  return line.map((_, at) => standing(line, at));
}"""


def test_the_key_of_a_line_says_what_it_stands_at_between_two_long_steps(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(STANDS) == [None, 21, 21, 21, None, None]


def test_a_link_to_a_moment_that_is_no_date_is_one_to_now(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url, visit(browser, url, "#at=1e300") as page:
        page.until(LIVE)
        page.until(says("gpt2: compiling"))
        page.until("document.getElementById('at').textContent !== ''")
        assert page.errors == []


def test_its_files_are_sent_and_no_others(tmp_path: Path) -> None:
    with daemon(tmp_path) as url:
        for name in FILES:
            reply = ask(url, f"/page/{name}")
            assert (reply.status, reply.headers["content-type"]) == (200, FILES[name])
            assert "default-src 'none'" in reply.headers["content-security-policy"]
        for name in ("nothing.js", "..%2fhttp.py", "library"):
            assert ask(url, f"/page/{name}").status == 404


def test_names_that_are_asked_for_are_not_remembered() -> None:
    page_files.file("index.html")
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(20_000):
        assert page_files.file(f"nothing{number}") is None
    gc.collect()
    assert sys.getallocatedblocks() - before < 10_000
