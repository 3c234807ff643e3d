"""A run's title and subtitle: together they have what its sentence has, and nothing twice."""

from __future__ import annotations

import pytest

from support import builders as b
from support.documents import status
from support.values import replace
from warmwatch_monitor.figures.compile import Estimate
from warmwatch_monitor.figures.rank import Slower
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.words.conditions import never_compiled, nothing_captured

STATES = b.in_every_state()
WARM, RECOMPILING = STATES["warm"], STATES["recompiling"]


def under(view: RankView, condition: str) -> RankView:
    return replace(view, judgement=view.judgement._replace(conditions=(condition,)))


def slower(seconds: float) -> RankView:
    known = Slower(seconds=seconds, before=0.024, ratio=17.0, since_step=300)
    return replace(under(WARM, "slower"), slower=known)


def left(seconds: float) -> RankView:
    known = Estimate(of="warmup", so_far_seconds=43.0, last_seconds=113.0, left_seconds=seconds)
    return replace(STATES["compiling"], estimate=known)


def without_steps(view: RankView) -> RankView:
    """As a server or an actor, which marks none."""
    steps = replace(view.figures.steps, count=0)
    return replace(view, figures=replace(view.figures, steps=steps))


ENDED = "no exit record: killed by a signal, or ended by os._exit or os.exec"
TITLES = [
    (
        STATES["starting"],
        "starting for 4.0 s",
        "no step and no compile activity in the 4.0 s since",
    ),
    (STATES["compiling"], "compiling for 43 s", "inductor"),
    (RECOMPILING, "recompiling for 2.1 s", "`forward` (model.py:31), dynamo: batch size (dim 0 of"),
    (STATES["warming"], "warming", "1 of 3 clean steps: last step 40 ms"),
    (WARM, "warm, 36 ms a step", "since step 4: this is the real speed"),
    (STATES["eager"], "eager, 48 ms a step", "no compile activity in 120 steps: the model runs"),
    (STATES["stalled"], "stalled for 15 s", "no step for 75 s (limit 60 s) and PyTorch compiles"),
    (STATES["finished"], "finished after 3602 steps", ""),
    (without_steps(STATES["finished"]), "finished; no steps were marked", ""),
    (without_steps(STATES["failed"]), "failed; no steps were marked", "with an uncaught exception"),
    (without_steps(under(WARM, "exiting")), "exiting", "its program has ended"),
    (STATES["failed"], "failed after 3602 steps", "with an uncaught exception"),
    (STATES["lost"], "lost before its first step", f"in a compilation; {ENDED}"),
    (under(WARM, "silent"), "warm but silent, no step for 20 ms", "(usually 36 ms) and PyTorch"),
    (under(WARM, "exiting"), "exiting after 3602 steps", "its program has ended"),
    (under(WARM, "slower"), "warm but slower, 36 ms a step", "PyTorch compiles nothing"),
    (slower(0.036), "warm but slower, 36 ms a step", "since step 301 (24 ms before, 17x); PyTorch"),
    (slower(0.4), "warm but slower, 36 ms a step", "400 ms a step since step 301 (24 ms before"),
    (
        under(WARM, "nothing_captured"),
        f"warm, but {nothing_captured(WARM.figures)[0]}, 36 ms a step",
        "this is eager speed",
    ),
    (
        under(STATES["eager"], "never_compiled"),
        f"eager, but {never_compiled(STATES['eager'].figures)[0]}, 48 ms a step",
        "",
    ),
    (left(43.0), "compiling, about 43 s left", "for 43 s (inductor); last time 113 s: about 43 s"),
    (left(0.4), "compiling for 43 s", "inductor; last time 113 s: about 400 ms left"),
]


@pytest.mark.parametrize(("view", "title", "subtitle"), TITLES, ids=[one[1] for one in TITLES])
def test_the_title_is_the_state_and_its_figure_and_the_subtitle_has_the_rest(
    view: RankView, title: str, subtitle: str
) -> None:
    (run,) = status(b.snapshot(view))["runs"]
    assert run["title"] == title
    assert run["subtitle"].startswith(subtitle)
    assert subtitle or not run["subtitle"]


def test_a_qualified_state_has_its_condition() -> None:
    views = (WARM, under(WARM, "slower"), under(STATES["starting"], "silent"))
    views = (*views, under(STATES["stalled"], "exiting"))
    runs = [status(b.snapshot(view))["runs"][0] for view in views]
    assert [run["qualified_by"] for run in runs] == [None, "slower", None, "exiting"]
