"""``warmwatch top``: its screen, its keys, and hostile answers."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from support import builders as b
from support import golden, training_standin
from support.daemon import daemon
from support.documents import status
from support.proxy import proxy
from support.records import compiling, held, wait_until, write_record
from support.screens import Screen, screen, second_of
from support.terminal import terminal
from support.values import replace
from warmwatch.shared.states import State
from warmwatch_monitor.base.errors import NO_RECENT_RUN, NoDaemonError
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.top.app import Top
from warmwatch_monitor.model.journal import Cost
from warmwatch_monitor.model.records import FunctionCost
from warmwatch_monitor.model.snapshot import RankView

SMALL, LARGE = (80, 24), (160, 50)
# in the golden files, which another wording must not change
WHY = "batch size (dim 0 of `i`) went from 16 to 14"
FUNCTION = FunctionCost(
    name="torch_dynamo_resume_in_forward_at_131",
    file="model.py",
    line=131,
    compilations=3,
    seconds=32.0,
    cache_misses=2,
    cost=Cost(phase_seconds={"dynamo": 2.0, "inductor": 38.0}, ops=130, kernels=186),
)


def answer_of(*views: RankView, **rest: Any) -> dict[str, Any]:
    """A daemon's answer, with ``WHY`` as the reason of every recompile."""
    answer = {**status(b.snapshot(*views, **rest)), "at": b.EPOCH}
    fixed: dict[str, Any] = json.loads(json.dumps(answer).replace(b.WHY, WHY))
    return fixed


def every_state() -> dict[str, Any]:
    return answer_of(*(b.in_every_state(f"run-{state.value}")[state.value] for state in State))


def ranks(count: int) -> list[RankView]:
    """``count`` of a run, of which rank 3 compiles again."""
    log = {"recompile": b.RECOMPILE, "functions": (FUNCTION,)}
    return [
        b.view(
            b.as_rank(b.RECOMPILING if rank == 3 else b.WARM, rank, count),
            compilations=(b.RECOMPILATION,) if rank == 3 else (),
            journal=log if rank == 3 else {},
        )
        for rank in range(count)
    ]


