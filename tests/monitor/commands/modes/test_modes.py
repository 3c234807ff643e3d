"""The table of modes, from summaries built by hand as of the end of each measurement."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from support import builders as b
from support import reported as a
from support.values import replace
from warmwatch.shared.states import State
from warmwatch_monitor.commands.modes import command, one_mode
from warmwatch_monitor.commands.modes.child_process import Stops
from warmwatch_monitor.commands.modes.command import Rounds, _Request, leave_broken, script_name
from warmwatch_monitor.commands.modes.drift import Drift
from warmwatch_monitor.commands.modes.one_mode import (
    AS_IS,
    Plan,
    Progress,
    enough,
    environment_of,
    left,
)
from warmwatch_monitor.commands.modes.table import (
    Modes,
    Tried,
    beats,
    modes,
)
from warmwatch_monitor.commands.modes.wording import page
from warmwatch_monitor.model.figures import Lengths
from warmwatch_monitor.model.journal import Wrapping
from warmwatch_monitor.model.run_summary import Compiled, RunSummary
from warmwatch_monitor.model.snapshot import RankView, RunView
from warmwatch_monitor.output.console import plain
from warmwatch_monitor.output.document import Document, lines, markdown
from warmwatch_monitor.output.json_text import as_json

H100_TABLE = {"eager": (0.0, 0.0527), "default": (17.2, 0.0356), "reduce-overhead": (17.4, 0.0353)}


def run_summary(mode: str, cost: float, step: float, **changes: Any) -> RunSummary:
    """Of a run in ``mode``: its compile time, and its step."""
    answers = {
        "steps": 410,
        "step_seconds.first": cost + 0.3 if cost else None,
        "step_seconds.median": step * 1.001,  # its mean is exact, where steps have one length
        "step_seconds.typical": step,
        "step_seconds.clean_count": 400,
        "compile.seconds": cost,
        "compile.graphs": 1 if cost else 0,
        "compile.graph_breaks": 0,
        "compile.recompiles": 0,
        "cost.beyond_steady_seconds": cost,
        "conditions": [],
        "gpus": ["GPU-1"],
        **changes,
    }
    ways = (Wrapping(mode=mode),) if cost else ()
    what = replace(a.H100, wrappings=ways)
    found = a.run_summary(b.view(b.WARM), answers=answers, run=f"train/{mode}", id=mode, what=what)
    (rank,) = found.ranks
    return replace(found, ranks=(replace(rank, first_step_bytes=8_000_000_000),))


def tried(mode: str, of: RunSummary | None = None, **rest: Any) -> Tried:
    return Tried(**{"mode": mode, "summary": of, "ended_by": "steady", "seconds": 30.0, **rest})


def later(rows: Sequence[Tried], *rounds: float) -> list[Tried]:
    """Later rounds, with steps so many times as long."""
    return [_later(row, number, times) for number, times in enumerate(rounds, 2) for row in rows]


def _later(row: Tried, number: int, times: float) -> Tried:
    summary = row.summary
    if summary is None or len(summary.ranks) != 1:
        return row
    (rank,) = summary.ranks
    steps = {**rank.answer["step_seconds"]}
    if steps["typical"]:
        steps["typical"] *= times
    ranks = (replace(rank, answer={**rank.answer, "step_seconds": steps}),)
    return replace(row, summary=replace(summary, began=summary.began + 1e4 * number, ranks=ranks))


def made(*rows: Tried, **rest: Any) -> Modes:
    """With two more rounds of the same lengths, unless given."""
    for at, row in enumerate(rows):  # in turn
        if row.summary:
            began = row.summary.began + 100 * at
            rows = (
                *rows[:at],
                replace(row, summary=replace(row.summary, began=began)),
                *rows[at + 1 :],
            )
    return modes(rows, rest.pop("again", later(rows, 1.0, 1.0)), Modes(**rest))


def usual() -> list[Tried]:
    """As on the H100 of docs/how-to/choose-a-mode.md."""
    return [tried(mode, run_summary(mode, *known)) for mode, known in H100_TABLE.items()]


def text(of: Modes) -> str:
    return lines(page(of), width=160, colour=False)


def test_each_measured_value_of_a_mode_has_a_column() -> None:
    of = made(*usual())
    *others, last = of.rows
    drift = Drift(relative=0.25, step=2, rank=0, loss=1.0, eager_loss=2.0, last_step=3, passes=3)
    full = replace(
        last,
        gpus=0,  # with a GPU, its memory is the one that counts
        peak_memory_bytes=9_000_000_000,
        peak_resident_bytes=3_000_000_000,
        joules_per_step=17.0,
        evaluation_seconds=1.5,
        evaluation_batch_seconds=0.0125,
        drift=drift,
    )
    (shown,) = [
        one.table
        for one in page(replace(of, rows=(*others, full))).sections
        if one.title == "Modes"
    ]
    assert shown is not None
    assert dict(zip([one.name for one in shown.columns], shown.rows[-1], strict=True)) == {
        "mode": "reduce-overhead",
        "first step": "17.7 s",
        "its peak memory": "8 GB",
        "steady step": "35.3 ms",
        "speed-up": "1.49",
        "compile cost": "17.4 s",
        "peak memory": "9 GB",
        "peak RSS": "3 GB",
        "energy a step": "17 J",
        "evaluation": "1.5 s",
        "its batch": "12.5 ms",
        "graphs": "1",
        "loss drift": "0.25",
        "break-even step": "1,001",
    }


def notes(of: Modes) -> dict[str, str]:
    """The text for each mode."""
    document: Document = page(of)
    items = [one.items for one in document.sections if one.title == "Notes"]
    reported = [(*item.words.partition(": "), item.more) for each in items for item in each]
    return {mode: "; ".join((words, *more)) for mode, _, words, more in reported}


def test_the_table_matches_the_hand_made_one() -> None:
    """choose-a-mode.md: the default mode has paid after 1,016 steps, each 1.48 times shorter."""
    of = made(*usual(), training_steps=100_000)
    eager, default, overhead = of.rows
    assert (of.baseline, eager.outcome, eager.break_even) == ("eager", "measured", None)
    assert default.break_even is not None
    assert default.break_even.step == pytest.approx(1016, abs=20)
    assert default.speed_up is not None
    assert default.speed_up.ratio == pytest.approx(1.48, abs=0.001)
    assert default.first_step_memory_bytes == 8_000_000_000
    assert eager.total_seconds == pytest.approx(5270)
    assert overhead.total_seconds == pytest.approx(17.4 + 3530)
    shown = text(of)
    assert shown.startswith(
        "100,000 steps take 59 min 37 s in default (eager: 87 min 50 s); no significant difference "
        "to reduce-overhead."
    )
    assert "default against eager: costs 17.2 s more and saves 17.1 ms (" in shown
    assert (
        "reduce-overhead against default: costs 200 ms more; its steps are 1.01 times faster, "
        "which is within the noise between runs."
    ) in " ".join(shown.split())
    assert notes(of) == {}


def test_a_difference_within_the_noise_is_not_faster() -> None:
    eager, default = (
        tried("eager", run_summary("eager", 0.0, 0.0527)),
        tried("default", run_summary("default", 17.2, 0.0500)),
    )
    of = made(eager, default, again=later([eager, default], 1.05, 0.97))
    assert of.rows[1].break_even is not None
    assert of.rows[1].break_even.outcome == "within_noise"
    assert of.recommended == "eager"
    shown = " ".join(text(of).split())
    assert page(of).answer.endswith("; no significant difference to eager.")
    assert "use eager: no measured mode takes less time beyond noise." in shown
    assert "times eager's speed" not in shown
    assert "eager: 52.7 ms in eager 1, 55.3 ms in eager 2, 51.1 ms in eager 3" in shown


def test_no_measured_mode_takes_less_time_is_not_said_beside_a_mode_that_was_slowed() -> None:
    """Its steps may be shorter, as in the table: of it, nothing is known."""
    slowed = {"limited_by": {"verdict": "shared", "share": 0.4, "evidence": ("waits",)}}
    rows = [
        tried("eager", run_summary("eager", 0.0, 0.05)),
        tried("default", run_summary("default", 17.2, 0.06)),
        tried("reduce-overhead", run_summary("reduce-overhead", 20.0, 0.03, **slowed)),
    ]
    assert "use eager: no comparable mode takes less time" in " ".join(text(made(*rows)).split())


def test_modes_that_ran_once_have_ratios_and_no_recommendation() -> None:
    of = made(*usual(), again=[], training_steps=100_000)
    assert of.recommended is None
    shown = " ".join(text(of).split())
    assert "1.48, not repeated" in shown
    for steps in (None, 100_000):  # unknown is not "no difference"
        assert "significant" not in page(made(*usual(), again=[], training_steps=steps)).answer
    assert "None: a single run of a mode does not show how much its runs differ" in shown
    assert "; not known whether it differs from " in shown
    assert "default against eager: costs 17.2 s more; its steps are 1.48 times faster, not" in shown
    slowed = {"limited_by": {"verdict": "shared", "share": 0.4, "evidence": ("waits",)}}
    rows = [tried(mode, run_summary(mode, *known, **slowed)) for mode, known in H100_TABLE.items()]
    assert "None: the runs of a mode were slowed" in text(made(*rows))
    assert "significant" not in page(made(*rows)).answer
    one_slowed = [rows[0], *usual()[1:]]  # a second round, of which one run says nothing
    assert "None: the runs of a mode were slowed" in text(made(*usual(), again=one_slowed))


def test_the_recommendation_is_none_that_its_table_calls_slower() -> None:
    """Of random tables, with outliers: eager's first run took 60.1 ms, its others 46 ms."""
    chance, seen = random.Random(4), set[str | None]()
    for _ in range(60):
        rows = [
            tried(mode, run_summary(mode, cost, step * chance.uniform(0.9, 1.3)))
            for mode, (cost, step) in {**H100_TABLE, "max-autotune": (261.2, 0.0348)}.items()
        ]
        again = [_later(row, r, chance.uniform(0.8, 1.05)) for r in (2, 3) for row in rows]
        steps = chance.choice((100, 2000, 100_000))
        of = made(*rows, again=again, training_steps=steps)
        seen.add(of.recommended)
        by_mode = {one.mode: one for one in of.rows}
        best = by_mode[of.recommended or ""]
        assert not any(beats(one, best, steps) for one in of.rows)
        if best.mode == of.baseline:  # no row saves more than it costs, at its least
            for one in of.rows:
                saved = one.break_even and one.break_even.saves_least_seconds
                assert steps * (saved or 0.0) <= (one.cost_seconds or 0.0)
        else:
            assert best.total_seconds is not None
            assert best.total_seconds < (by_mode["eager"].total_seconds or 0.0)
            assert f"{steps:,} steps take" in page(of).answer
            assert f" in {best.mode} (eager: " in page(of).answer
    assert {"eager", "default"} < seen


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"steps": 0, "step_seconds.typical": None, "step_seconds.median": None},
            "no step was seen",
        ),
        ({"step_seconds.clean_count": 4}, "only 4 clean steps"),
        ({"compile.seconds": 0.0}, "passes nothing to torch.compile"),
        ({"compile.graphs": 3, "compile.graph_breaks": 2}, "3 graphs (default: 1 graph)"),
        ({"gpus": []}, "CUDA graphs need a GPU"),
        ({"agent_errors": 2}, "2 errors"),
        ({"conditions": [{"condition": "thrashing", "words": "thrashing: 7"}]}, "thrashing: 7"),
    ],
)
def test_each_caveat_of_a_mode_is_reported(changes: dict[str, Any], words: str) -> None:
    odd = run_summary("reduce-overhead", 17.4, 0.0353, **changes)
    of = made(*usual()[:2], tried("reduce-overhead", odd))
    assert list(notes(of)) == ["reduce-overhead"]
    assert words in notes(of)["reduce-overhead"]


