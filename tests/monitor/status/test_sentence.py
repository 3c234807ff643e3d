"""Sentences and evidence: what people read, word for word."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import to_builtins

from support import builders as b
from support.values import replace
from warmwatch.shared.phrases import duration
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import RING, Slot
from warmwatch.shared.states import ENDED
from warmwatch_monitor.figures.rank import LimitedBy
from warmwatch_monitor.model.journal import Beginning, Compilation
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.snapshot import RankView
from warmwatch_monitor.status.document import reached, status
from warmwatch_monitor.status.goals import is_reached
from warmwatch_monitor.status.words.evidence import evidence
from warmwatch_monitor.status.words.sentence import answer, summary

STATES = b.in_every_state()
MS = 10**6

SENTENCES = {
    "starting": "gpt2: starting; no step and no compile activity in the 4.0 s since it attached",
    "compiling": "gpt2: compiling for 43 s (inductor)",
    "warming": "gpt2: warming, 1 of 3 clean steps: last step 40 ms",
    "warm": "gpt2: warm since step 4: 36 ms a step is the real speed",
    "eager": "gpt2: no compile activity in 120 steps: the model runs eagerly; "
    "48 ms a step is the real speed",
    "recompiling": f"gpt2: recompiling `forward` (model.py:31) for 2.1 s (dynamo): {b.WHY}",
    "stalled": "gpt2: stalled; no step for 75 s (limit 60 s) and PyTorch compiles nothing",
}


@pytest.mark.parametrize("state", [state for state in STATES if state not in ENDED])
def test_each_state_of_a_living_rank_has_its_sentence(state: str) -> None:
    """``test_ends.py`` has those of the ended ones."""
    assert summary(b.snapshot(STATES[state])) == SENTENCES[state]


@pytest.mark.parametrize(
    ("batch_ago", "ranks", "words"),
    [
        (80, 1, "it took no batch since: perhaps it waits for data"),
        (70, 1, "it took a batch since, and stands within the step"),
        (70, 8, "it took a batch since, and stands within the step, perhaps in a collective"),
    ],
)
def test_a_stalled_rank_that_takes_batches_stands_before_or_within_a_step(
    batch_ago: float, ranks: int, words: str
) -> None:
    """The last step was 75 s ago."""
    slot = STATES["stalled"].record.slot
    steps = replace(slot.steps, batches=12, last_batch_ns=b.ago(batch_ago))
    view = b.view(b.as_rank(replace(slot, steps=steps), 0, ranks))
    headline, details = b.parts(answer(b.snapshot(view)))
    assert headline.startswith(SENTENCES["stalled"])
    assert words in details


def test_readable_runs_do_not_hide_unreadable_ones() -> None:
    lost = replace(b.HEALTH, up=False, error="/run/warmwatch has disappeared")
    words = summary(b.snapshot(STATES["warm"], sources=(lost,)))
    assert words == f"{SENTENCES['warm']}; some records cannot be read"


def test_a_daemon_that_was_started_with_a_command_waits_for_its_first_record() -> None:
    waiting = "waiting for the first step or compilation of the command"
    assert summary(b.snapshot(awaited=True)) == waiting
    ended = b.snapshot(STATES["finished"], awaited=True)
    assert summary(ended) == f"{waiting}; earlier: 1 ended run"
    assert summary(b.snapshot(STATES["warm"], awaited=True)) == SENTENCES["warm"]
    unread = replace(b.HEALTH, up=False, error="permission denied")
    words = summary(b.snapshot(awaited=True, sources=(unread,)))
    assert words.endswith("their records cannot be read: permission denied")


IDLE = b.gpu(utilization_ratio=0.006, power_watts=118.0)
POOL = ProcessReading(pid=1, cpu_seconds=9.0, resident_bytes=1, workers_busy=0, workers_idle=16)


@pytest.mark.parametrize("state", STATES)
def test_a_sentence_with_all_usual_clauses_is_short(state: str) -> None:
    made = STATES[state]
    at_work = b.gpu() if made.judgement.warm else IDLE
    assert len(summary(b.snapshot(replace(made, gpus=(at_work,), process=POOL)))) < 160


def between(quiet: float) -> RankView:
    """Compiled for 28 s, and no step yet."""
    counts = replace(
        b.COMPILING.compile,
        active_since_ns=0,
        ended=1,
        last_end_ns=b.ago(quiet),
        phase_ns=b.phases(inductor=28.0),
    )
    return b.view(replace(b.COMPILING, compile=counts))


def test_a_process_that_compiles_without_steps_gets_the_missing_call() -> None:
    assert b.parts(answer(b.snapshot(between(40)))) == (
        "gpt2: no steps seen; PyTorch has compiled nothing for 40 s",
        ("call warmwatch.step() once an iteration if no torch.optim optimizer is used",),
    )


def test_without_a_torch_optimizer_the_advice_comes_after_seconds_and_at_the_end() -> None:
    assert "no step yet: " in summary(b.snapshot(between(9)))
    text = summary(b.snapshot(between(12)))
    assert "no steps seen; PyTorch has compiled nothing for 12 s" in text
    reading = between(12).record
    ended = replace(reading.slot.compile, end_code=1, exit_code=1, ended_ns=b.ago(1))
    over = b.view(replace(reading.slot, compile=ended), alive=False)
    assert b.parts(answer(b.snapshot(over))) == (
        f"gpt2: {b.head(over)}",
        ("call warmwatch.step() once an iteration if no torch.optim optimizer is used",),
    )


@pytest.mark.parametrize(
    ("quiet", "more", "expected"),
    [
        (
            5,
            {},
            "warming; no steps are marked; PyTorch has compiled nothing for 5.0 s, warm after 30 s",
        ),
        (42, {}, "warm; PyTorch has compiled nothing for 42 s; no steps are marked"),
        (42, {"optimizers": 1}, "no step yet; PyTorch has compiled nothing for 42 s"),
        (
            8,
            {"settled": 2, "settled_ns": b.ago(6), "settled_by": 2},
            (
                "warm since ready() was called; PyTorch has compiled nothing for 8.0 s; "
                "no steps are marked"
            ),
        ),
        (
            8,
            {"warmups": 1, "begun": 2},
            "recompiled; PyTorch has compiled nothing for 8.0 s, warm after 30 s",
        ),
    ],
)
def test_a_process_without_steps_is_judged_by_silence_and_reports_it(
    quiet: float, more: dict[str, int], expected: str
) -> None:
    slot = between(quiet).record.slot
    counts = replace(slot.compile, quiet_ns=30 * b.SECOND, **more)
    assert summary(b.snapshot(b.view(replace(slot, compile=counts)))) == f"gpt2: {expected}"


FORWARD = Compilation(id="0/0", kind="forward", at_ns=b.ago(3), name="forward", file="a.py", line=3)
BACKWARD = {"beginning": Beginning(at_ns=b.ago(2), what="entire_backward_compile", id="0/0")}


def test_the_duration_continues_into_the_backward_and_names_it() -> None:
    counts = replace(b.COMPILING.compile, active_since_ns=b.ago(2))
    slot = replace(b.COMPILING, compile=counts)
    view = b.view(slot, compilations=(FORWARD,), journal=BACKWARD)
    assert summary(b.snapshot(view)) == (
        "gpt2: compiling for 43 s (inductor), now the backward of `forward` (a.py:3)"
    )
    unnamed = b.view(slot, journal=BACKWARD)
    assert summary(b.snapshot(unnamed)).endswith(", now a backward")


def since_a_compilation(lengths: list[int], base: Slot = b.WARM) -> RankView:
    """A rank that has marked steps of these lengths since, the newest first."""
    counts = replace(
        base.compile,
        clean_after=base.steps.steps - len(lengths),
        clean_sum_before_ns=base.clean_sum_ns,
        clean_sum_ns=base.clean_sum_ns + sum(lengths),
    )
    return b.view(replace(base, compile=counts, recent=tuple(lengths[:RING])))


def test_a_speed_of_steps_of_several_lengths_is_an_average() -> None:
    lengths = [30 * MS, 30 * MS, 120 * MS] * 30
    view = since_a_compilation(lengths, replace(b.WARM, clean_bins=b.bins(*lengths)))
    assert "59.5 ms a step is the real speed on average;" in f"{summary(b.snapshot(view))};"


@pytest.mark.parametrize(
    "limit",
    [
        LimitedBy(verdict="shared", contended="cpu", share=0.74),
        LimitedBy(verdict="shared", contended="gpu", share=0.74),
        LimitedBy(verdict="throttled", share=0.74),
    ],
)
def test_a_speed_that_something_else_limits_is_the_speed_so_far(limit: LimitedBy) -> None:
    """It is another one as soon as that ends; on whichever rank it is."""
    slowed = replace(b.view(b.as_rank(b.WARM, 1, 2)), limited_by=limit)
    (run,) = status(b.snapshot(b.view(b.as_rank(b.WARM, 0, 2)), slowed)).runs
    assert f"36 ms a step so far; limited by {limit.subject}" in run.summary
    assert run.subtitle.startswith("since step 4: the speed so far; limited by ")
    assert "real speed" not in f"{run}"
    assert run.state == "warm"


@pytest.mark.parametrize(
    ("older", "newer", "words"),
    [
        (90, 30, "30 ms a step so far, getting faster"),
        (30, 90, "90 ms a step so far, getting slower"),
        (32, 36, "34 ms a step so far, getting slower: 36 ms in the last 32 steps"),
        (36, 36, "36 ms a step is the real speed"),
    ],
)
def test_a_speed_that_still_changes_is_not_the_real_one(older: int, newer: int, words: str) -> None:
    view = since_a_compilation([newer * MS] * 32 + [older * MS] * 64)
    assert words in summary(b.snapshot(view))
    found = b.snapshot(view).runs
    assert reached(found, "warm"), "the state does not depend on the speed"
    assert reached(found, "settled") is (older == newer)
    answer_of = to_builtins(status(b.snapshot(view)))
    assert is_reached(answer_of, "settled") is (older == newer)


@given(
    before=st.floats(4, 300),
    times=st.sampled_from((1 / 16, 1 / 4, 1 / 2, 2, 4, 16)),
    newer=st.integers(8, RING),
    older=st.integers(4, 400),
    seed=st.integers(0, 2**32),
)
def test_after_a_sudden_change_no_mixture_is_claimed(
    before: float, times: float, newer: int, older: int, seed: int
) -> None:
    """From 25 to 405 ms, it was 34 ms a step so far."""
    now, chance = before * times, random.Random(seed)
    assume(newer * now >= 110)
    levels = [now] * newer + [before] * older
    view = since_a_compilation([round(one * MS * chance.uniform(0.97, 1.03)) for one in levels])
    claimed = (view.figures.steps.length or 0.0) * 1000
    assert now / 1.1 < claimed < now * 1.1


def test_a_speed_of_few_steps_is_not_settled() -> None:
    """With WARMWATCH_WARM_STEPS=1, a rank is warm after its first step, which has no length."""
    begun = replace(b.WARM.steps, steps=1)
    for recent, steps in (((), begun), ((36 * MS, 36 * MS), replace(begun, steps=2))):
        counts = replace(b.WARM.compile, clean_after=0)
        slot = replace(b.WARM, steps=steps, compile=counts, recent=recent)
        view = replace(b.view(b.WARM), figures=b.view(slot).figures)
        assert not reached(b.snapshot(view).runs, "settled")
        assert not is_reached(to_builtins(status(b.snapshot(view))), "settled")
    older = b.view(replace(b.WARM, recent=()))
    assert reached(b.snapshot(older).runs, "settled"), "its agent stores no lengths"


def test_the_sentence_and_settled_count_the_same_steps() -> None:
    """The first step without compile activity counts, and has no length."""
    counts = replace(b.WARM.compile, clean_after=0, clean_sum_ns=9 * 2000 * MS)
    slot = replace(
        b.WARM,
        steps=replace(b.WARM.steps, steps=10),
        compile=counts,
        recent=(*[2000 * MS] * 9, 0),
        clean_bins=b.bins(*[2000 * MS] * 9),
    )
    view = replace(b.view(b.WARM), figures=b.view(slot).figures)
    assert view.figures.steps.settled
    assert "2 s a step is the real speed" in summary(b.snapshot(view))


FRAME = {"name": "forward", "file": "train.py", "line": 31, "code": "a7b1be19100f"}


def test_the_compiling_function_is_named_from_the_begin_of_its_compilation() -> None:
    first = b.view(
        b.COMPILING, journal={"beginning": Beginning(at_ns=b.ago(43), what="dynamo", **FRAME)}
    )
    assert summary(b.snapshot(first)) == (
        "gpt2: compiling for 43 s (inductor), now `forward` (train.py:31)"
    )
    counts = replace(b.COMPILING.compile, active_since_ns=b.ago(8))
    began = {"beginning": Beginning(at_ns=b.ago(8), what="dynamo", **FRAME)}
    later = b.view(replace(b.COMPILING, compile=counts), journal=began)
    assert summary(b.snapshot(later)) == (
        "gpt2: compiling for 43 s (inductor), now `forward` (train.py:31)"
    )
    # one that takes too long has its own time as well
    slow = replace(counts, active_since_ns=b.ago(4000), episode_began_ns=b.ago(4100))
    began = {"beginning": Beginning(at_ns=b.ago(4000), what="dynamo", **FRAME)}
    long = b.view(replace(b.COMPILING, compile=slow), journal=began)
    words = summary(b.snapshot(long))
    assert "compiling for 68 min (inductor), now `forward` (train.py:31)" in words
    assert "; one compilation takes 67 min, the limit is 60 min" in words


def test_a_recompile_that_has_ended_shows_its_reason_until_warm_again() -> None:
    counts = replace(
        b.RECOMPILING.compile,
        active_since_ns=0,
        active_phase=0,
        ended=3,
        last_end_ns=b.ago(0.5),
        activities_seen=3,
        clean_after=3603,
    )
    steps = replace(b.RECOMPILING.steps, steps=3604)
    recompiled = replace(b.RECOMPILING, compile=counts, steps=steps)
    older = replace(b.RECOMPILATION, at_ns=b.ago(2), reason="0/0: GLOBAL_STATE changed: grad_mode")
    found = b.in_words(b.view(recompiled, compilations=(older, b.RECOMPILATION)))
    assert found.startswith("gpt2: recompiled `forward` (model.py:31), 1 of 3 clean steps since")
    assert b.WHY in found
    assert (plain(older.reason) or "?") not in found
    assert "last step 36 ms" in found


def test_the_reason_of_an_earlier_recompile_is_not_shown_for_this_one() -> None:
    old = replace(b.RECOMPILATION, at_ns=b.ago(60))
    sentence = summary(b.snapshot(b.view(b.RECOMPILING, compilations=(old,))))
    assert sentence == "gpt2: recompiling for 2.1 s (dynamo)"


def test_a_detached_agent_is_not_called_a_finished_training() -> None:
    detached = b.view(b.ended("detached"))
    assert summary(b.snapshot(detached)) == "gpt2: detached after 3602 steps"


def test_several_runs_are_named_briefly_the_least_advanced_first() -> None:
    views = (STATES["warm"], b.in_every_state("vit")["compiling"], b.in_every_state("bert")["lost"])
    assert b.parts(answer(b.snapshot(*views))) == (
        "2 runs: vit compiling for 43 s (inductor); gpt2 warm",
        (
            "vit: compiling for 43 s (inductor)",
            "gpt2: warm since step 4: 36 ms a step is the real speed",
            "earlier: bert lost",
        ),
    )


def test_without_a_run_the_sentence_explains_how_to_attach() -> None:
    assert "import warmwatch.auto" in summary(b.snapshot())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.00042, "0.42 ms"),
        (0.1163, "116 ms"),
        (0.9996, "1.0 s"),
        (2.1, "2.1 s"),
        (9.96, "10 s"),
        (43, "43 s"),
        (119.4, "119 s"),
        (119.5, "120 s"),
        (149, "149 s"),
        (599.4, "599 s"),
        (599.5, "10 min"),
        (720, "12 min"),
        (7199, "2 h"),
        (11_100, "3 h 5 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations_are_in_readable_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def evidence_of(view: RankView) -> list[str]:
    return evidence(view)


def test_evidence_of_a_stall_is_its_silence_its_limit_and_the_process_state() -> None:
    process = ProcessReading(pid=1, cpu_seconds=1.0, resident_bytes=1, cpu_ratio=0.98)
    assert evidence_of(b.view(b.STALLED, process=process))[:2] == [
        "no step for 75 s (stall limit 60 s)",
        "the process uses 98 % of a core meanwhile",
    ]


def test_reasons_to_doubt_the_figures_are_reported() -> None:
    counts = replace(b.WARM.compile, fallbacks=1, failures=2, agent_errors=3, journal_dropped=4)
    identity = replace(b.WARM.identity, missing=("new_optimizers",))
    view = b.view(replace(b.WARM, compile=counts, identity=identity), broken_lines=5)
    assert evidence_of(view)[3:] == [
        "new inputs of 1 function run eagerly: the recompile limit was reached",
        "2 compilations failed",
        "the agent caught 3 errors of its own: its figures may be low",
        "4 journal lines could not be written",
        "5 journal lines could not be read",
        "this torch does not have: new_optimizers",
    ]
