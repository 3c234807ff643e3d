"""Runs side by side: when a cost is paid back, how sure that is, and what may not be compared."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import convert

from support import builders as b
from support import reported as a
from support.values import replace
from warmwatch_monitor.commands.compare.comparison import (
    Run,
    Side,
    break_even,
    compare,
    mean,
    runs_of,
)
from warmwatch_monitor.commands.compare.wording import page, sentence, speed
from warmwatch_monitor.commands.report.assembly import report
from warmwatch_monitor.commands.report.command import cleaned
from warmwatch_monitor.commands.report.wording import answer
from warmwatch_monitor.figures.rank import SlowerPeriod
from warmwatch_monitor.model.run_summary import Provenance, RunSummary
from warmwatch_monitor.output.document import lines, markdown
from warmwatch_monitor.output.json_text import as_json


def side(
    label: str, cost: float, step: float, off: float | None = 0.001, mode: str = "default"
) -> Side:
    """A program that ran three times, in turn with others; once if ``off`` is ``None``."""
    steps = (step,) if off is None else (step, step * (1 + off), step * (1 - off))
    first = 0.5 if mode == "eager" else 0
    runs = tuple(
        Run(id=f"{label}{at}", began=at + first, seconds=each) for at, each in enumerate(steps)
    )
    return Side(
        id=label,
        run=label,
        label=label,
        state="finished",
        mode=mode,
        cost_seconds=cost,
        steady_seconds=step,
        runs=runs,
        mean_seconds=mean(runs),
    )


EAGER = side("eager", 0.4, 0.0527, mode="eager")


def test_the_break_even_is_at_the_step_of_the_hand_made_table() -> None:
    """docs/how-to/choose-a-mode.md: 17.5 s and 35.6 ms against 52.7 ms, 1,016 steps."""
    paid = break_even(side("default", 17.75, 0.0356), EAGER)
    assert paid.outcome == "paid_back"
    assert paid.step == pytest.approx(1016, abs=3)
    assert paid.earliest is not None
    assert paid.latest is not None
    assert paid.earliest < paid.step < paid.latest  # type: ignore[operator]
    assert re.search(
        r"costs 17.4 s more and saves 17.1 ms \(1[67].* ms to 17.* ms\) a step, 1.48 times faster: "
        r"break-even at step 1,0\d\d \(",
        sentence(paid),
    )


@pytest.mark.parametrize(
    ("cost", "step", "off", "outcome", "words"),
    [
        (20.0, 0.060, 0.001, "never", "longer, 1.14 times slower: never breaks even"),
        (20.0, 0.0528, 0.02, "within_noise", "as long, which is within the noise between runs."),
        (0.1, 0.0356, 0.001, "at_once", "ahead from the first step"),
        (20.0, 0.0356, None, "once", "If it is, break-even is near step 1,147."),
        (20.0, 0.060, None, "once", "run each twice or more, in turn."),
    ],
)
def test_each_outcome_has_a_sentence(
    cost: float, step: float, off: float | None, outcome: str, words: str
) -> None:
    found = break_even(side("x", cost, step, off), EAGER)
    assert found.outcome == outcome
    assert sentence(found).endswith(words) or f"{words}." in sentence(found)


def test_a_cheaper_run_with_longer_steps_is_ahead_until_the_break_even() -> None:
    quick, slow = side("default", 40.0, 0.5, mode="eager"), side("tuned", 100.0, 0.25)
    found, other_way = break_even(quick, slow), break_even(slow, quick)
    assert (found.outcome, other_way.outcome) == ("ahead_until", "paid_back")
    assert found.step == pytest.approx(240, abs=1)
    assert other_way.step == pytest.approx(240, abs=1)
    for one in (found, other_way):
        assert one.earliest is not None
        assert one.latest is not None
        assert 230 < one.earliest < 240 < one.latest < 251
    assert "costs 60 s less" in sentence(found)
    assert re.search(r"ahead until step 24[01] \(2\d\d to 2[45]\d\)\.", sentence(found))


def test_a_run_without_a_known_cost_has_a_speed_and_no_break_even() -> None:
    found = break_even(replace(side("x", 1.0, 0.0356), cost_seconds=None), EAGER)
    assert (found.outcome, found.step) == ("unknown", None)
    assert "x against eager: 1.48 times faster (1.4" in sentence(found)
    assert "no break-even, as one of them has no known cost" in sentence(found)


def test_a_run_without_clean_steps_has_no_break_even() -> None:
    found = break_even(replace(EAGER, label="new", runs=()), EAGER)
    assert (found.outcome, found.step) == ("unknown", None)
    assert "no clean step" in sentence(found)


def two(**what: object) -> tuple[RunSummary, RunSummary]:
    other = a.eager(id="other")
    return a.finished(run="compiled"), replace(other, what=replace(other.what, **what))


def test_a_run_that_was_slower_for_a_while_is_a_warning() -> None:
    compiled, eager = two()
    (rank,) = compiled.ranks
    slow = replace(rank, answer={**rank.answer, "slower_periods": [a.SLOWER]})
    made = compare((replace(compiled, ranks=(slow,)), eager))
    assert made.sides[0].slower == (convert(a.SLOWER, SlowerPeriod),)
    (warning,) = page(made).warnings
    assert warning == (
        "compiled was slower than before for 40 s, steps 301 to 400: 400 ms a step (24 ms before, "
        "17x); load 8.9 on 2 CPUs; its steady step and break-even include these steps"
    )
    assert not any("slower" in one for one in page(compare((compiled, eager))).warnings)


def test_a_slower_run_is_called_slower() -> None:
    """Nobody reads a speed-up of 0.135 as 7.4 times slower."""
    slow = break_even(side("default", 20.0, 0.39), EAGER)
    assert "longer, 7.4 times slower: never" in sentence(slow)
    assert slow.difference is not None
    assert re.fullmatch(r"7.4 times slower \(7.\d+ to 7.\d+\)", speed(slow.difference))


def test_an_eager_run_is_the_baseline_at_every_position() -> None:
    made = compare(two())
    assert made.baseline == "gpt2"
    compiled, eager = made.sides
    assert (compiled.mode, eager.mode) == ("default", "eager")
    assert compiled.speed_up is not None
    assert compiled.speed_up.ratio == pytest.approx(48 / 36, rel=0.02)
    assert compiled.speed_up.verdict == "once"
    assert eager.speed_up is None
    assert not made.incomparable


def test_a_run_that_took_steps_without_compiling_is_eager() -> None:
    """Not before its first step, nor where it was attached when all had been compiled."""
    slot = replace(b.EAGER, compile=replace(b.EAGER.compile, graphs_before=3))
    late = a.run_summary(b.view(b.ended("finished", slot), alive=False), run="late")
    starting = a.run_summary(b.view(b.STARTING), run="starting")
    made = compare((a.finished(), late, starting))
    assert [one.mode for one in made.sides] == ["default", "default", None]
    assert made.baseline == "gpt2"
    assert [one.cost_seconds for one in made.sides[1:]] == [None, None]
    assert [one.outcome for one in made.break_even] == ["unknown", "unknown"]
    partly = a.finished(answers={"compile.graphs_before": 3})
    assert compare((partly, a.eager())).sides[0].cost_seconds is None, "a part is not known"
    assert "nothing was compiled since it was attached; 3 graphs before that" in answer(
        report(late)
    )


@pytest.mark.parametrize(
    ("otherwise", "what", "row"),
    [
        ({"gpus": ("NVIDIA A100",)}, "GPUs", "steady step"),
        ({"world_size": 8}, "world size", "steady step"),
        ({"torch": "2.11.0"}, "torch", "compile cost"),
        ({"commit": "beef"}, "commit", "steady step"),
    ],
)
def test_differences_are_reported_with_the_rows_they_affect(
    otherwise: dict[str, object], what: str, row: str
) -> None:
    compiled, eager = two(**otherwise)
    compiled = replace(compiled, what=replace(compiled.what, commit="cafe"))
    found = {one.what: one.rows for one in compare((compiled, eager)).incomparable}
    assert set(found) == {what}
    assert row in found[what]


def test_a_run_that_ended_earlier_is_the_same_program() -> None:
    training = replace(a.FORWARD, code="c0de")
    evaluation = replace(training, name="evaluate", line=80, code="e7a1")
    whole = a.finished(run="whole", compiled=(training, evaluation))
    whole = replace(whole, what=replace(whole.what, code="of both"))
    short = a.finished(run="short", compiled=(training,))
    short = replace(short, what=replace(short.what, code="of one"))
    assert not compare((whole, short, a.eager())).incomparable
    edited = a.finished(run="edited", compiled=(replace(training, code="0ther"), evaluation))
    (found,) = compare((whole, edited)).incomparable
    assert found.what == "compiled code"
    assert len(set(found.values)) == 2


def test_the_rest_of_a_function_after_a_break_is_compared_wherever_it_moved() -> None:
    rest = replace(a.FORWARD, name="torch_dynamo_resume_in_forward_at_16", code="c0de")
    moved = replace(rest, name="torch_dynamo_resume_in_forward_at_17")
    then, same = a.finished(run="then", compiled=(rest,)), a.finished(run="same", compiled=(moved,))
    edited = a.finished(run="edited", compiled=(replace(moved, code="0ther"),))
    assert not compare((then, same)).incomparable
    assert [one.what for one in compare((then, edited)).incomparable] == ["compiled code"]


def test_a_different_or_unknown_batch_is_reported() -> None:
    compiled, eager = two(tokens_per_step=8)
    compared = compare((replace(compiled, what=replace(compiled.what, tokens_per_step=16)), eager))
    assert [one.what for one in compared.incomparable] == ["tokens a step"]
    assert compare((compiled, eager)).unknown == ("tokens a step",)


def test_differences_come_before_costs_and_figures() -> None:
    """They qualify the figures: a reader who stops after the first line has read them."""
    compiled, eager = two(torch="2.11.0")
    shown = lines(page(compare((compiled, eager))), width=200, colour=False)
    order = ("Not the same torch: ", "this affects", " against ", "costs ", "Side by side")
    places = [shown.index(words) for words in order]
    assert places == sorted(places)


def test_caches_of_a_run_without_compilations_are_not_compared() -> None:
    compiled = a.finished(run="a", what=replace(a.H100, caches={"inductor": "cold"}))
    eager = replace(a.eager(run="b"), what=replace(a.H100, caches={"inductor": "warm"}))
    assert "caches" not in {one.what for one in compare((compiled, eager)).incomparable}


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_caches_affect_the_compile_cost_and_no_step(state: str) -> None:
    """What counts is whether lookups hit: a cache that was not empty may be another model's."""
    what = replace(a.H100, caches={"inductor": "warm"})
    missed = a.finished(run="missed", what=replace(what, caches={"inductor": state}))
    hits = tuple(replace(one, cache="hit") for one in a.TWICE)
    hit = a.finished(run="hit", compiled=hits, what=what)
    (found,) = compare((missed, hit)).incomparable
    (of_three,) = compare((missed, hit, a.eager())).incomparable
    assert of_three.values == (*found.values, "nothing compiled")
    assert found.values == ("inductor mostly missed", "inductor mostly hit")
    assert "steady step" not in found.rows


