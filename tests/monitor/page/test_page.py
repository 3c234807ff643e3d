"""The page at ``/``, in a real browser."""

from __future__ import annotations

import gc
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support import builders as b
from support.browser import chromium, visit
from support.builders import categories, kinds
from support.daemon import daemon, daemon_process
from support.documents import status
from support.records import ended, held, ranks_of, wait_until, warm, write_record
from support.training_standin import training
from support.values import replace
from support.web import ask
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.reasons import plain
from warmwatch_monitor.output.summary import details_of
from warmwatch_monitor.server.api import cached
from warmwatch_monitor.server.api.cached import FILES

pytestmark = pytest.mark.slow

LIVE = "document.getElementById('connection').dataset.is === 'live'"


SAMPLED = """
  const { Past: Columns } = await import("/page/past.js");
  class Past extends Columns {
    add({ at, ranks, gpus }) {
      const list = (names, one) => Object.fromEntries(names.map((name) => [name, [one[name]]]));
      const spans = ({ state, phase = null, pause = null }) => (
        { states: [[at, state]], phases: [[at, phase]], pauses: [[at, pause]], recompiles: [] });
      this.join({ at: [at],
        ranks: ranks.map(({ run, rank, ...one }) => (
          { run, rank, ...list(["steps", "step_seconds"], one), ...spans(one) })),
        gpus: gpus.map(({ uuid, index, ...one }) => (
          { uuid, index, ...list(["utilization_ratio", "power_watts"], one) })) });
    }
  }
"""


def sampled(script: str) -> str:
    """``script`` with a ``Past`` that takes a sample of a second."""
    return script.replace("{", "{" + SAMPLED, 1)


def shows(words: str, of: str = "headline") -> str:
    return f"document.getElementById('{of}').textContent.includes({words!r})"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def test_the_page_follows_a_run_and_sends_no_other_request(
    browser: Browser, tmp_path: Path
) -> None:
    with training(tmp_path) as one, daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        page.until(shows("gpt2: compiling"))
        one.warm()
        page.until(shows("gpt2: warm"))
        one.compiles()
        page.until(shows("gpt2: recompiling"))
        page.until(shows("gpt2: recompiling", of="news"))  # for screen readers
        page.until("document.querySelector('#ranks .state').textContent === 'recompiling'")
        page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
        assert not page.page.is_visible("#ranks thead .of-run")
        assert not page.page.get_attribute("#headline", "class")
        assert (page.errors, page.elsewhere) == ([], [])


def test_the_page_reports_a_missing_daemon_and_reconnects(browser: Browser, tmp_path: Path) -> None:
    options = ("--dir", str(tmp_path))
    with (
        training(tmp_path),
        daemon_process(*options) as (process, url),
        visit(browser, url) as page,
    ):
        page.until(shows("gpt2: compiling"))
        process.terminate()
        process.wait(60)
        page.until("document.getElementById('connection').dataset.is === 'lost'")
        assert "the daemon does not answer" in page.text("#connection")
        address = url.removeprefix("http://")
        with daemon_process(*options, "--address", address) as (_, again):
            assert again == url
            page.until(LIVE)
            page.until(shows("gpt2: compiling"))


