"""A warm-up far longer than in earlier runs, and the changes since the last comparable run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support import builders as b
from support import reported as a
from support.builders import EPOCH
from support.documents import status
from support.values import replace
from warmwatch.shared import states
from warmwatch_monitor.base.settings import load_history_settings
from warmwatch_monitor.commands.cli import cli
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.wording import page
from warmwatch_monitor.commands.status import exit_code
from warmwatch_monitor.history.store import Store
from warmwatch_monitor.model.figures import RankHistory
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.run_summary import Compiled, RunSummary
from warmwatch_monitor.model.snapshot import RunView, Snapshot
from warmwatch_monitor.pipeline.judging import Judging, OtherReadings
from warmwatch_monitor.status.words.sentence import answer, summary

HOLDS = "slower_than_before"  # b.WARM's first warm-up took 120 s


def judged(*earlier: float, slot: Any = b.WARM) -> RunView:
    """A run after a history of first warm-ups of so many seconds."""
    one = RecordReading(folder="/a", slot=slot, alive=True, pid=7)
    around = OtherReadings(now_ns=b.NOW, histories={"/a": RankHistory(warmup_seconds=earlier)})
    (run,), _ = Judging().of([one], around, {"/a"})
    return run


@pytest.mark.parametrize(
    ("earlier", "before"),
    [
        ((30.0,), "30 s last time"),
        ((30.0, 20.0, 40.0), "20 s to 40 s in 3 earlier runs"),
        ((30.0, 30.0), "30 s in 2 earlier runs"),
    ],
)
def test_a_slower_warm_up_is_reported_once_and_needs_no_attention(
    earlier: tuple[float, ...], before: str
) -> None:
    snapshot = Snapshot(epoch=b.EPOCH, now_ns=b.NOW, runs=(judged(*earlier),))
    words = f"warm-up took 120 s, {before}"
    assert summary(snapshot).endswith(f"; {words}")
    assert not answer(snapshot).details
    (held,) = status(snapshot)["runs"][0]["ranks"][0]["conditions"]
    assert held == {"condition": HOLDS, "words": words, "advice": None}
    assert exit_code(status(snapshot)) == 0
    assert HOLDS not in states.NEEDS_ATTENTION


# In a report


def before(*compiled: Compiled, seconds: float = 30.0, **what: Any) -> RunSummary:
    """The run before, whose warm-up was shorter."""
    known = {"warmup.first.seconds": seconds, "warmup.first.ended_at": EPOCH - 130.0}
    return a.finished(
        id="aaaaaaaa",
        began=EPOCH - 9000,
        answers=known,
        compiled=compiled,
        what=replace(a.H100, **what),
    )


FASTER = replace(
    a.FORWARD,
    seconds=20.0,
    cache="hit",
    ops=1180,
    code="c0de",
    phase_seconds={"dynamo": 5.0, "inductor": 10.0, "kernel_compile": 5.0},
)
COLD, WARM = (dict.fromkeys(("inductor", "triton"), how) for how in ("cold", "warm"))


def sentences(now: RunSummary, then: RunSummary) -> tuple[str, str]:
    """Title and sentence of what changed."""
    document = page(report(now, before=then))
    (section,) = (one for one in document.sections if "last time" in one.title)
    return section.title, section.items[0].words


def test_changes_are_reported_with_their_cost() -> None:
    now = a.finished(
        compiled=(replace(a.FORWARD, code="0ther"), a.BACKWARD, *a.TWICE[2:]),
        what=replace(a.H100, caches=COLD, compile_threads=2),
    )
    then = before(FASTER, caches=WARM, compile_threads=32)
    assert sentences(now, then) == (
        "Slower than last time",
        (
            "warm-up took 120 s, last time 30 s: inductor 68 s more in `forward` (model.py:31) "
            "(graph changed: 1,204 operators, was 1,180; its code changed); lookups in "
            "Inductor's cache mostly missed (before: hit); Triton's cache was empty at the start "
            "(before: not empty); compile threads 2, were 32"
        ),
    )


@pytest.mark.parametrize(
    ("then", "title", "words"),
    [
        (
            before(a.FORWARD, a.BACKWARD, seconds=118.0),
            "Since last time",
            "warm-up took 120 s, last time 118 s",
        ),
        (
            before(replace(a.FORWARD, seconds=180.0), a.BACKWARD, seconds=220.0, torch="2.12.0"),
            "Faster than last time",
            "100 s less in `forward` (model.py:31); torch 2.13.0, was 2.12.0",
        ),
        (
            before(replace(a.FORWARD, name="loss")),
            "Slower than last time",
            (
                "100 s for `forward` (model.py:31), which was not compiled last time; "
                "80 s less: `loss` (model.py:31) is no longer compiled"
            ),
        ),
        (
            before(FASTER, a.BACKWARD, replace(FASTER, id="1/0"), caches={"inductor": "warm"}),
            "Slower than last time",
            "(compiled once, 2 times last time)",
        ),
        (
            before(*a.FIRST, replace(a.FORWARD, id="1/0", line=60, seconds=150.0), seconds=250.0),
            "Faster than last time",
            "inductor 60 s less in `forward` (model.py:31) (compiled once, 2 times last time)",
        ),
    ],
    ids=["same", "faster", "another function", "compiled more often", "two of one name"],
)
def test_each_kind_of_change_has_its_words(then: RunSummary, title: str, words: str) -> None:
    found = sentences(a.finished(what=replace(a.H100, caches={"inductor": "warm"})), then)
    assert found[0] == title
    assert words in found[1]


def test_a_run_that_was_never_warm_is_not_compared() -> None:
    assert report(a.eager(), before=before()).changed is None
    assert report(a.finished()).changed is None


def test_the_command_compares_a_run_with_the_last_comparable_one(tmp_path: Path) -> None:
    state = {"WARMWATCH_STATE": str(tmp_path / "state"), "WARMWATCH_DIR": str(tmp_path)}
    state["WARMWATCH_STATE_DAYS"] = "36500"
    other = replace(before(FASTER), id="bbbbbbbb", began=EPOCH - 500, start="elsewhere")
    alien = replace(other, what=replace(a.H100, gpus=("NVIDIA A100",)))
    then = replace(before(FASTER), start="then")
    Store(load_history_settings(state)).save([then, alien, replace(a.finished(), start="now")])
    done = CliRunner().invoke(cli, ["report", "k3n", "--json"], env=state)
    changed = json.loads(done.output)["changed"]
    assert (changed["id"], changed["before_seconds"]) == ("aaaaaaaa", 30.0)
    assert (
        "Slower than last time"
        in CliRunner().invoke(cli, ["report", "k3n", "-v"], env=state).output
    )