def test_a_call_that_did_not_get_the_mode_is_reported() -> None:
    ways = (Wrapping(mode="default"), Wrapping(mode="max-autotune"), Wrapping(backend="eager"))
    odd = run_summary("max-autotune", 17.4, 0.0353)
    odd = replace(odd, what=replace(odd.what, wrappings=ways))
    message = notes(made(*usual(), tried("max-autotune", odd)))["max-autotune"]
    assert "compiled by eager was left as it is" in message
    assert "default held as well" in message


def test_a_mode_that_captured_nothing_is_never_called_faster() -> None:
    """Its steps differ only by the load of the machine."""
    idle = run_summary("default", 2.5, 0.0300, **{"compile.graphs": 0})
    of = made(*usual()[:1], tried("default", idle))
    assert page(of).answer == "Nothing was compiled in any mode, so there is nothing to choose."
    assert "speed-up" not in text(of)
    also = made(*usual()[:2], tried("reduce-overhead", idle))
    assert "The shortest step is default's" in page(also).answer


def test_a_mode_that_compiled_and_was_not_measured_compiled() -> None:
    none = {"step_seconds.typical": None, "step_seconds.median": None}
    cut_off = tried("default", run_summary("default", 17.2, 0.0356, **none), ended_by="timeout")
    assert page(made(*usual()[:1], cut_off)).answer == (
        "No step could be measured in a mode that compiled."
    )