def test_the_page_shows_no_table_before_the_first_answer(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url, browser.new_context() as context:
        page = context.new_page()
        page.route("**/events*", lambda route: route.abort())
        page.goto(url)
        page.wait_for_selector("#headline:text-is('The daemon does not answer')")
        assert "No run found" not in page.inner_text("body")
        assert not page.is_visible("#ranks")
        page.unroute("**/events*")
        page.wait_for_selector("#headline:text('gpt2: compiling')")
        assert page.is_visible("#ranks")
        assert re.search(r"\d\u00a0(ms|s|min)\b", page.text_content("#headline") or "")


def test_a_link_to_an_unknown_run_reports_that(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url, visit(browser, url, "#run=bert") as page:
        page.until(shows("bert is not seen here. gpt2: compiling"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_accessibility_violations(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    with (
        training(tmp_path) as one,
        training(tmp_path, "bert"),
        training(tmp_path, "t5"),
        daemon(tmp_path) as url,
    ):
        one.warm()
        one.compiles()
        at = "#run=gpt2&rank=0"
        with visit(browser, url, at, color_scheme=scheme) as page:
            page.until("!document.getElementById('rank').hidden")
            page.until("document.querySelectorAll('#runs li').length === 3")
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
            assert page.text("#headline").startswith("gpt2: compiling")


DRAWN = """() => {
  const context = CanvasRenderingContext2D.prototype, draw = context.fillText;
  window.drawn = new Set();
  context.fillText = function (words, ...rest) {
    drawn.add(words);
    return draw.call(this, words, ...rest);
  };
}"""


def test_a_lane_has_its_run_s_name_if_there_are_other_runs(
    browser: Browser, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        for name in ("gpt2", "bert", "😀weep-of-sizes-11"):
            stack.enter_context(training(tmp_path, name))
        url = stack.enter_context(daemon(tmp_path))
        with visit(browser, url) as page:
            page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
            page.page.evaluate(DRAWN)
            page.until("drawn.has('gpt2 0') && drawn.has('bert 0')")
            page.page.set_viewport_size({"width": 320, "height": 700})
            page.until("drawn.has('😀we…-11 0')")
            stack.enter_context(training(tmp_path, "😀weep-of-sizes-12"))
            page.until("drawn.has('…zes-11 0') && drawn.has('…zes-12 0')")
            page.page.set_viewport_size({"width": 1280, "height": 720})
        with visit(browser, url, "#run=gpt2") as page:
            page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
            page.page.evaluate(DRAWN)
            page.until("drawn.has('rank 0')")


def test_the_graphs_of_a_rank_are_those_counted_by_dynamo(browser: Browser, tmp_path: Path) -> None:
    """Not its compilations: a backward is one too, and what captured nothing."""
    slot = warm()
    counted = replace(slot.compile, compilations=kinds(forward=4), graphs=1, graph_breaks=3)
    folder = write_record(tmp_path, replace(slot, compile=counted))
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#ranks tbody tr').length === 1")
        heads = page.page.locator("#ranks thead th").all_text_contents()
        cells = page.page.locator("#ranks tbody tr").locator("td, th").all_text_contents()
    shown = dict(zip(heads, cells, strict=True))
    assert (shown["graphs"], shown["graph breaks"]) == ("1", "3")


def test_the_cost_of_a_recompile_includes_its_own_backward_only(
    browser: Browser, tmp_path: Path
) -> None:
    def journal(kind: str, seconds: float, of: str = "0/1", **more: str) -> dict[str, object]:
        line = {"t": 5, "event": "compilation", "kind": kind, "id": of, "seconds": seconds}
        return {**line, "name": "forward", **more}

    why = {"reason": "0/0: words of a PyTorch to come", "category": "other"}
    events = [
        journal("backward", 3.0),
        journal("forward", 13.0, **why),
        journal("backward", 50.0, of="1/0"),
        journal("backward", 10.0),
        journal("forward", 70.0),
        journal("backward", 4.0),
    ]
    folder = write_record(tmp_path, warm(), events=events)
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#recompiles tbody tr').length === 1")
        cells = page.page.locator("#recompiles tbody tr").locator("td, th").all_text_contents()
    assert "23 s" in cells, cells


def test_a_call_at_the_recompile_limit_has_no_cost(browser: Browser, tmp_path: Path) -> None:
    line = {"t": 5, "event": "compilation", "kind": "forward", "id": "0/8", "seconds": 0.5}
    why = {"reason": "0/7: words of a PyTorch to come", "category": "other", "at_limit": True}
    folder = write_record(tmp_path, warm(), events=[{**line, "name": "forward", **why}])
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#recompiles tbody tr').length === 1")
        words = page.page.locator("#recompiles tbody tr").inner_text()
    assert "forward" in words
    assert "reached the recompile limit: 0/7: words of a PyTorch to come" in words
    assert "500 ms" not in words


def test_a_link_with_an_invalid_moment_shows_the_page(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url:
        for at in ("1e300", "-1", "nan", "8e12"):
            with visit(browser, url, f"#run=gpt2&at={at}") as page:
                page.until("document.querySelectorAll('#ranks tbody tr').length === 1")
                page.until(LIVE)
                assert page.errors == [], at


FOLLOWS = """async () => {
  const asked = [];
  let now = 0;
  globalThis.fetch = async (url) => {
    const seconds = Number(new URLSearchParams(url.split("?")[1]).get("seconds"));
    asked.push(seconds);
    const at = Array.from({ length: seconds }, (_, place) => now - seconds + 1 + place);
    return { ok: true, json: async () => ({ at, ranks: [], gpus: [] }) };
  };
  const past = new Past();
  for (const next of [5000, 5001, 5000.8, 5007, 5015, 1400, 1401]) {
    now = next;
    await past.follow(next);
  }
  const followed = asked.splice(0);
  past.at = Array.from({ length: 1800 }, (_, place) => 501.5 + place / 2);
  await past.follow(1402);
  const both = past.load(900);
  await past.follow(1403); // what is loaded has it
  await both;
  return [followed, asked, past.range, past.at.length];
}"""


def test_the_page_asks_for_the_last_seconds_and_for_everything_after_a_gap(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        followed, asked, chosen, count = page.page.evaluate(sampled(FOLLOWS))
    gap = set_back = 300
    assert followed == [300, 10, 10, 10, gap, set_back, 10]
    assert asked == [300, 900], "too many values, and a chosen range"
    assert (chosen, count) == (900, 900)


RECOMPILE = {
    "t": 5,
    "event": "compilation",
    "kind": "forward",
    "id": "0/1",
    "seconds": 13.0,
    "reason": "0/0: words of a PyTorch to come",
    "category": "other",
}


def test_many_ranks_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        living, *_ = ranks_of(tmp_path, 64)
        stack.enter_context(held(living))  # ranks that had ended before have no lane
        write_record(tmp_path, ended(warm("old"), "finished"), name="old", events=[RECOMPILE])
        url = stack.enter_context(daemon(tmp_path))
        phone = {"width": 320, "height": 700}
        page = stack.enter_context(visit(browser, url, viewport=phone))
        page.until("document.querySelectorAll('#ranks tbody tr').length === 64")
        page.until("document.querySelector('[data-chart=lanes] canvas') !== null")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 320
        page.page.click("#ended-part summary")
        page.until("document.querySelectorAll('#recompiles tbody tr').length === 1")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.errors == []


def test_a_run_name_is_never_html(browser: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=document.title=1>"
    with ExitStack() as stack:
        stack.enter_context(training(tmp_path, name, name="odd"))
        url = stack.enter_context(daemon(tmp_path))
        page = stack.enter_context(visit(browser, url))
        page.until(shows(name))
        page.until(shows(name))
        assert page.page.query_selector("main img") is None
        assert page.page.title().startswith(f"{name}: compiling")
        assert page.errors == []


LARGE = """async (answers) => {
  const { shadeOf, showAnswer, sampleOf } = await import("/page/headline.js");
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  return answers.map((answer) => {
    showAnswer(sampleOf(answer), place);
    const shown = (id) => document.getElementById(id).innerText.replaceAll("\\u00a0", " ");
    const details = [...document.querySelectorAll("#details li")].map((one) => one.innerText);
    return [shown("headline"), shown("summary"), details, shadeOf(answer.runs[0])];
  });
}"""


def test_a_run_has_its_title_in_large_type_and_the_rest_of_its_answer_below(
    browser: Browser, tmp_path: Path
) -> None:
    warm_rank = b.in_every_state()["warm"]
    silent = warm_rank.judgement._replace(conditions=("silent",))
    views = [(warm_rank, "warm"), (replace(warm_rank, judgement=silent), "doubtful")]
    answers = [status(b.snapshot(view)) for view, _ in views]
    with daemon(tmp_path) as url, visit(browser, url) as page:
        found = page.page.evaluate(LARGE, answers)
    for answer, (_, shade), (head, sentence, details, shown) in zip(
        answers, views, found, strict=True
    ):
        (run,) = answer["runs"]
        assert (head, sentence) == (f"gpt2: {run['title']}", run["subtitle"])
        assert details == list(details_of(run))
        assert shown == shade


def test_title_and_icon_of_the_window_show_the_state(browser: Browser, tmp_path: Path) -> None:
    """For a page in the background."""
    with training(tmp_path) as one, daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.title.startsWith('gpt2: compiling for ')")
        page.until("document.getElementById('icon').getAttribute('href') === 'page/icon-busy.svg'")
        one.warm()
        page.until("/^gpt2: warm . Warmwatch$/.test(document.title)")
        page.until("document.getElementById('icon').getAttribute('href') === 'page/icon-warm.svg'")
        assert page.errors == []


HIDE = "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
SHOW = "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"


def test_a_page_in_the_background_follows_the_state_and_requests_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    asked = set[str]()
    with (
        training(tmp_path) as one,
        daemon(tmp_path) as url,
        visit(browser, url, viewport={"width": 800, "height": 600}) as page,
    ):
        page.until("document.title.startsWith('gpt2: compiling')")
        page.page.evaluate(HIDE)
        page.page.on("request", lambda request: asked.add(request.url.split("/")[-1].split("?")[0]))
        # all is old from now on
        page.page.evaluate("{ const now = Date.now; Date.now = () => now() + 60_000 }")
        one.warm()
        page.until("document.title.startsWith('gpt2: warm')")
        seen = page.text("#seen")
        wait_until(lambda: page.text("#seen") != seen)  # another sample
        assert asked == {"icon-warm.svg"}
        page.page.evaluate(SHOW)
        wait_until(lambda: asked >= {"status", "history"})


def test_living_runs_have_a_row_each_and_ended_ones_collapse(
    browser: Browser, tmp_path: Path
) -> None:
    write_record(tmp_path, ended(warm("old"), "finished"), name="old")
    with (
        training(tmp_path) as one,
        training(tmp_path, "bert"),
        daemon(tmp_path) as url,
        visit(browser, url) as page,
    ):
        one.warm()
        page.until(shows("2 runs: 1 compiling, 1 warm"))
        page.until("document.querySelectorAll('#runs li').length === 2")
        assert page.text("#ended-count") == "1 ended run: 1 finished"
        assert not page.page.is_visible("#ended li")
        assert "old" not in page.text("#ranks")
        page.page.click("#ended-part summary")
        assert page.page.is_visible("#ended li")
        page.until("document.getElementById('ranks').innerText.includes('old')")
        assert "old" in page.text("#ended")
        spark = "#runs li:first-child svg"
        described = r"/^The last \d+ (s|min): no step without compilation; shaded/"
        page.until(f"{described}.test(document.querySelector('{spark}').textContent)")
        assert page.page.get_attribute(spark, "role") == "img"
        assert "compilation" in page.text("#runs + .keys")
        assert page.page.is_visible("#ranks thead .of-run")
        assert page.page.get_attribute("#headline", "class") == "tally"
        for width in (320, 800, 1400):
            page.page.set_viewport_size({"width": width, "height": 900})
            assert page.page.evaluate(CROWDED) == [], width


def test_title_and_icon_show_that_a_run_failed_after_all_have_ended(
    browser: Browser, tmp_path: Path
) -> None:
    for how in ("finished", "failed"):
        write_record(tmp_path, ended(warm(how), how), name=how)
    icon = "document.getElementById('icon').getAttribute('href')"
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(shows("2 ended runs: 1 failed, 1 finished"))
        assert page.page.title().startswith("2 ended runs: 1 failed")
        assert page.page.evaluate(icon) == "page/icon-trouble.svg"
        assert page.page.get_attribute("#answer", "data-state") == "failed"
        assert page.page.is_visible("#runs li >> text=failed after")
        assert not page.page.is_visible("#ended-part")


# rows of runs with a long state: overlapping columns, and a sentence that is no wider than a word
CROWDED = """() => [...document.querySelectorAll("#runs li")].flatMap((row) => {
  row.querySelector(".state").textContent = "eager but slower, 310 ms a step";
  row.querySelector(".words").textContent = "since step 344 (62 ms before, 7.7x); ".repeat(3);
  const [state, spark, words] = [".state", ".spark", ".words"].map((one) => {
    const range = document.createRange();
    range.selectNode(row.querySelector(one));
    return range.getBoundingClientRect();
  });
  const beside = (a, b) => a.right <= b.left || b.right <= a.left;
  const over = (a, b) => !beside(a, b) && a.top < b.bottom && b.top < a.bottom;
  const wrong = {
    "state over sparkline": over(state, spark), "state over words": over(state, words),
    "narrow words": words.width < 150, "too wide": row.scrollWidth > row.clientWidth,
  };
  return Object.keys(wrong).filter((name) => wrong[name]);
})"""


def test_a_drag_over_a_chart_zooms_all_charts_and_the_link_has_the_zoom(
    browser: Browser, tmp_path: Path
) -> None:
    with training(tmp_path), daemon(tmp_path) as url:
        with visit(browser, url) as page:
            page.until("document.querySelector('[data-chart=lanes] .u-over') !== null")
            page.page.locator("[data-chart=lanes] .u-over").scroll_into_view_if_needed()
            box = page.page.locator("[data-chart=lanes] .u-over").bounding_box()
            assert box is not None
            x, y, width = box["x"], box["y"] + box["height"] / 2, box["width"]
            page.page.mouse.move(x + width * 0.3, y)
            page.page.mouse.down()
            page.page.mouse.move(x + width * 0.6, y, steps=5)
            page.page.mouse.up()
            page.until("/from=[0-9]+&to=[0-9]+/.test(location.hash)")
            assert "at=" not in page.page.evaluate("location.hash")
            link = page.page.evaluate("location.hash")
            page.page.click("#whole")
            page.until("!location.hash.includes('from')")
        with visit(browser, url, link) as page:
            page.until("!document.getElementById('whole').hidden")
            assert page.errors == []


def test_the_pointer_shows_state_and_phase_of_a_lane(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelector('[data-chart=lanes] .u-over') !== null")
        lane = page.page.locator("[data-chart=lanes] .u-over")
        lane.scroll_into_view_if_needed()
        box = lane.bounding_box()
        assert box is not None

        def shown() -> bool:
            page.page.mouse.move(box["x"] + 5, box["y"] + 5)
            page.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
            tip = page.page.locator("[data-chart=lanes] .tip")
            return "compiling, inductor" in (tip.text_content() or "")

        wait_until(shown)


def test_a_recompile_opens_its_guard_its_lines_and_its_remedy(
    browser: Browser, tmp_path: Path
) -> None:
    line = {"t": 5, "event": "compilation", "kind": "forward", "id": "0/1", "seconds": 2.0}
    reason = (
        "0/0: tensor 'tokens' size mismatch at index 1. expected 64, actual 48  # layer.py:9 in mix"
        "\n0/1: grad_mode"
    )
    where = {"name": "forward", "file": "model.py", "line": 31, "caller": "train.py:7"}
    again = {**line, **where, "reason": reason, "category": "shape"}
    begin = {"t": 1, "event": "warm", "seconds": 1.0, "steps": 1}
    events = [{**line, "id": "0/0", **where}, begin, again]
    slot = warm()
    run = "it's $(mine)"
    slot = replace(
        slot,
        compile=replace(slot.compile, recompiles_by_category=categories(shape=3)),
        identity=replace(slot.identity, run=run),
    )
    folder = write_record(tmp_path, slot, events=events)
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#recompiles tbody tr').length === 1")
        opened = page.page.locator("#recompiles details")
        sentence = str(plain(reason, "shape")).replace("`", "")
        assert sentence in opened.locator("summary").inner_text()
        assert opened.locator("summary code").inner_text() == "tokens"
        assert not opened.locator("[data-f=reason]").is_visible()
        opened.locator("summary").click()
        words = opened.inner_text()
        left_out = page.text("#more-recompiles")
        assert left_out == f"and 2 earlier recompiles: warmwatch report {shlex.quote(run)} -v"
    assert "tensor 'tokens' size mismatch" in words
    assert "\n0/1: grad_mode" in words, "each guard has its own line"
    assert "`" not in words
    assert "In model.py, line 31, called from train.py:7" in words
    assert "The guard checks a value of layer.py:9 in mix" in words
    assert ADVICE["shape"] in words
    assert "other sizes usually need no recompile" in words


NO_RECOMPILE = """async () => {
  const { showTables } = await import("/page/tables.js");
  const part = document.getElementById("ended-part");
  part.hidden = part.open = false;
  const run = (run, state, recompiles, last = []) => ({ run, state, ranks: [{ rank: 0, state,
    compile: { seconds: 1, recompiles, varying: [], last }, step_seconds: {}, gpus: [] }] });
  const shown = (chosen, ...runs) => {
    const answer = { runs, gpus: [], sources: [], refusals: [], observed: [] };
    showTables(answer, { ranks: [] }, { run: chosen, rank: null, with: null });
    const texts = document.querySelectorAll("section:has(#recompiles) .none:not([hidden])");
    return [...texts].map((one) => one.textContent).join(" ");
  };
  const living = run("m", "compiling", 0), ended = run("n", "finished", 3);
  const collapsed = [shown(null, living), shown(null, living, ended), shown("m", living, ended)];
  part.open = true;
  const reason = "0/0: size", shape = { reason, category: "shape" };
  const last = [shape, { reason, category: "new_instance" }, { ...shape, at_limit: true }];
  return [...collapsed, shown(null, living, ended), shown(null, run("o", "warm", 3, last))];
}"""


def test_no_recompile_is_said_only_of_the_runs_that_have_none(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(NO_RECOMPILE) == [
            "No recompile in the records.",
            (
                "No recompile of a living run in the records. "
                "1 ended run recompiled: open the list of ended runs, or choose a run"
            ),
            "No recompile of this run in the records.",
            "3 recompiles: warmwatch report n -v",
            "and 1 earlier recompile: warmwatch report o -v",
        ]


def test_functions_that_are_left_out_are_counted(browser: Browser, tmp_path: Path) -> None:
    line = {"t": 5, "event": "compilation", "kind": "forward", "seconds": 2.0, "file": "model.py"}
    events = [{**line, "id": f"{n}/0", "name": f"f{n}", "line": n} for n in range(1, 15)]
    folder = write_record(tmp_path, warm(), events=events)
    with held(folder), daemon(tmp_path) as url, visit(browser, url) as page:
        page.until("document.querySelectorAll('#functions tbody tr').length > 0")
        rows = page.page.locator("#functions tbody tr").count()
        words = page.page.text_content("#more-functions")
    assert rows < 14
    assert words == f"{rows} of 14 functions, the most expensive."


CODE = """async () => {
  const { words } = await import("/page/show.js");
  return ["`f` of <b>", "`<b>`", "a ` b", "``", null].map((text) => {
    const element = document.createElement("p");
    words(element, text);
    return element.innerHTML;
  });
}"""


def test_names_between_backticks_are_code_and_never_markup(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        found = page.page.evaluate(CODE)
    expected = [
        "<code>f</code> of &lt;b&gt;",
        "<code>&lt;b&gt;</code>",
        "a ` b",
        "<code></code>",
        "",
    ]
    assert found == expected


OVERLAY = """async () => {
  const { beginOf, shifted } = await import("/page/past.js");
  const ranks = [{ attached_at: 130 }, { attached_at: 110 }, { attached_at: null }];
  const rank = { states: [[150, "warm"]], phases: [], pauses: [], recompiles: [{ at: 160 }] };
  const { by, states, recompiles } = shifted(rank, -10, 200);
  return [beginOf({ runs: [{ run: "gpt2", ranks }] }, "gpt2"), by, states, recompiles];
}"""


def test_two_runs_can_be_compared_from_their_begins(browser: Browser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(training(tmp_path))
        stack.enter_context(training(tmp_path, "bert"))
        page = stack.enter_context(visit(browser, stack.enter_context(daemon(tmp_path))))
        page.until("document.querySelectorAll('#run option').length === 3")
        assert not page.page.is_visible("#overlay")
        page.page.select_option("#run", "gpt2")
        page.page.select_option("#with", "bert")
        page.until("location.hash === '#run=gpt2&with=bert'")
        page.page.evaluate(DRAWN)
        page.until("['gpt2 0', 'bert 0', '0'].every((label) => drawn.has(label))")
        page.until(shows("(both runs begin at 0)", of="lanes-cut"))
        assert page.errors == []
        begin, by, states, recompiles = page.page.evaluate(OVERLAY)
    assert (begin, by, states) == (110, -10, [[140, "warm"], [190, None]])
    assert recompiles == [{"at": 150}]


SELECTED = """async () => {
  const { Charts } = await import("/page/charts.js");
  const past = new Past();
  const charts = new Charts(document.getElementById("charts"), () => {});
  const warm = { rank: 0, state: "warm", phase: null, compile_seconds: 0, step_seconds: 1 };
  for (const at of [1, 2]) past.add({ at, gpus: [], ranks: [{ ...warm, run: "m", steps: at }] });
  charts.draw(past, { run: null, rank: null, with: null, at: null, from: null, to: null }, null);
  const { plot } = charts.plots.get("steps");
  plot.setSelect({ left: 10, width: 50, top: 0, height: 20 });
  return plot.select.width;
}"""


def test_a_drag_over_another_chart_leaves_no_selection(browser: Browser, tmp_path: Path) -> None:
    """Charts are synchronized: each one selects what is dragged in one of them."""
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(sampled(SELECTED)) == 0


COLOURS = """async () => {
  const { Charts } = await import("/page/charts.js");
  const past = new Past();
  const charts = new Charts(document.getElementById("charts"), () => {});
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  const shown = (at, ...runs) => {
    const warm = { rank: 0, state: "warm", phase: null, compile_seconds: 0, step_seconds: 1 };
    past.add({ at, gpus: [], ranks: runs.map((run) => ({ ...warm, run, steps: at })) });
    charts.draw(past, place, null);
    const keys = [...document.querySelectorAll("[data-chart=steps] .keys li")];
    return keys.map((key) => [key.textContent.trim().split(" ")[0],
      key.querySelector(".dot").style.getPropertyValue("--dot")]);
  };
  const alone = Object.fromEntries(shown(1, "m"));
  const together = Object.fromEntries(shown(2, "a", "m", "z"));
  return [alone.rank, together];
}"""


COLOURS_OF_LOADS = """async () => {
  const { Charts } = await import("/page/charts.js");
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  const colour = (key) => key.querySelector(".dot").style.getPropertyValue("--dot");
  const loaded = (runs, chosen = null) => {
    const past = new Past();
    const charts = new Charts(document.getElementById("charts"), () => {});
    const warm = { rank: 0, state: "warm", phase: null, compile_seconds: 0, step_seconds: 1 };
    past.add({ at: 9, gpus: [], ranks: runs.map((run) => ({ ...warm, run, steps: 9 })) });
    const status = { runs: [...runs].sort().map((run) => ({
      run, ranks: [{ rank: 0, state: "warm", attached_at: run.codePointAt(0), step_seconds: {} }],
    })) };
    charts.draw(past, { ...place, run: chosen }, status);
    return [...document.querySelectorAll("[data-chart=steps] .keys li")].map((key) => (
      [key.textContent.trim().split(" ")[0], colour(key)])).sort();
  };
  const runs = ["a", "b", "i", "q", "y"]; // the hashes of all but b are the same
  return [loaded(runs), loaded([...runs].reverse()), ...runs.map((run) => loaded(runs, run)[0][1])];
}"""


def test_runs_have_distinct_colours_that_are_the_same_in_each_load(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        one, other, *chosen = page.page.evaluate(sampled(COLOURS_OF_LOADS))
    assert one == other
    assert one[0] == ["a", "var(--line_a)"], "the run that started first"
    assert chosen == [colour for _, colour in one]
    assert len(set(chosen)) == 5


MIG_COLOURS = """async () => {
  const { Charts } = await import("/page/charts.js");
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  const past = new Past();
  const gpu = { index: 0, utilization_ratio: 0.5, power_watts: 90, memory_used_bytes: 1 };
  past.add({ at: 9, ranks: [], gpus: ["mig-a", "mig-b"].map((uuid) => ({ ...gpu, uuid })) });
  new Charts(document.getElementById("charts"), () => {}).draw(past, place, null);
  const dots = [...document.querySelectorAll("[data-chart=power] .keys .dot")];
  return dots.map((dot) => dot.style.getPropertyValue("--dot"));
}"""


def test_the_mig_devices_of_a_board_have_distinct_colours(browser: Browser, tmp_path: Path) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        one, other = page.page.evaluate(sampled(MIG_COLOURS))
    assert one != other


def test_a_line_retains_its_colour_when_other_runs_appear(browser: Browser, tmp_path: Path) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        alone, together = page.page.evaluate(sampled(COLOURS))
    assert together["m"] == alone
    assert len(set(together.values())) == 3


QUICK = """async () => {
  const { showRuns } = await import("/page/runs.js");
  const { showAnswer } = await import("/page/headline.js");
  const { Charts } = await import("/page/charts.js");
  const past = new Past();
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  const names = Array.from({ length: 40 }, (_, at) => `run${at}`);
  const runs = names.map((run) => (
    { run, state: "warm", state_words: "warm", title: "warm", subtitle: "", clauses: [] }));
  const ranks = names.flatMap((run) => Array.from({ length: 64 }, (_, rank) => (
    { run, rank, state: "warm", phase: null, since: 1, compile_seconds: 0, a_step_seconds: 0.1 })));
  const charts = new Charts(document.getElementById("charts"), () => {});
  const sample = (at) => ({ at, summary: "", details: [], runs, gpus: [], late_seconds: null,
    ranks: ranks.map((rank) => ({ ...rank, steps: at, step_seconds: 0.1 })) });
  const at = Array.from({ length: 300 }, (_, place) => place + 1);
  const column = { steps: at, step_seconds: at.map(() => 0.1), phases: [[1, null]],
    states: [[1, "warm"]], pauses: [[1, null]], recompiles: [] };
  past.join({ at, gpus: [], ranks: ranks.map(({ run, rank }) => ({ run, rank, ...column })) });
  const show = () => {
    showAnswer(sample(300), place);
    showRuns(sample(300), past, place);
    charts.draw(past, place, null);
  };
  show();
  const took = [];
  for (let turn = 0; turn < 5; turn += 1) {
    const began = performance.now();
    past.add(sample(301 + turn));
    show();
    took.push(performance.now() - began);
  }
  return [Math.min(...took), document.querySelectorAll("#runs li").length];
}"""


@pytest.mark.long
def test_forty_runs_of_64_ranks_are_drawn_within_a_fraction_of_a_second(
    browser: Browser, tmp_path: Path
) -> None:
    """A sample comes each second: what draws it must leave most of the second free."""
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        took_ms, rows = page.page.evaluate(sampled(QUICK))
    assert rows == 40
    assert took_ms < 500, took_ms


STARTS = """async () => {
  const { stepped } = await import("/page/scales.js");
  const shown = (length) => (length === undefined ? "on" : length);
  const line = (steps, step_seconds, states) => stepped({ steps, step_seconds, states }).map(shown);
  return [
    line([1, 1, 2, 2, 0, 0, 1], [9, 9, 2, 2, 2, null, 8]),
    line([7, 7, 1, 2], [2, 2, 9, 3]),
    line([1, 2, null, null, 2, 3], [9, 2, null, null, 2, 4]),
    line([null, 7, 7, 8], [null, 2, 2, 3], [[0, null], [1, "stalled"], [3, "warm"]]),
    line([7, 7], [2, 2], [[0, "finished"]]),
  ];
}"""


def test_the_line_of_steps_does_not_join_one_start_of_a_run_to_the_next(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        counted, immediate, gone, stalled, over = page.page.evaluate(STARTS)
    assert counted == [9, "on", 2, "on", None, None, 8]
    assert immediate == [2, None, 9, 3]
    assert gone == [9, 2, None, None, 2, 4]
    assert stalled == ["on", "on", "on", 3]
    assert over == ["on", "on"], "its last step was before the daemon started"


DRAWN_STARTS = """async () => {
  const { drawLanes, restarts } = await import("/page/lanes.js");
  const painted = [];
  const ctx = new Proxy({}, { get: (of, name) => of[name] ?? (name === "fillRect"
    ? (left, top, wide) => painted.push([of.fillStyle, left, wide]) : () => {}) });
  const plot = { ctx, bbox: { left: 0, top: 0, width: 1000, height: 20 },
    scales: { x: { min: 0, max: 1000 } }, valToPos: (at) => at };
  const rank = (states, steps) => (
    { rank: 0, states, steps, pauses: [], phases: [], recompiles: [] });
  const times = [100, 200, 300, 400];
  const draw = (one, scale = 1) => {
    painted.length = 0;
    plot.valToPos = (at) => at * scale;
    drawLanes(plot, [one], times, (name) => name, null, () => []);
    return [...painted];
  };
  return [
    draw(rank([[0, "warm"], [200, "failed"], [600, "compiling"]], [5, 9, 9, 9])),
    draw(rank([[0, "warm"], [300, "compiling"]], [5, 9, 9, 1])),
    draw(rank([[0, "failed"], [600, "warm"]], [9, 9, 9, 9])),
    restarts({ steps: [5, null, 1, 2], by: -100 }, times),
    draw({ ...rank([[0, "warm"]], [1]), pauses: [[10, "evaluation"], [11, null],
      [20, "saving"], [23, null]] }, 30).slice(1),
  ];
}"""


def test_each_start_of_a_run_has_its_own_bar(browser: Browser, tmp_path: Path) -> None:
    """An end is a moment, not a bar to the next start; two that follow directly are apart."""
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.page.evaluate("globalThis.devicePixelRatio = 1")
        failed, direct, earlier, shifted, pauses = page.page.evaluate(DRAWN_STARTS)
    assert failed == [["warm", 0, 200], ["failed", 200, 8], ["compiling", 600, 400]]
    assert direct == [["warm", 0, 300], ["compiling", 300, 700], ["ground", 298, 4]]
    assert earlier == [["warm", 600, 400]]
    assert shifted == [100]
    assert pauses == [["ground", 300, 2], ["ground", 600, 90]], "one sample: its length is unknown"


MARKED = """async () => {
  const { drawLanes, laneHeight, middle } = await import("/page/lanes.js");
  const bars = [];
  const draw = (height) => {
    const letters = [], tips = [];
    const ctx = new Proxy({}, { get: (of, name) => of[name] ?? (name === "fillText"
      ? (words, x, y) => letters.push([words, y - parseInt(of.font) / 2]) : name === "lineTo"
      ? (x, y) => tips.push(y) : name === "fillRect"
      ? (x, y, wide, high) => bars.push((y + high / 2) / height) : () => {}) });
    const plot = { ctx, bbox: { left: 0, top: 0, width: 1000, height },
      scales: { x: { min: 0, max: 1000 } }, valToPos: (at) => at };
    const rank = { rank: 0, states: [[0, "warm"]], steps: [1], phases: [],
      pauses: [[100, "evaluation"], [120, null]], recompiles: [{ at: 110 }] };
    drawLanes(plot, [rank], [100], (name) => name, null, () => []);
    return [letters, Math.max(...tips)];
  };
  const high = laneHeight(1) * devicePixelRatio;
  return [draw(high), draw(high / 2), bars[0], middle(1)];
}"""


def test_a_recompile_does_not_hide_the_letter_of_an_evaluation(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        (letters, tip), (low, _), bar, name = page.page.evaluate(MARKED)
    ((letter, top),) = letters
    assert letter == "E"
    assert tip <= top
    assert low == []
    assert bar == pytest.approx(name), "the name of a lane is in the middle of its bar"


JOINED = """async () => {
  const { Past } = await import("/page/past.js");
  const past = new Past();
  const recompile = (id, at) => ({ id, kind: "forward", at });
  const join = (at, steps, more) => past.join({ at,
    gpus: steps === null ? [] : [{ uuid: "gpu", utilization_ratio: steps, power_watts: steps }],
    ranks: steps === null ? [] : [{ run: "m", rank: 0, steps, step_seconds: steps,
      pauses: [[at[0], null]], recompiles: [], ...more }] });
  const shown = () => {
    const { steps, states, phases, recompiles } = past.ranks.get("0 m");
    return { at: past.at, steps, states, phases, recompiles: recompiles.map((one) => one.at) };
  };
  join([1, 2, 3, 4.2], [1, 2, 3, 4], { states: [[1, "warm"], [4.2, "recompiling"]],
    phases: [[1, null], [3, "dynamo"], [4.2, "inductor"]],
    recompiles: [recompile("0/1", 1.9), recompile("0/2", 2.9)] });
  const loaded = shown();
  join([3, 4.9, 5.9], [3, 5, 6], { states: [[3, "warm"], [4.9, "recompiling"], [5.9, "warm"]],
    phases: [[3, "dynamo"], [4.9, "inductor"], [5.9, null]],
    recompiles: [recompile("0/2", 2.901), recompile("0/3", 5.5)] });
  const followed = shown();
  join([5.9, 6.9], null);
  const gone = shown();
  join([305.5], null);
  return [loaded, followed, gone, past.ranks.size + past.gpus.size, past.at];
}"""


def test_newer_columns_replace_those_of_their_time(browser: Browser, tmp_path: Path) -> None:
    """The newest second was not over; a moment is the end of its second; nothing else remains."""
    with daemon(tmp_path) as url, visit(browser, url) as page:
        loaded, followed, gone, count, rest = page.page.evaluate(JOINED)
    assert loaded["states"] == [[1, "warm"], [pytest.approx(3.2), "recompiling"]]
    assert loaded["phases"][:2] == [[1, None], [2, "dynamo"]]
    assert (followed["at"], followed["steps"]) == ([1, 2, 3, 4.9, 5.9], [1, 2, 3, 5, 6])
    states = [[1, "warm"], [pytest.approx(3.9), "recompiling"], [pytest.approx(4.9), "warm"]]
    assert followed["states"] == states
    assert [name for _, name in followed["phases"]] == [None, "dynamo", "inductor", None]
    assert followed["recompiles"] == [1.9, 2.901, 5.5], "each once"
    assert (gone["steps"], gone["states"][-1][1]) == ([1, 2, 3, 5, None, None], None)
    assert (count, rest) == (0, [5.9, 6.9, 305.5])


PERIODS = """async () => {
  const { Charts } = await import("/page/charts.js");
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  const past = new Past();
  const charts = new Charts(document.getElementById("charts"), () => {});
  const add = (at, states) => {
    const rank = { run: "m", rank: 0, phase: null, compile_seconds: 0, step_seconds: 1 };
    const state = states.findLast(([from]) => from <= at)?.[1];
    past.add({ at, gpus: [], ranks: state ? [{ ...rank, state, steps: at }] : [] });
  };
  const window_ = (...states) => {
    past.clear();
    for (let at = 1; at <= 300; at += 1) add(at, states);
    charts.draw(past, place, null);
    return charts.window;
  };
  const shortest = (...states) => {
    const [begin, end] = window_(...states);
    let least = end - begin;
    for (let at = 301; at <= 500; at += 1) {
      add(at, states);
      charts.draw(past, place, null);
      least = Math.min(least, charts.window[1] - charts.window[0]);
    }
    return least;
  };
  return [
    window_([1, "warm"]), window_([200, "warm"]), window_([290, "warm"]),
    window_([100, "warm"], [200, "failed"]),
    window_([100, "warm"], [200, "failed"], [250, "warm"]),
    shortest([1, "warm"], [100, "failed"]), // its end leaves the range
  ];
}"""


def test_the_time_axis_begins_with_the_first_start_and_ends_with_the_last_end(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        assert page.page.evaluate(sampled(PERIODS)) == [
            *([1, 300], [199, 300], [240, 300]),
            *([99, 204], [99, 300]),
            60,
        ]


SLOWER = """async () => {
  const { slower } = await import("/page/lanes.js");
  const period = (began_at, ended_at) => ({ began_at, ended_at });
  return slower([
    { slower_periods: [period(null, 10), period(20, 30), period(40, null)] },
    { slower_periods: [period(1, 15), period(50, 60)] }, {},
  ], 15, 50);
}"""


def test_each_slower_period_is_shaded_on_the_chart_of_steps(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(SLOWER) == [[20, 30], [40, 50]]


GAPS = """async () => {
  const { stepped } = await import("/page/scales.js");
  const shown = (value) => (value === undefined ? "on" : value);
  const line = (one, at) => stepped(one, at).map(shown);
  const at = [0, 1, 2, 3, 4, 5, 6, 7];
  const lengths = Array(8).fill(0.1);
  const compiled = [[0, null], [2.5, "dynamo"], [4.5, null]];
  const within = [[0, null], [3, "dynamo"], [4, null]];
  const paused = [[0, null], [1.5, "evaluation"], [2.5, null]];
  return [
    line({ steps: [1, 2, 3, 3, 3, 4, 5, 6], step_seconds: lengths, phases: compiled }, at),
    line({ steps: [1, 2, 3, 4, 5, 6, 7, 8], step_seconds: lengths, phases: within }, at),
    line({ steps: [1, 2, 2, 2, 2, 2, 2, 3], step_seconds: lengths }, at),
    line({ steps: [1, 2, 2, 2, 2, 2, 2, 3], step_seconds: Array(8).fill(6) }, at),
    line({ steps: [1, 2, 2, 3, 4, 5, 6, 7], step_seconds: lengths, pauses: paused }, at),
    line({ steps: [1, 2, 3, 4, 4, 4, 4, 5], step_seconds: lengths, phases: within }, at),
  ];
}"""


def test_no_line_of_steps_crosses_a_compilation_a_pause_or_a_gap(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        compiled, within, silent, long, paused, ends = page.page.evaluate(GAPS)
    assert compiled == [0.1, 0.1, 0.1, "on", None, 0.1, 0.1, 0.1]
    assert within[2:5] == [0.1, None, None]  # what compiled is in the step, or shares its second
    assert silent == [0.1, 0.1, "on", "on", "on", "on", None, 0.1]
    assert long == [6, 6, "on", "on", "on", "on", "on", 6]
    assert paused[:4] == [0.1, 0.1, None, 0.1]
    assert ends == [0.1] * 3 + [None] * 4 + [0.1]  # uPlot would draw what is "on" after a gap


TICKS = """async () => {
  const { moments, roundUp, linear, logarithmic } = await import("/page/scales.js");
  const uneven = [];
  for (let span = 3; span <= 90000; span = Math.ceil(span * 1.03)) {
    for (const width of [230, 450, 700, 1200, 1450]) {
      for (const until of [1795415382, 1795415400, 1795415382 + span / 7]) {
        const labels = moments(until - span, until, width);
        const apart = ((labels[1] - labels[0]) / span) * width;
        const widest = labels.every((at) => at % 60 === 0) ? 36 : 54; // pixels of 18:10, 18:10:20
        const sides = [labels[0] - until + span, until - labels.at(-1)].map((side) => side / span);
        if (labels.length < 3 || Math.max(...sides) > 0.34 || (span > 5 && apart < widest)) {
          uneven.push([span, width, labels.length, apart, sides]);
        }
      }
    }
  }
  return [uneven, moments(1795415082, 1795415382, 1200), moments(58, 242, 230),
    [0.13, 0.2, 0.21, 7, 61].map(roundUp), linear(0.4), logarithmic(0.02, 7)];
}"""


def test_axes_have_round_labels_over_their_whole_width(browser: Browser, tmp_path: Path) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        uneven, wide, narrow, tops, linear, logarithmic = page.page.evaluate(TICKS)
    assert uneven == []
    assert wide == [1795415100, 1795415160, 1795415220, 1795415280, 1795415340]
    assert narrow == [60, 120, 180, 240]
    assert [round(one, 4) for one in tops] == [0.15, 0.2, 0.3, 8, 80]
    assert linear == [0, 0.2, 0.4]
    assert [round(one, 4) for one in logarithmic] == [0.01, 0.3162, 10]


STANDS = """async () => {
  const { standing } = await import("/page/hover.js");
  const line = [undefined, 21, undefined, undefined, null, undefined];
  return line.map((_, at) => standing(line, at));
}"""


def test_the_key_of_a_line_shows_its_last_value_during_a_long_step(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(STANDS) == [None, 21, 21, 21, None, None]


KEY_OF_A_RANK = """async () => {
  const { Charts } = await import("/page/charts.js");
  const past = new Past();
  const charts = new Charts(document.getElementById("charts"), () => {});
  const place = { run: "m", rank: null, with: null, at: null, from: null, to: null };
  const key = (at, state) => {
    const rank = { rank: 0, state, slower_periods: [],
      step_seconds: { recent: null, typical: 0.5, median: 0.4 } };
    const sample = { run: "m", rank: 0, state, phase: null, compile_seconds: 0,
      step_seconds: 7, a_step_seconds: 6, steps: at };
    past.add({ at, gpus: [], ranks: [sample] });
    charts.draw(past, place, { runs: [{ run: "m", ranks: [rank] }] }, { ranks: [sample] });
    return document.querySelector("[data-chart=steps] .keys b").textContent;
  };
  return [key(1, "warm"), key(2, "finished")];
}"""


def test_the_key_of_a_line_shows_the_same_speed_as_the_headline_and_the_table(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(sampled(KEY_OF_A_RANK)) == ["6 s", "500 ms (whole run)"]


STEP_IN_THE_TABLE = """async () => {
  const { showTables } = await import("/page/tables.js");
  const compile = { seconds: 1, varying: [], last: [] };
  const rank = { rank: 0, state: "warm", compile, gpus: [], step_seconds: { recent: 0.1 } };
  const answer = { runs: [{ run: "m", ranks: [rank] }], gpus: [], sources: [],
    refusals: [], observed: [] };
  const place = { run: null, rank: null, with: null };
  const shown = (sampled) => {
    showTables(answer, { ranks: sampled }, place);
    return document.querySelector("#ranks tbody [data-f=step]").textContent;
  };
  const steps = [shown([{ run: "m", rank: 0, a_step_seconds: 0.3 }]), shown([])];
  rank.conditions = [{ condition: "slower" }];
  shown([]);
  return [...steps, document.querySelector("#ranks tbody span[data-f=detail]").textContent];
}"""


def test_the_table_shows_the_newest_step_and_slowdown_like_the_headline(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(STEP_IN_THE_TABLE) == ["300 ms", "100 ms", "slower"]


SOURCES_WITHOUT_A_GPU = """async (gpus) => {
  const { showTables } = await import("/page/tables.js");
  const nvml = { source: "nvml", up: false, last_success: null, error: "no NVIDIA driver here" };
  const answer = { runs: [], gpus: [], refusals: [], observed: [], host: { pci_gpus: gpus },
    sources: [{ source: "host", up: true, last_success: 1, error: null }, nvml] };
  showTables(answer, { ranks: [] }, { run: null, rank: null, with: null });
  const [, row] = document.querySelectorAll("#sources tbody tr");
  const flag = row.querySelector("[data-flag]");
  const count = document.getElementById("sources-count").textContent;
  const seen = [...flag.children].filter((one) => getComputedStyle(one).display !== "none");
  const words = seen.map((one) => one.textContent).join();
  return [words, getComputedStyle(flag).fontWeight === "600", count];
}"""


def test_a_host_without_a_gpu_has_no_failed_source(browser: Browser, tmp_path: Path) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        shown = page.page.evaluate(SOURCES_WITHOUT_A_GPU, 0)
        assert shown == ["no NVIDIA GPU here", False, "1 of 1 up; no NVIDIA GPU here"]
        shown = page.page.evaluate(SOURCES_WITHOUT_A_GPU, 1)
        assert shown == ["no", True, "1 of 2 up; nvml: no NVIDIA driver here"]


WAITING = """async () => {
  const { showAnswer } = await import("/page/headline.js");
  const place = { run: null };
  const shown = (awaited, ...runs) => {
    showAnswer({ at: 9, awaited, summary: "", details: [], ranks: [], runs }, place);
    return document.title.replace(/ . Warmwatch$/, "");
  };
  const of = (run, state) => ({ run, state, state_words: state, title: state, clauses: [] });
  const ended = of("m", "finished"), living = of("n", "warm");
  return [shown(true), shown(true, ended), shown(false, ended), shown(true, ended, living)];
}"""


def test_the_page_of_a_command_that_has_not_begun_waits_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        waiting = "Waiting for the command"
        assert page.page.evaluate(WAITING) == [waiting, waiting, "m: finished", "n: warm"]


NO_STEPS = """async () => {
  const { Charts } = await import("/page/charts.js");
  const past = new Past();
  const charts = new Charts(document.getElementById("charts"), () => {});
  const place = { run: null, rank: null, with: null, at: null, from: null, to: null };
  const shown = (at, phase, step_seconds) => {
    const state = phase ? "compiling" : "warm";
    const rank = { run: "m", rank: 0, state, phase, compile_seconds: 5, step_seconds, steps: at };
    past.add({ at, gpus: [], ranks: [rank] });
    charts.draw(past, place, null);
    return !document.getElementById("no-steps").hidden;
  };
  const began = [shown(1, "inductor", null), shown(20, null, 19.5), shown(30, null, 0.1)];
  for (const one of past.ranks.values()) {
    one.states = [[1, "finished"]];
    one.step_seconds = one.step_seconds.map(() => null);
  }
  charts.draw(past, { ...place, run: "m" }, null);
  return [...began, !document.getElementById("no-steps").hidden];
}"""


def test_a_run_that_compiles_its_first_step_has_a_line_instead_of_the_plot(
    browser: Browser, tmp_path: Path
) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        assert page.page.evaluate(sampled(NO_STEPS)) == [True, True, False, False], (
            "not after its end"
        )


def test_a_chosen_run_that_has_ended_has_a_window_with_its_start(
    browser: Browser, tmp_path: Path
) -> None:
    old = warm("old", age=1000.0)
    write_record(tmp_path, ended(old, "finished"), name="old")
    with (
        held(write_record(tmp_path, warm("new"), name="new")),
        daemon(tmp_path) as url,
        visit(browser, url) as page,
    ):
        chosen = "document.querySelector('#range :checked').value"
        page.until(f"{chosen} === '300'")
        page.until("document.querySelectorAll('#run option').length === 3")
        page.page.select_option("#run", "old")
        page.until(f"{chosen} === '3600'")
        page.until(shows(", the last ", "sparks-time"))


CHART_WORDS = """async () => {
  const { Charts } = await import("/page/charts.js");
  const { showRuns } = await import("/page/runs.js");
  const past = new Past();
  const charts = new Charts(document.getElementById("charts"), () => {});
  const place = { run: "m", rank: null, with: null, at: null, from: null, to: null };
  const begin = 1795415100;
  const warm = { rank: 0, state: "warm", phase: null, compile_seconds: 0 };
  const ranks = (at) => [{ ...warm, run: "m", steps: at, step_seconds: 0.1 * at },
    { ...warm, run: "n", steps: at, step_seconds: 0.5 }, { ...warm, run: "o", steps: 7 }];
  for (const at of [1, 2, 3]) past.add({ at: begin + 60 * at, gpus: [], ranks: ranks(at) });
  const [first, second] = past.ranks.values();
  const answered = { run: "m", rank: 0, state: "warm", attached_at: begin, step_seconds: {} };
  const marks = (slower_periods) => {
    charts.draw(past, place, { runs: [{ run: "m", ranks: [{ ...answered, slower_periods }] }] });
    return [...document.querySelectorAll("#marks li")].map((one) => one.textContent.trim());
  };
  const none = marks([]);
  first.recompiles = [{ at: begin + 100 }];
  first.pauses = [[begin + 70, "evaluation"], [begin + 80, null]];
  const all = marks([{ began_at: begin + 100, ended_at: null }]);
  const axes = charts.plots.get("steps").plot.axes;
  const labels = (at, ...splits) => axes[at].values(charts.plots.get("steps").plot, splits);
  const clock = [labels(0, begin, begin + 60), labels(0, begin, begin + 30)];
  charts.begin = begin; // two runs, from their begins
  const since = [labels(0, begin, begin + 120, begin + 300), labels(0, begin, begin + 150)];
  second.phases = [[begin + 150, "inductor"], [begin + 160, null]];
  const runs = ["m", "n", "o"].map((run) => ({
    run, state: "warm", state_words: "warm", title: "warm", subtitle: "", clauses: [] }));
  showRuns({ at: begin + 180, runs, ranks: [] }, past, { ...place, run: null });
  const sparks = [...document.querySelectorAll("#runs svg title")].map((one) => one.textContent);
  return { none, all, clock, since, length: labels(1, 0, 0.25), sparks };
}"""


def test_axes_marks_and_sparklines_are_described(browser: Browser, tmp_path: Path) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        found = page.page.evaluate(sampled(CHART_WORDS))
    assert found["none"] == []
    assert [re.split(r"\s+", one)[-1] for one in found["all"]] == [
        *("recompile", "evaluation", "slower"),
    ]
    minutes, seconds = found["clock"]
    assert [len(one) for one in (*minutes, *seconds)] == [5, 5, 8, 8], "no seconds of whole minutes"
    assert found["since"] == [["0", "120 s", "300 s"], ["0", "150 s"]]
    assert found["length"] == ["0", "250 ms"]
    assert found["sparks"] == [
        "The last 120 s: 100 ms to 300 ms a step",
        "The last 120 s: 500 ms a step; shaded: 10 s of compilation",
        "The last 120 s: no step",
    ]


HOVER = """async () => {
  const { rankAt, valuesAt } = await import("/page/hover.js");
  const u = { cursor: { top: 0, left: 100 }, posToVal: () => 0, valToPos: (at) => at };
  const recompile = (at, name, more) => ({ at, called: name, seconds: 3, reason: "raw", ...more });
  const lane = { run: "m", rank: 1, states: [[50, "warm"]], phases: [[90, "inductor"]],
    pauses: [[95, "evaluation"]], recompiles: [recompile(99, "`f`", { plain: "its size" }),
      recompile(107, "`g`", { at_limit: true }), recompile(108, "`h`")] };
  const many = { ...lane, recompiles: Array(10).fill(recompile(100, "`f`")) };
  const at = (moment, one, periods) => rankAt(moment, "12:00", u, [one], () => periods);
  const lines = (count) => valuesAt(1, [0, 1], Array.from({ length: count },
    (_, rank) => [`rank ${rank}`, [9, rank]]), (value) => `${value} s`);
  return [at(100, lane, [[99, 101]]), at(100, many, []).slice(-2), at(10, lane, []),
    rankAt(100, "12:00", u, [], () => []), lines(2), lines(9)];
}"""


def test_the_pointer_shows_what_happened_there(browser: Browser, tmp_path: Path) -> None:
    with daemon(tmp_path) as url, visit(browser, url) as page:
        page.until(LIVE)
        lane, many, before, outside, few, crowd = page.page.evaluate(HOVER)
    assert lane == [
        "m rank 1, 12:00",
        "warm, inductor, evaluation, slower than before",
        "recompiled `f` in 3 s: its size",
        "reached the recompile limit `g`: raw",
    ]
    assert many == ["recompiled `f` in 3 s: raw", "and 2 more"]
    assert (before, outside) == (["m rank 1, 12:00", "not measured"], [])
    assert few == ["rank 0: 0 s", "rank 1: 1 s"]
    assert crowd == ["9 lines: 0 s to 8 s, median 4 s"]


def test_a_link_with_an_impossible_date_shows_now(browser: Browser, tmp_path: Path) -> None:
    with training(tmp_path), daemon(tmp_path) as url, visit(browser, url, "#at=1e300") as page:
        page.until(LIVE)
        page.until(shows("gpt2: compiling"))
        page.until("document.getElementById('at').textContent !== ''")
        assert page.errors == []


def test_only_the_files_of_the_page_are_served(tmp_path: Path) -> None:
    with daemon(tmp_path) as url:
        for name in FILES:
            reply = ask(url, f"/page/{name}")
            assert (reply.status, reply.headers["content-type"]) == (200, FILES[name])
            assert "default-src 'none'" in reply.headers["content-security-policy"]
        for name in ("nothing.js", "..%2fhttp.py", "library"):
            assert ask(url, f"/page/{name}").status == 404


def test_requested_names_of_files_are_not_cached() -> None:
    cached.file("index.html")
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(20_000):
        assert cached.file(f"nothing{number}") is None
    gc.collect()
    assert sys.getallocatedblocks() - before < 10_000
