"""``warmwatch top`` with a daemon: each second by its samples, and by few answers."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.daemon import daemon
from support.documents import status
from support.proxy import proxy
from support.records import wait_until
from support.screens import Screen, screen
from support.terminal import terminal
from support.training_standin import training
from support.values import replace
from warmwatch_monitor.commands.top.samples import Update, with_sample
from warmwatch_monitor.model import RankView
from warmwatch_monitor.output.amounts import a_step
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.server.api.last_hour_columns import sample as sample_of

STATES = b.in_every_state()
SIZE = (80, 24)


def answer_and_sample(
    *views: RankView, after: float = 0.0, **rest: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer and the sample of one moment."""
    snapshot = replace(b.snapshot(*views, **rest), epoch=b.EPOCH + after)
    answer = {**status(snapshot), "at": b.EPOCH + after}
    return copy.deepcopy(answer), json.loads(json_body(sample_of(snapshot)).plain)


def stepped(view: RankView, steps: int) -> RankView:
    """``view`` at this step, with as many clean steps more."""
    counted = view.figures.steps
    clean = view.judgement.clean_steps + steps - counted.count
    return replace(
        view,
        figures=replace(view.figures, steps=replace(counted, count=steps)),
        judgement=replace(view.judgement, clean_steps=clean),
    )


def test_a_sample_brings_an_answer_to_its_moment() -> None:
    """The screen shows the same as after a request."""
    gpu = b.gpu()
    before, _ = answer_and_sample(STATES["warm"], gpus=(gpu,))
    later, sample = answer_and_sample(
        stepped(STATES["warm"], 4711), after=1, gpus=(replace(gpu, power_watts=1.5),)
    )
    assert with_sample(before, sample) == later


def test_progress_is_from_the_sample() -> None:
    before, _ = answer_and_sample(STATES["compiling"])
    counting = replace(b.COMPILING.compile, progress_of=1, progress_done=31, progress_total=86)
    _, sample = answer_and_sample(b.view(replace(b.COMPILING, compile=counting)), after=1)
    now = with_sample(before, sample)["runs"][0]
    assert now["ranks"][0]["compile"]["progress"] == {"of": "kernels", "done": 31, "total": 86}
    assert "kernels 31 of 86" in now["summary"]


def test_the_age_of_the_last_step_is_from_the_sample() -> None:
    before, _ = answer_and_sample(STATES["warm"])
    _, sample = answer_and_sample(STATES["warm"], after=1)
    sample["ranks"][0]["last_step_age_seconds"] = 56.0
    (rank,) = with_sample(before, sample)["runs"][0]["ranks"]
    assert rank["last_step_age_seconds"] == 56.0


def test_the_step_in_the_table_is_the_one_in_the_sentence() -> None:
    before, _ = answer_and_sample(STATES["warm"])
    figures = STATES["warm"].figures
    slower = replace(figures, steps=replace(figures.steps, recent=1.5))
    _, sample = answer_and_sample(replace(STATES["warm"], figures=slower), after=1)
    (run,) = with_sample(before, sample)["runs"]
    assert ": 1.5 s a step" in run["summary"]
    assert a_step(run["ranks"][0]) == 1.5
    sample["ranks"][0]["a_step_seconds"] = None
    (run,) = with_sample(before, sample)["runs"]
    assert a_step(run["ranks"][0]) == a_step(before["runs"][0]["ranks"][0])


def test_a_rank_in_another_state_waits_for_the_answer() -> None:
    before, _ = answer_and_sample(STATES["warm"])
    _, sample = answer_and_sample(STATES["recompiling"], after=1)
    now = with_sample(before, sample)
    assert now["runs"][0]["ranks"] == before["runs"][0]["ranks"]
    assert now["summary"].startswith("gpt2: recompiling")


def test_the_sentence_covers_only_the_selected_runs() -> None:
    other = b.in_every_state("bert")["compiling"]
    before, _ = answer_and_sample(STATES["warm"])
    _, sample = answer_and_sample(STATES["warm"], other, after=1)
    assert with_sample(before, sample)["summary"].startswith("gpt2: warm")


@pytest.mark.parametrize("change", [{"late_seconds": 7.0}, {"at": b.EPOCH}])
def test_a_sample_that_is_late_or_earlier_changes_nothing(change: dict[str, Any]) -> None:
    before, _ = answer_and_sample(STATES["warm"])
    _, sample = answer_and_sample(stepped(STATES["warm"], 4711), after=1)
    assert with_sample(before, {**sample, **change}) is before