def training(count: int, seconds: int) -> Iterator[dict[str, Any]]:
    """``count`` ranks over time, one a second: steps, a compilation after half of it, GPUs."""
    gpu = b.gpu(temperature_celsius=61.0)
    other = b.gpu(1, throttled=(("power_cap", True),))
    first = answer_of(*ranks(count), gpus=(gpu, other))
    for second in range(seconds):
        answer = copy.deepcopy(first)
        compiles = second >= seconds / 2
        answer["at"] += second
        answer["gpus"][0]["power_watts"] = 118.0 if compiles else 686.0
        for rank in answer["runs"][0]["ranks"]:
            rank["gpus"] = [gpu.uuid]
            rank["steps"] += min(second, seconds // 2)
            rank["step_seconds"]["last_second"] = 0.036 * (1 + second % 5 / 10)
            rank["compile"]["phase"] = None
        compile = answer["runs"][0]["ranks"][3]["compile"]
        if compiles:
            compile["seconds"] += second
            compile["phase"] = "kernel_compile"
            compile["progress"] = {"of": "kernels", "done": second, "total": 86}
        yield answer


def looks(
    answers: Iterator[dict[str, Any]],
    size: tuple[int, int],
    then: Callable[[Screen], Awaitable[None]],
) -> None:
    """Show every one of ``answers``, and do what ``then`` does."""
    known = list(answers)
    rest = iter(known)

    async def run() -> None:
        made: list[dict[str, Any]] = []

        def ask() -> dict[str, Any]:
            made.append(next(rest))
            return made[-1]

        async with screen(ask, size, lambda _: second_of(made[-1])) as shown:
            for _ in known[1:]:
                await shown.look()
            await then(shown)

    asyncio.run(run())


def drawn(answers: Iterator[dict[str, Any]], size: tuple[int, int], *keys: str) -> str:
    """The screen after ``keys``."""
    found: list[str] = []

    async def then(shown: Screen) -> None:
        await shown.press(*keys)
        found.append(shown.text)

    looks(answers, size, then)
    return found[0]


def same(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield answer


BACKWARD = {"file": "model.py", "line": 31, "reason": None, "category": None, "backward": True}


def test_the_chosen_rank_compiles_what_the_sentence_names() -> None:
    answer = answer_of(b.in_every_state()["compiling"])
    (rank,) = answer["runs"][0]["ranks"]
    underway = {**BACKWARD, "name": "forward"}
    for counted in (None, {"of": "kernels", "done": 0, "total": 7}):
        rank["compile"] |= {"underway": underway, "progress": counted}
        shown = drawn(same(answer), LARGE, "enter")
        assert "the backward of `forward` (model.py:31)" in shown


@pytest.mark.parametrize(
    ("size", "pictures"),
    [
        (
            SMALL,
            {
                "top_80x24": (),
                "top_80x24_opened": ("enter",),
                "top_80x24_functions": ("enter", "3"),
                "top_80x24_recompiles": ("2",),
                "top_80x24_help": ("question_mark",),
            },
        ),
        (LARGE, {"top_160x50": (), "top_160x50_each": ("e", "4")}),
    ],
)
def test_the_screen_matches_the_reviewed_one(
    tmp_path: Path, size: tuple[int, int], pictures: dict[str, tuple[str, ...]]
) -> None:
    """64 ranks, of which one compiles and has done so for half of the time."""
    drawn: dict[str, str] = {}

    async def then(shown: Screen) -> None:
        for name, keys in pictures.items():
            await shown.press(*keys)
            drawn[name] = shown.text

    looks(training(64, 12), size, then)
    for name, text in drawn.items():
        golden.check(f"{name}.txt", text, tmp_path)


@pytest.mark.parametrize(("name", "size"), [("top_states_80x24", SMALL), ("top_states", LARGE)])
def test_the_list_shows_every_state(tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    golden.check(f"{name}.txt", drawn(same(every_state()), size), tmp_path)


def rows(text: str) -> list[str]:
    """The first cell of each row of the list."""
    below = text.split("  state  ", 1)[1].splitlines()[1:]
    found = []
    for line in below:
        if not line.strip():
            return found
        found.append(line.split()[0])
    return found


def test_a_filter_shows_matching_rows_until_esc() -> None:
    async def then(shown: Screen) -> None:
        await shown.press("slash", *"WARM")
        assert rows(shown.text) == ["run-warming", "run-warm"]
        assert "filter: WARM" in shown.text
        await shown.press("enter", "s")
        assert rows(shown.text) == ["run-warm", "run-warming"], (
            "by run, and the keys are keys again"
        )
        await shown.press("slash", "escape")
        assert len(rows(shown.text)) > 2

    looks(same(every_state()), LARGE, then)


@pytest.mark.parametrize(
    "keys",
    [("q",), ("ctrl+c",), ("question_mark", "q"), ("question_mark", "ctrl+c"), ("slash", "ctrl+c")],
)
def test_it_quits_by_the_keys_that_the_help_lists(keys: tuple[str, ...]) -> None:
    """Also while the help or the filter has the keys."""

    async def then(shown: Screen) -> None:
        await shown.press(*keys[:-1])
        assert not shown.closed
        await shown.press(keys[-1])
        assert shown.closed

    looks(same(every_state()), SMALL, then)


def test_the_order_can_be_changed_and_reversed() -> None:
    async def then(shown: Screen) -> None:
        first = rows(shown.text)
        assert first[0] == "run-stalled", "the worst first"
        await shown.press("s")
        assert rows(shown.text) == sorted(first)
        await shown.press("r")
        assert rows(shown.text) == sorted(first, reverse=True)

    looks(same(every_state()), LARGE, then)


def test_a_paused_screen_sends_no_requests() -> None:
    requests = [0]

    def ask() -> dict[str, Any]:
        requests[0] += 1
        return every_state()

    async def run() -> None:
        async with screen(ask, SMALL) as shown:
            await shown.press("p")
            await shown.look()
            assert (requests[0], "paused" in shown.text) == (1, True)
            await shown.press("p")
            await shown.look()
            assert requests[0] > 1
            assert "paused" not in shown.text

    asyncio.run(run())


@pytest.mark.parametrize(
    "trouble", [NoDaemonError("no daemon answers at x"), KeyError("a bug of ours")]
)
def test_an_error_is_shown_with_the_last_answer(trouble: Exception) -> None:
    answers = iter([every_state()])

    def ask() -> dict[str, Any]:
        for answer in answers:
            return answer
        raise trouble

    async def run() -> None:
        async with screen(ask, LARGE) as shown:
            before = rows(shown.text)
            await shown.look()
            assert "old: " in shown.text
            assert str(trouble).strip("'") in shown.text
            assert rows(shown.text) == before

    asyncio.run(run())


def test_a_daemon_without_history_works() -> None:
    refused = threading.Event()

    def past(_: int) -> dict[str, Any]:
        refused.set()
        raise NoDaemonError("it answers with HTTP 404")

    async def run() -> None:
        async with screen(every_state, LARGE, past) as shown:
            assert await asyncio.to_thread(refused.wait, 60)
            await shown.look()
            assert "404" not in shown.text
            assert rows(shown.text)[0] == "run-stalled"

    asyncio.run(run())


def test_top_waits_for_an_unknown_run() -> None:
    def ask() -> dict[str, Any]:
        raise NoDaemonError("no run named 'x'")

    async def run() -> None:
        async with screen(ask, SMALL) as shown:
            assert shown.text.startswith("no run named 'x'")

    asyncio.run(run())


def test_names_of_runs_are_never_markup() -> None:
    """A command escapes what steers a terminal; what Textual or rich would read is left."""
    name = "[bold red]gpt[/] [@click=app.quit]x[/]"
    slot = replace(b.RECOMPILING, identity=replace(b.RECOMPILING.identity, run=name))
    compilation = replace(b.RECOMPILATION, reason="[link=x]y[/link] :smile:", name="[i]f[/i]")
    view = b.view(slot, compilations=(compilation,))
    text = drawn(same(answer_of(view)), LARGE, "2")
    for words in (name, "[i]f[/i]"):
        assert words in text
    assert "😄" not in text


@pytest.mark.parametrize("size", [(20, 5), (200, 70)])
def test_every_screen_size_works(size: tuple[int, int]) -> None:
    assert drawn(training(8, 3), size, "enter", "2", "3", "4", "5", "1", "enter", "e")


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_top_reads_the_records_until_the_user_quits(tmp_path: Path, key: str) -> None:
    with (
        held(write_record(tmp_path, compiling())),
        terminal("top", "--interval", "0.2", "--dir", str(tmp_path)) as shown,
    ):
        shown.read_until("gpt2: compiling")
        shown.type(key)
        assert shown.read_to_end() == 0
    assert "Traceback" not in shown.written


@pytest.mark.slow
def test_with_a_daemon_it_sends_a_request_each_second(tmp_path: Path) -> None:
    with (
        training_standin.training(tmp_path) as one,
        daemon(tmp_path) as url,
        proxy(url) as before,
        terminal("top", "--address", before.address) as shown,
    ):
        shown.read_until("gpt2: compiling")
        one.warm()
        shown.read_until("warm")
        asked = len(before.polls)
        wait_until(lambda: len(before.polls) > asked + 2)
        shown.type("q")
        assert shown.read_to_end() == 0
    assert "Traceback" not in shown.written


def test_a_character_that_is_not_utf_8_ends_it_with_one_sentence(tmp_path: Path) -> None:
    with terminal("top", "--dir", str(tmp_path)) as shown:
        shown.read_until(NO_RECENT_RUN)
        shown.type(b"\xff")
        assert shown.read_to_end() == 1
    assert "warmwatch: a typed character is not UTF-8; set the terminal's" in shown.written
    assert "Traceback" not in shown.written


def test_a_defect_of_the_screen_exits_with_1(tmp_path: Path) -> None:
    broken = "from warmwatch_monitor.commands.top.app import Top; Top.draw = lambda _: 1 / 0"
    (tmp_path / "sitecustomize.py").write_text(broken)
    with terminal("top", "--dir", str(tmp_path), PYTHONPATH=str(tmp_path)) as shown:
        assert shown.read_to_end() == 1
    assert "ZeroDivisionError" in shown.written


def test_a_requested_daemon_that_does_not_answer_is_an_error() -> None:
    with terminal("top", "--address", "127.0.0.1:1") as shown:
        assert shown.read_to_end() == 6
    assert shown.written.startswith("warmwatch: no daemon answers at 127.0.0.1:1")


def test_without_a_terminal_it_is_refused_but_prints_json(tmp_path: Path) -> None:
    refused = CliRunner().invoke(cli, ["top"])
    assert refused.exit_code == 2
    assert "top needs a terminal; `warmwatch status` prints the answer once" in refused.stderr
    printed = CliRunner().invoke(cli, ["top", "--json", "--dir", str(tmp_path)])
    assert (printed.exit_code, json.loads(printed.stdout)["schema_version"]) == (0, 1)


@pytest.mark.parametrize("interval", ["0", "nan", "soon"])
def test_an_invalid_interval_is_refused(interval: str) -> None:
    refused = CliRunner().invoke(cli, ["top", "--interval", interval])
    assert refused.exit_code == 2
    assert "Invalid value for '--interval'" in refused.stderr


def test_without_colours_the_text_is_in_those_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Top(dict, 1.0)
    shown = [Segment("warm", Style.parse("green"))]
    for one in app.get_line_filters():
        shown = one.apply(shown, Color(0, 0, 0))
    style = shown[0].style
    assert style is not None
    assert style.color is not None
    assert style.color.is_default
    assert style.bgcolor is None or style.bgcolor.is_default
