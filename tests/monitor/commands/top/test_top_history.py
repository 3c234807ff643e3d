"""The history behind the plots of ``top``, and how a plot is drawn."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support import builders as b
from support.daemon import daemon
from support.documents import status
from support.prometheus import prometheus_process, scraping
from support.records import held, wait_until, warm, write_record
from support.screens import second_of
from warmwatch_monitor.base.errors import UnknownRunError
from warmwatch_monitor.commands.top.chart import GUTTER, Series, Window, chart
from warmwatch_monitor.commands.top.history import History
from warmwatch_monitor.commands.top.polling import Feed

WHOSE = ("gpt2", 0)
UUID = b.gpu().uuid


def answer(**values: Any) -> dict[str, Any]:
    """A warm rank's; ``values``: ``steps``, ``length``, ``watts``, or a key of ``compile``."""
    found = status(b.snapshot(b.in_every_state()["warm"], gpus=(b.gpu(),)))
    rank = found["runs"][0]["ranks"][0]
    rank["steps"] = values.get("steps", rank["steps"])
    rank["step_seconds"]["last_second"] = values.get("length", 0.036)
    for key in ("phase", "progress"):
        rank["compile"][key] = values.get(key, rank["compile"][key])
    found["gpus"][0]["power_watts"] = values.get("watts", 686.0)
    return found


def seen(*answers: dict[str, Any]) -> History:
    """One a second."""
    history = History()
    for at, one in enumerate(answers):
        history.add(one, float(at))
        history.join(second_of(one, float(at)))
    return history


def test_each_step_is_a_point_of_one_second() -> None:
    history = seen(
        answer(steps=5, length=9.0),
        answer(steps=6, length=1.0),
        answer(steps=6, length=1.0),
        answer(steps=8, length=2.0),
    )
    assert history.steps(WHOSE) == [(1.0, 1.0), (3.0, 2.0)]
    assert history.steps(WHOSE, 2.0) == [(3.0, 2.0)]
    assert history.steps(("another", 0)) == []


def test_a_step_with_compilation_is_no_point() -> None:
    """Its 4 s show no speed, although it ends a second after the compilation."""
    history = seen(
        answer(steps=0, phase="inductor"),
        answer(steps=0, phase="inductor"),
        answer(steps=1, length=4.0),
        answer(steps=9, length=0.1),
        answer(steps=15, length=0.1, phase="dynamo"),
    )
    assert history.steps(WHOSE) == [(3.0, 0.1)]


def test_a_new_run_of_the_same_name_does_not_show_the_earlier_one() -> None:
    earlier = [answer(steps=at, length=2.4, phase="dynamo") for at in (500, 501, 502)]
    history = seen(*earlier, answer(steps=0), answer(steps=0, phase="inductor"))
    assert history.steps(WHOSE) == []
    assert history.compiling(WHOSE) == [(3.0, 4.0)]


def test_compile_activity_is_an_interval_from_the_second_before() -> None:
    phases = (None, "dynamo", None, "dynamo", "inductor")
    history = seen(*(answer(phase=phase) for phase in phases))
    assert history.compiling(WHOSE) == [(0.0, 1.0), (2.0, 4.0)]
    assert history.compiling(("another", 0)) == []


def test_the_time_left_needs_a_rate() -> None:
    def kernels(*done: int, total: int = 86) -> float | None:
        answers = [answer(progress={"of": "kernels", "done": n, "total": total}) for n in done]
        return seen(*answers).seconds_left(WHOSE)

    assert kernels(10, 12) is None, "two kernels are no rate"
    assert kernels(10, 40) is None, "nor is one second"
    assert kernels(10, 20, 30) == pytest.approx(5.6)
    assert kernels(10, 20, 5) is None, "the count started again"
    assert seen(answer()).seconds_left(WHOSE) is None


def past(since: int, until: int, watts: float = 5.0, **columns: list[Any]) -> dict[str, Any]:
    """The columns of these seconds, with a step in each."""
    at = [float(second) for second in range(since, until)]
    rank = {"run": "gpt2", "rank": 0, "steps": list(range(since, until))}
    rank |= {"step_seconds": [0.036] * len(at), "phases": [[at[0], None]], **columns}
    gpu = {"uuid": UUID, "power_watts": [watts] * len(at), "utilization_ratio": [0.5] * len(at)}
    return {"at": at, "ranks": [rank], "gpus": [gpu]}


@pytest.mark.parametrize(
    ("until", "now", "seconds"),
    [
        (None, 5.0, 3600),
        (10, 10.0, 10),  # the newest is of 9
        (10, 16.5, 20),
        (10, 8.0, 10),  # columns may be newer than the answer
        (10, 4.0, 3600),  # the clock was set back
        (10, 9000.0, 3600),
        (901, 901.0, 3600),  # now and then all, in fewer values
    ],
)
def test_it_requests_what_is_missing_and_the_newest_seconds_again(
    until: int | None, now: float, seconds: int
) -> None:
    """In steps of ten, so that several clients share an answer."""
    history = History()
    if until is not None:
        assert history.missing(1.0) == 3600
        history.join(past(0, until))
    assert history.missing(now) == seconds


@pytest.mark.slow
def test_the_columns_are_of_the_daemon_or_of_what_top_has_read(tmp_path: Path) -> None:
    with (
        held(write_record(tmp_path / "records", warm())),
        daemon(tmp_path / "records") as url,
        prometheus_process(tmp_path, scraping(url)) as prometheus,
    ):
        sources = {"address": url.removeprefix("http://"), "dir": str(tmp_path / "records")}
        for source in (*sources.items(), ("prometheus", prometheus)):
            feed = Feed(None, **dict([source]))
            wait_until(partial(seen_by, feed))
            (rank,) = (feed.past(10) or {})["ranks"]
            assert (rank["run"], rank["steps"][-1]) == ("gpt2", 9), source
            assert [name for _, name in rank["states"]][-1] == "warm", source


def seen_by(feed: Feed) -> Any:
    """The ranks in its columns, after another poll."""
    with suppress(UnknownRunError):
        feed.answer()
    return (feed.past(10) or {"ranks": []})["ranks"]


def plot(
    *points: tuple[float, float],
    spans: tuple[tuple[float, float], ...] = (),
    most: float | None = None,
    width: int = 10,
    height: int = 2,
) -> list[str]:
    """Ten seconds in ``width`` columns, without what is left of them."""
    series = Series("x", points, str, most)
    lines = chart(series, spans, Window(10.0, 10.0), GUTTER + width, height)
    return [line.plain[GUTTER:] for line in lines]


def test_compile_intervals_are_shaded_and_make_no_scale() -> None:
    """The first step, which compiled for minutes, would make all others flat.

    The lowest row alone is shaded: a block of shades would hide the plot.
    """
    points = ((1.5, 100.0), (2.5, 1.0), (3.5, 2.0))
    assert plot(*points, spans=((0.5, 1.7),)) == [" █ █      ", "░███      "]


def test_columns_between_two_polls_are_filled_except_for_gaps() -> None:
    points = ((0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (8.0, 1.0), (9.0, 1.0))
    assert plot(*points, width=20, height=1) == ["█████           ███ "]


@pytest.mark.parametrize("height", [1, 2, 5])
def test_a_plot_fits_its_place(height: int) -> None:
    lines = chart(
        Series("a name that is longer than its place", [(5.0, 1e9)], str, 1.0),
        [(-5.0, 50.0)],
        Window(10.0, 10.0),
        40,
        height,
    )
    assert [line.cell_len for line in lines] == [40] * height
