"""The history behind the plots of ``top``, and how a plot is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.style import Style

from support import builders as b
from support.daemon import daemon
from support.documents import status
from support.records import held, wait_until, warm, write_record
from warmwatch_monitor.client.answers import past_of
from warmwatch_monitor.commands.top import history as module
from warmwatch_monitor.commands.top.chart import GUTTER, Series, Window, axis, chart, spark
from warmwatch_monitor.commands.top.history import History, frames

WHOSE = ("gpt2", 0)
UUID = b.gpu().uuid


def answer(**values: Any) -> dict[str, Any]:
    """A warm rank's; ``values``: ``steps``, ``length``, ``watts``, or a key of ``compile``."""
    found = status(b.snapshot(b.in_every_state()["warm"], gpus=(b.gpu(),)))
    rank = found["runs"][0]["ranks"][0]
    rank["steps"] = values.get("steps", rank["steps"])
    rank["step_seconds"]["last_second"] = values.get("length", 0.036)
    for key in ("phase", "seconds", "progress"):
        rank["compile"][key] = values.get(key, rank["compile"][key])
    found["gpus"][0]["power_watts"] = values.get("watts", 686.0)
    return found


def seen(*answers: dict[str, Any]) -> History:
    """One a second."""
    history = History()
    for at, one in enumerate(answers):
        history.add(one, float(at))
    return history


def test_each_step_is_a_point_of_one_poll() -> None:
    history = seen(
        answer(steps=5, length=9.0),
        answer(steps=6, length=1.0),
        answer(steps=6, length=1.0),
        answer(steps=8, length=2.0),
    )
    assert history.steps(WHOSE) == [(1.0, 1.0), (3.0, 2.0)]


def test_a_step_with_compilation_is_no_point() -> None:
    """Its 4 s show no speed, although it ends a poll after the compilation."""
    history = seen(
        answer(steps=0, seconds=1.0, phase="inductor"),
        answer(steps=0, seconds=2.0),
        answer(steps=1, seconds=2.0, length=4.0),
        answer(steps=9, seconds=2.0, length=0.1),
        answer(steps=15, seconds=2.2, length=0.1),
    )
    assert history.steps(WHOSE) == [(3.0, 0.1)]


def test_a_new_run_of_the_same_name_does_not_show_the_earlier_one() -> None:
    earlier = [answer(steps=at, seconds=at / 5, length=2.4) for at in (500, 501, 502)]
    begun = answer(steps=0, seconds=0.0), answer(steps=0, seconds=1.0, phase="inductor")
    history = seen(*earlier, *begun)
    assert history.steps(WHOSE) == []
    assert history.compiling(WHOSE) == [(3.0, 4.0)]


def test_compile_activity_between_two_polls_is_an_interval() -> None:
    """It was over before the second; what it took tells of it."""
    history = seen(
        answer(seconds=10.0),
        answer(seconds=10.1),
        answer(seconds=10.1),
        answer(seconds=10.2, phase="dynamo"),
        answer(seconds=11.0, phase="inductor"),
    )
    assert history.compiling(WHOSE) == [(0.0, 1.0), (2.0, 4.0)]


def test_a_missing_gpu_value_is_no_point() -> None:
    history = seen(answer(), answer(watts=None), answer(watts=0.0))
    assert history.watts(UUID) == [(0.0, 686.0), (2.0, 0.0)]
    assert history.watts("another") == []


def test_the_time_left_needs_a_rate() -> None:
    def kernels(*done: int, total: int = 86) -> float | None:
        answers = [answer(progress={"of": "kernels", "done": n, "total": total}) for n in done]
        return seen(*answers).seconds_left(WHOSE)

    assert kernels(10, 12) is None, "two kernels are no rate"
    assert kernels(10, 40) is None, "nor is one second"
    assert kernels(10, 20, 30) == pytest.approx(5.6)
    assert kernels(10, 20, 5) is None, "the count started again"
    assert seen(answer()).seconds_left(WHOSE) is None


def test_the_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its cells, of which a rank and a GPU each have one in each look, and by its looks."""
    monkeypatch.setattr(module, "_MOST_CELLS", 10)
    assert len(seen(*[answer() for _ in range(40)]).watts(UUID)) == 5
    monkeypatch.setattr(module, "_MOST_CELLS", 10_000)
    monkeypatch.setattr(module, "_MOST_FRAMES", 7)
    assert len(seen(*[answer() for _ in range(40)]).watts(UUID)) == 7


def test_an_answer_that_is_not_newer_adds_nothing() -> None:
    history = History()
    for at in (1.0, 1.0, 0.5, 2.0):
        history.add(answer(), at)
    assert [at for at, _ in history.watts(UUID)] == [1.0, 2.0]


def past(count: int, **columns: list[Any]) -> dict[str, Any]:
    """A daemon's history: a value a second before 0."""
    blank: list[Any] = [None] * count
    rank = {"steps": list(range(count)), "step_seconds": [0.036] * count, "compile_seconds": blank}
    gpu = {"power_watts": blank, "utilization_ratio": [0.5] * count}
    for column, values in columns.items():
        (gpu if column in gpu else rank)[column] = values
    return {
        "at": [float(at) for at in range(-count, 0)],
        "ranks": [{"run": "gpt2", "rank": 0, **rank}],
        "gpus": [{"uuid": UUID, **gpu}],
    }