def test_caches_in_which_both_missed_are_the_same() -> None:
    cold, warm = (
        a.finished(run=state, what=replace(a.H100, caches={"inductor": state}))
        for state in ("cold", "warm")
    )
    assert compare((cold, warm)).incomparable == ()


def test_two_starts_of_one_name_have_different_labels() -> None:
    made = compare((a.finished(), a.finished(id="other", what=Provenance())))
    assert [one.label for one in made.sides] == ["gpt2 (k3nuf63p)", "gpt2 (other)"]


def test_the_speed_of_a_program_is_in_the_sentence_of_its_first_run() -> None:
    """Which it names: a run of another program may be between the two."""
    eager, *compiled = (a.eager(), *(a.finished(run="new", id=id) for id in ("a", "b")))
    runs, other = runs_of(compiled), a.finished(run="other", id="c")
    of = {"a": runs, "b": runs[::-1], "c": runs_of([other])}
    shown = page(compare((eager, compiled[0], other, compiled[1]), programs=of))
    assert "times faster" in shown.answer
    words = [item.words for item in shown.sections[0].items]
    assert words[0].startswith("other against")
    assert re.fullmatch(
        r"new \(b\), of the same program as new \(a\): costs [\d.]+ s more; .*", words[1]
    )
    assert "faster" not in words[1]


