"""The page at ``/``, in a real browser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support import builders as b
from support.browser import chromium, visit
from support.builders import categories
from support.daemon import daemon, daemon_process
from support.documents import status
from support.records import ended, held, ranks_of, wait_until, warm, write_record
from support.training_standin import training
from support.values import replace
from support.web import ask
from warmwatch.shared.advice import ADVICE
from warmwatch.shared.reasons import plain
from warmwatch_monitor.output.summary import details_of
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
        assert asked.isdisjoint({"status", "history"})
        page.page.evaluate(SHOW)
        # playwright reports requests only within a call of it
        wait_until(lambda: page.text("#seen") and asked >= {"status", "history"})


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
        assert left_out == f"and 2 more recompiles: warmwatch report {shlex.quote(run)} -v"
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
            "and 1 more recompile: warmwatch report o -v",
        ]


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


def test_only_the_files_of_the_page_are_served(tmp_path: Path) -> None:
    with daemon(tmp_path) as url:
        for name in FILES:
            reply = ask(url, f"/page/{name}")
            assert (reply.status, reply.headers["content-type"]) == (200, FILES[name])
            assert "default-src 'none'" in reply.headers["content-security-policy"]
        for name in ("nothing.js", "..%2fhttp.py", "library"):
            assert ask(url, f"/page/{name}").status == 404