def test_the_daemons_history_precedes_the_samples() -> None:
    history = seen(answer(steps=9, seconds=50.0), answer(steps=10, seconds=50.0))
    known = past(3, compile_seconds=[0.0, 0.2, 0.0], power_watts=[None, 5.0, 6.0])
    history.precede(frames(known))
    assert history.compiling(WHOSE) == [(-3.0, -2.0)], "and none where the two meet"
    assert history.watts(UUID) == [(-2.0, 5.0), (-1.0, 6.0), (0.0, 686.0), (1.0, 686.0)]
    assert [at for at, _ in history.steps(WHOSE)] == [-1.0, 0.0, 1.0]


def test_the_daemons_history_is_cut_where_samples_begin() -> None:
    history = History()
    history.add(answer(), -2.0)
    history.precede(frames(past(4)))
    assert [at for at, _ in history.activity(UUID)] == [-4.0, -3.0, -2.0]


def test_the_daemons_history_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen comes before it."""
    monkeypatch.setattr(module, "_MOST_CELLS", 10)
    history = seen(answer(), answer())
    history.precede(frames(past(40)))
    assert [at for at, _ in history.activity(UUID)] == [-3.0, -2.0, -1.0, 0.0, 1.0]


def test_a_new_rank_has_no_earlier_points() -> None:
    history = seen(answer(steps=7))
    history.precede(frames(past(3, steps=[None, None, 6])))
    assert [at for at, _ in history.steps(WHOSE)] == [0.0]


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


def test_unmeasured_columns_are_blank_and_zero_is_a_line() -> None:
    assert plot((0.5, 0.0), (1.5, 0.0), (8.5, 4.0), height=1) == ["▁▁      █ "]


def test_compile_intervals_are_shaded_and_make_no_scale() -> None:
    """The first step, which compiled for minutes, would make all others flat.

    The lowest row alone is shaded: a block of shades would hide the plot.
    """
    points = ((1.5, 100.0), (2.5, 1.0), (3.5, 2.0))
    assert plot(*points, spans=((0.5, 1.7),)) == [" █ █      ", "░███      "]


def test_columns_between_two_polls_are_filled_except_for_gaps() -> None:
    points = ((0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (8.0, 1.0), (9.0, 1.0))
    assert plot(*points, width=20, height=1) == ["█████           ███ "]


def test_the_minimum_is_that_of_the_points_although_a_column_shows_their_maximum() -> None:
    points = [(at / 2, 1.0 + at % 2) for at in range(20)]
    drawn = chart(Series("x", points, str, peaks=True), [], Window(10.0, 10.0), GUTTER + 5, 6)
    names = [line.plain[:GUTTER].strip() for line in drawn]
    assert names == ["x", "last 2.0", "min 1.0", "max 2.0", "", ""]


def test_the_axis_has_the_middle_of_its_time_and_a_key_to_what_it_shows() -> None:
    window, width = Window(until=120.0, seconds=120.0), 80
    line = axis(window, width, [(-9.0, -1.0)]).plain
    assert line.split() == ["120", "s", "ago", "60", "s", "ago", "now"]
    assert line.index("60 s") + len("60 s ago") // 2 == GUTTER + (width - GUTTER) // 2
    assert "compiling" in axis(window, width, [(-9.0, 1.0)]).plain
    assert axis(window, 40, []).plain.split() == ["120", "s", "ago", "now"]


def test_a_sparkline_is_upright_in_a_reversed_row() -> None:
    drawn = spark([(0.5, 1.0)], [], Window(until=1.0, seconds=1.0), 1)
    assert Style.parse("reverse") + Style.parse(str(drawn.style)) == Style.parse("not reverse")


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


def test_the_history_is_from_the_daemon_that_answers(tmp_path: Path) -> None:
    with held(write_record(tmp_path, warm())), daemon(tmp_path) as url:
        chosen = {"address": url.removeprefix("http://"), "prometheus": None, "access": {}}
        wait_until(lambda: (past_of(**chosen, dir=None) or {"ranks": []})["ranks"])
        found = past_of(**chosen, dir=None)
        assert found is not None
        assert [frame.ranks[WHOSE].steps for frame in frames(found)][-1] == 9
        assert past_of(**{**chosen, "address": None}, dir=str(tmp_path)) is None