def test_a_column_has_the_whole_name_of_its_run() -> None:
    made = compare((a.finished(run="a>"), a.eager(run="<b>>")))
    shown = lines(page(made), width=80, colour=False)
    assert re.search(r"^ +<b>> +a>$|^ +a> +<b>>$", shown, re.MULTILINE)


@pytest.mark.parametrize("many", [2, 3, 6])
def test_the_page_fits_80_columns_for_any_number_of_runs(many: int) -> None:
    runs = [a.finished(run=f"experiment-{at}", id=str(at)) for at in range(many - 1)]
    made = cleaned(compare((*runs, a.eager(run="without"))))
    shown = lines(page(made), width=80, colour=False)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(one.label in shown for one in made.sides)
    assert "break-even" in shown
    assert "run each twice or more, in turn" in " ".join(shown.split())
    assert markdown(page(made))
    assert json.loads(as_json(made))["schema_version"] == 1


def test_each_figure_of_a_run_has_a_row() -> None:
    made = compare((a.finished(), a.eager(run="without")))
    of_gpu = {"joules": 900.0, "gpu_seconds": 30.0, "peak_memory_bytes": 9 * 10**9}
    first = {"first_step_memory_bytes": 8 * 10**9, "compiled_memory_bytes": 10**9}
    runs = EAGER.runs
    sides = tuple(
        replace(one, **of_gpu, **first, joules_per_step=17.0, runs=runs, mean_seconds=mean(runs))
        for one in made.sides
    )
    (shown,) = [one.table for one in page(replace(made, sides=sides)).sections if one.table]
    assert shown is not None
    assert "mean of its runs" not in [name for name, *_ in shown.rows]  # both have the same runs
    others = tuple(replace(one, id=f"another {one.id}") for one in runs)
    sides = (sides[0], replace(sides[1], runs=others))
    (shown,) = [one.table for one in page(replace(made, sides=sides)).sections if one.table]
    assert shown is not None
    assert [name for name, *_ in shown.rows] == [
        *("torch.compile", "state", "first step", "its peak memory", "memory when it had compiled"),
        *("warm-up", "compile cost", "its GPU-seconds", "its energy", "steady step"),
        *(
            "with all between steps",
            "mean of its runs",
            "99 % within",
            "clean steps",
            "speed",
            "tokens/s",
            "peak memory",
            "energy a step",
        ),
        *("graphs", "recompiles", "graph breaks"),
    ]


def test_a_run_without_ranks_is_compared_without_figures() -> None:
    gone = RunSummary(id="x", run="gone", began=b.EPOCH, seen=b.EPOCH, state="lost")
    shown = lines(page(compare((gone, a.finished()))), width=80, colour=False)
    assert "known for some of them only, so not compared: GPUs" in shown