def test_a_mode_without_any_data_is_reported() -> None:
    of = made(tried("eager", ended_by="timeout", seconds=60.0), untried=("default",))
    assert of.baseline is None
    shown = text(of)
    assert "No step could be measured" in shown
    assert "no step and no compilation was seen: it was ended at the timeout, after 60" in shown
    assert "not tried: default" in shown


def test_the_table_is_available_as_json_and_markdown() -> None:
    of = plain(made(*usual(), imposed=("TORCHINDUCTOR_MAX_AUTOTUNE",)))
    reported = json.loads(as_json(of))
    assert [row["mode"] for row in reported["rows"]] == list(H100_TABLE)
    assert reported["schema_version"] == 1
    written = markdown(page(of))
    assert "| mode | first step |" in written
    assert "TORCHINDUCTOR\\_MAX\\_AUTOTUNE in the environment holds in every mode" in written


# Losses, recommendation and budget.


def drifting(**others: tuple[float, ...]) -> list[Tried]:
    """Eager with losses of 2.0, and modes with others."""
    given = {"eager": (2.0, 2.0), **others}
    return [
        tried(mode, run_summary(mode, *H100_TABLE[mode]), losses={0: tuple(enumerate(found, 1))})
        for mode, found in given.items()
    ]


def test_the_share_of_guard_checks_is_of_the_step_of_the_measured_rank() -> None:
    summary = run_summary("default", *H100_TABLE["default"])
    (one,) = summary.ranks
    length = one.answer["step_seconds"]["typical"]
    steps = {**one.answer["step_seconds"], "typical": 10 * length}
    slower = replace(one, rank=1, answer={**one.answer, "step_seconds": steps})
    default = tried("default", replace(summary, ranks=(one, slower)), guard_seconds=0.05 * length)
    for rank, share in ((0, 0.05), (1, 0.005), (2, None)):
        of = made(replace(default, guard_rank=rank))
        assert of.rows[0].guard_share == pytest.approx(share)
        assert ("guard checks take" in text(of)) is (rank == 0)