class Ear:
    """Hears what it is given, one after the other."""

    def __init__(self, *updates: Update) -> None:
        self._updates, self.requests = list(updates), 0
        self._over = threading.Event()

    def __call__(self) -> Update:
        self._over.wait(0.01)
        return self._updates.pop(0) if len(self._updates) > 1 else self._updates[0]


def shown(
    ear: Callable[[], Update], then: Callable[[Screen, list[float]], Any], seconds: float
) -> None:
    requests: list[float] = []
    answer, _ = answer_and_sample(STATES["warm"])

    def ask() -> dict[str, Any]:
        requests.append(time.monotonic())
        return answer

    async def run() -> None:
        async with screen(ask, SIZE, receive=ear, seconds=seconds) as one:
            await then(one, requests)

    asyncio.run(run())


@pytest.mark.slow
def test_an_event_causes_one_request_and_a_sample_is_drawn() -> None:
    _, sample = answer_and_sample(stepped(STATES["warm"], 4711), after=50_000)
    update = Update(is_live=True, changed=False, sample=sample)

    began = time.monotonic()  # the time of a request is taken just before it

    async def then(one: Screen, requests: list[float]) -> None:
        while "4711" not in one.text or len(requests) < 2:
            await one.settle()
        for _ in range(20):
            await one.settle()
        assert len(requests) == 2
        assert requests[1] - began >= 1

    shown(Ear(update._replace(changed=True, sample=None), update), then, 86400.0)


@pytest.mark.parametrize("nonsense", [{}, {"late_seconds": None, "at": 1e12, "runs": 1}])
def test_an_invalid_sample_is_ignored(nonsense: dict[str, Any]) -> None:
    async def then(one: Screen, _: list[float]) -> None:
        for _ in range(10):
            await one.settle()
        assert "gpt2: warm" in one.text

    shown(Ear(Update(is_live=True, changed=False, sample=nonsense)), then, 1.0)


def test_an_error_in_listening_is_shown_and_polling_continues() -> None:
    drawn, asking, seen = threading.Event(), threading.Event(), threading.Event()
    requests: list[float] = []
    answer, _ = answer_and_sample(STATES["warm"])

    def broken() -> Update:
        asking.wait()
        raise KeyError("a bug of ours")

    def ask() -> dict[str, Any]:
        requests.append(time.monotonic())
        if drawn.is_set():
            asking.set()
            seen.wait()  # an answer takes the words away
        return answer

    async def run() -> None:
        async with screen(ask, SIZE, receive=broken, seconds=0.2) as one:
            while "gpt2: warm" not in one.text:
                await one.draw()
            drawn.set()
            while "a bug of ours" not in one.text:
                await one.draw()
            seen.set()
            known = len(requests)
            while len(requests) < known + 2 or "a bug of ours" in one.text:
                await one.draw()

    asyncio.run(run())


@pytest.mark.slow
def test_with_a_daemon_samples_update_the_screen_and_requests_are_rare(tmp_path: Path) -> None:
    """Every five seconds for what no sample has, and when something happened."""
    with (
        training(tmp_path) as one,
        daemon(tmp_path) as url,
        proxy(url) as before,
        terminal("top", "--address", before.address) as seen,
    ):
        seen.read_until("gpt2: compiling")
        wait_until(lambda: before.is_caught_up)
        known, began, since = len(before.polls), time.monotonic(), len(seen.written)
        while len(set(re.findall(r"for (\d+)", seen.written[since:]))) < 7:
            seen.read()
        requests, seconds = len(before.polls) - known, time.monotonic() - began
        assert requests <= seconds / 5 + 2
        one.warm()
        seen.read_until("warm")
        seen.type("q")
        assert seen.read_to_end() == 0
    assert "Traceback" not in seen.written


@pytest.mark.slow
def test_without_events_it_sends_a_request_each_second(tmp_path: Path) -> None:
    with training(tmp_path) as one, daemon(tmp_path) as url, proxy(url) as before:
        before.treatment = lambda peer: peer.recv(1)  # hangs
        with terminal("top", "--address", before.address) as seen:
            seen.read_until("gpt2: compiling")
            wait_until(lambda: before.event_requests)
            one.warm()
            seen.read_until("warm")
            known = len(before.polls)
            wait_until(lambda: len(before.polls) > known + 2)
            seen.type("q")
            assert seen.read_to_end() == 0