def test_drift_is_shown_with_its_noise_and_limited() -> None:
    rows = drifting(default=(2.0, 2.006))
    again = later(rows, 1.0, 1.0)
    again[0] = replace(again[0], losses={0: ((1, 2.0), (2, 2.000002))})
    of = made(*rows, again=again, max_drift=1e-3)
    assert of.noise == pytest.approx(1e-6)
    assert [one.max_drift_exceeded for one in of.rows] == [None, True]
    assert of.recommended == "eager"
    shown = text(of)
    assert "the loss drifts by more than --max-drift 0.001: default" in shown
    assert (
        "default: its loss drifts by 0.003 at step 2 (2.006, eager 2); noise 1e-06; 2 losses"
        in shown
    )
    retained = made(*rows, again=again, max_drift=1e-2)
    assert [one.max_drift_exceeded for one in retained.rows] == [None, False]
    assert retained.recommended == "default"


@pytest.mark.parametrize(
    ("second", "limit", "words"),
    [
        (2.1, None, "two eager runs differ by 0.05: use the same seed in every run"),
        (2.1, 1e-3, "two eager runs differ by 0.05, more than --max-drift: use the same seed"),
        (2.1, 0.1, None),
        (2.002, None, None),
    ],
)
def test_losses_that_differ_in_two_eager_runs_suggest_a_seed(
    second: float, limit: float | None, words: str | None
) -> None:
    again = tried("eager", losses={0: ((1, 2.0), (2, second))})
    shown = text(made(*drifting(default=(2.0, 2.1)), again=[again], max_drift=limit))
    assert ("in every run" in shown) is (words is not None)
    assert words is None or words in shown


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((2.0, 2.0), "its loss equals eager's up to step 2; noise 1e-06"),
        ((2.0, 2.000001), "noise 1e-06, so it may be noise"),
        (
            (2.0, float("nan")),
            "one of the two is not finite (not finite, eager 2); noise 1e-06",
        ),
    ],
)
def test_equal_losses_noise_and_non_finite_losses_are_distinguished(
    losses: tuple[float, ...], words: str
) -> None:
    again = tried("eager", losses={0: ((1, 2.0), (2, 2.000002))})
    assert words in text(made(*drifting(default=losses), again=[again]))


def test_the_recommendation_is_one_sentence_with_its_reasons() -> None:
    first = drifting(default=(2.0, 2.5))
    shown = " ".join(text(made(*first, training_steps=2000)).split())
    assert (
        "For 2,000 steps, use default: 1.48 times eager's speed, its compile cost of 17.2 s paid "
        "back after 1,006 steps; its loss drifts by 0.25 at step 2"
    ) in shown
    assert "no measured mode takes less time" in text(made(*usual(), training_steps=10))


def test_a_cheaper_mode_with_longer_steps_is_recommended_for_few_steps() -> None:
    default, overhead = (
        tried("default", run_summary("default", 17.2, 0.0356)),
        tried("reduce-overhead", run_summary("reduce-overhead", 10.0, 0.0400)),
    )
    assert (
        "For 1,000 steps, use reduce-overhead: its compile cost is 7.2 s less than default's, "
        "which longer steps use up by step 1,637"
    ) in " ".join(text(made(default, overhead, training_steps=1000)).split())
    tuned = tried("max-autotune", run_summary("max-autotune", 261.2, 0.0300))
    shown = " ".join(text(made(default, tuned, training_steps=1_000_000)).split())
    assert "its extra compile cost of 244 s paid back" in shown


def test_the_time_left_is_known_with_a_number_of_steps_only() -> None:
    assert left(run_of(view())) is None, "nothing predicts when the length of a step is certain"
    assert left(run_of(view()), None, 151) is None
    assert left(run_of(view(warm=False, count=40)), 100) == pytest.approx(59 * 0.04)
    assert left(run_of(view()), 100, 151) == pytest.approx(50 * 0.04)
    assert left(run_of(view()), 50) == 0


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the sentence, whose end is cut off."""
    shown: list[str] = []
    monkeypatch.setattr(one_mode, "rewrite", shown.append)
    progress = Progress("mode 2 of 4, default", _Terminal(), "at least 20 s")
    progress.show("compiling for 4 s")
    progress.show("warm since step 4", "about 9 s left")
    progress.show("warm since step 4")
    assert shown == [
        "warmwatch: mode 2 of 4, default (at least 20 s): compiling for 4 s",
        "warmwatch: mode 2 of 4, default (about 9 s left): warm since step 4",
        "warmwatch: mode 2 of 4, default: warm since step 4",
    ]


@pytest.mark.parametrize(("second", "warned"), [("regional", False), ("max-autotune", True)])
def test_only_a_regional_mode_may_compile_other_code(second: str, warned: bool) -> None:
    """It compiles the blocks' ``forward`` and not the model's."""
    eager, *_ = usual()
    rows = []
    for mode, code in (("default", "a"), (second, "b")):
        summary = run_summary(mode, 17.2, 0.0356)
        compiled = (Compiled(ended=1.0, name="forward", file="gpt.py", code=code),)
        ranks = tuple(replace(one, compiled=compiled) for one in summary.ranks)
        rows.append(tried(mode, replace(summary, ranks=ranks)))
    found = "not the same compiled code" in text(made(eager, *rows))
    assert found is warned


# When the measurement of a run ends.


class _Lengths(Lengths, frozen=True, kw_only=True):
    """Lengths with a chosen interval."""

    median_low: float | None = None
    median_high: float | None = None


def view(
    *,
    warm: bool = True,
    count: int = 100,
    seconds: float = 4.0,
    off: float = 0.005,
    number: int = 0,
) -> RankView:
    """A rank with so many clean steps, which took so long together."""
    base = replace(b.WARM, identity=replace(b.WARM.identity, rank=number))
    rank = b.view(base)
    steps = rank.figures.steps
    clean = _Lengths(
        count=count,
        sum_seconds=seconds,
        median=0.04,
        median_low=0.04 * (1 - off),
        median_high=0.04 * (1 + off),
    )
    figures = replace(rank.figures, steps=replace(steps, count=count + 1, clean=clean))
    state = State.WARM if warm else State.WARMING
    return replace(rank, figures=figures, judgement=replace(rank.judgement, state=state))


def run_of(*ranks: RankView) -> RunView:
    (found,) = b.runs(*ranks)
    return found


def test_a_run_is_long_enough_when_every_rank_is_warm_and_its_step_known() -> None:
    assert enough(run_of(view()))
    assert not enough(run_of(view(warm=False)))
    assert not enough(run_of(view(count=9)))
    assert not enough(run_of(view(seconds=2.9)))
    assert not enough(run_of(view(off=0.02)))
    assert enough(run_of(view(off=0.02, seconds=30.0)))  # it will not become better
    assert not enough(run_of(view(), view(number=1, off=0.02)))


def test_a_maximum_number_of_steps_is_always_enough() -> None:
    odd = run_of(view(warm=False, count=50), view(number=1, warm=False, count=48))
    assert enough(odd, 49)
    assert not enough(odd, 50)


# The command's own decisions.


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python train.py --lr 3", "train"),
        ("torchrun --nproc-per-node 2 src/pretrain.py", "pretrain"),
        ("python -m torch.distributed.run -m pkg.fit", "fit"),
        ("./launch", "launch"),
    ],
)
def test_a_run_is_named_after_the_script(line: str, name: str) -> None:
    assert script_name(line.split()) == name


def test_a_script_that_fails_before_a_step_is_broken_only_if_that_was_in_eager() -> None:
    stepped = run_summary("eager", 0.0, 0.0527)
    for first in (tried("max-autotune", code=1), tried("eager", stepped, code=1), tried("eager")):
        leave_broken(first, ["fit.py"])
    with pytest.raises(SystemExit):
        leave_broken(tried("eager", code=1), ["fit.py"])


def test_a_compiling_mode_undoes_what_turns_compilation_off_and_eager_sets_it() -> None:
    off = {
        "TORCHDYNAMO_DISABLE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "WARMWATCH_MODE": "x",
        "A": "b",
    }
    assert environment_of("default", off) == {"A": "b", "WARMWATCH_MODE": "default"}
    assert environment_of("eager", off) == {"A": "b", "TORCHDYNAMO_DISABLE": "1"}
    as_is = {name: value for name, value in off.items() if name != "WARMWATCH_MODE"}
    assert environment_of(AS_IS, off) == as_is


@pytest.mark.parametrize(
    ("second", "rounds", "runs"),
    [
        (0.0600, 0, ["eager 1", "default 1", "eager 2", "default 2"]),  # beside other work
        (0.0501, None, ["eager 1", "default 1", "eager 2", "default 2"]),
        (0.0600, None, [f"{mode} {at}" for at in (1, 2, 3) for mode in ("eager", "default")]),
        (0.0600, 1, ["eager 1", "default 1"]),
        (0.0501, 3, [f"{mode} {at}" for at in (1, 2, 3) for mode in ("eager", "default")]),
    ],
)
def test_the_modes_run_in_turn_and_a_third_time_if_the_runs_of_one_differ(
    monkeypatch: pytest.MonkeyPatch, second: float, rounds: int | None, runs: list[str]
) -> None:
    found: list[str] = []
    limit = {"verdict": "shared", "share": 0.4, "evidence": ("waits",)}
    beside = {"limited_by": limit} if rounds == 0 else {}

    def attempt(_command: object, plan: Plan, *_: object) -> Tried:
        found.append(f"{plan.mode} {plan.round}")
        step = second if (plan.mode, plan.round) == ("eager", 2) else 0.050
        return tried(plan.mode, run_summary(plan.mode, 0.0, step, **beside))

    monkeypatch.setattr(command, "attempt", attempt)
    wanted = _Request(
        ("true",),
        ("eager", "default"),
        "fit",
        None,
        True,
        rounds or None,
        None,
        None,
        60.0,
        None,
        None,
    )
    with ExitStack() as folders:
        of = Rounds(wanted, Stops(), folders)
        of.run()
    assert found == runs
    assert len(of.first) == 2
    assert len(of.later) == len(runs) - 2
