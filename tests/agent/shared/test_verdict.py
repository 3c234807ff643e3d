"""The verdict and the facts it rests on, driven through generated histories.

The agent's own ledger and step marks run on a clock of the test's; what they say is compared with a
model of a few lines, written from the contract alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ranks import SECOND, K, Rank
from warmwatch.process.ending import End
from warmwatch.shared import record, states, verdict
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch.shared.states import State, least_advanced
from warmwatch.shared.verdict import Facts


@dataclass
class Model:
    """The contract's rules without a ledger: an independent implementation."""

    open: list[str] = field(default_factory=list)
    touched: bool = False
    ever: bool = False
    clean: int = 0
    steps: int = 0
    warmed: bool = False
    compile_ns: int = 0

    def expect(self) -> State:
        if self.open:
            return State.RECOMPILING if self.warmed else State.COMPILING
        if not self.steps and not self.ever:
            return State.STARTING
        clean = 0 if self.touched else self.clean
        if clean >= K:
            return State.WARM if self.ever else State.EAGER
        return State.RECOMPILING if self.warmed else State.WARMING


EVENTS = ("dynamo", "backend_compile", "inductor_compile", "async_compile.wait", "no such event")
# at most 60 waits of 0.9 s: below the stall limit, which has tests of its own
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(EVENTS)),
        st.tuples(st.just("end"), st.just("")),
        st.tuples(st.just("step"), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from(("0.01", "0.2", "0.9"))),
    ),
    max_size=60,
)


@settings(max_examples=3 * settings().max_examples)
@given(ACTIONS)
def test_any_history_has_the_states_of_the_model(actions: list[tuple[str, str]]) -> None:
    rank, model = Rank(), Model()
    for action, value in actions:
        if action == "wait":
            rank.wait(float(value))
            model.compile_ns += int(float(value) * SECOND) if model.open else 0
        elif action == "begin":
            rank.ledger.begin(value)
            model.open.append(value)
            model.touched = model.ever = True
        elif action == "end" and model.open:
            rank.ledger.end(model.open.pop())
        elif action == "step" and not model.open:
            rank.wait(0.02)
            rank.step()
            model.steps += 1
            model.clean = 0 if model.touched else model.clean + 1
            model.touched = False
            model.warmed = model.warmed or (model.ever and model.clean >= K)
        judgement = rank.judge()
        assert judgement.state is model.expect()
        assert judgement.compiling is bool(model.open)
        assert judgement.warm is (model.expect() in (State.WARM, State.EAGER))
        accounted = sum(rank.slot().compile.phase_ns)
        if not model.open:
            assert accounted == model.compile_ns
            assert rank.slot().steps.steps == model.steps


@given(ACTIONS)
def test_the_same_facts_and_clock_give_the_same_judgement(actions: list[tuple[str, str]]) -> None:
    rank = Rank()
    for action, value in actions:
        if action == "begin":
            rank.ledger.begin(value)
        elif action == "step":
            rank.step()
        elif action == "wait":
            rank.wait(float(value))
    assert rank.judge() == rank.judge()


def compile_once(rank: Rank, seconds: float = 5.0) -> None:
    rank.ledger.begin("dynamo")
    rank.wait(seconds)
    rank.ledger.end("dynamo")


def run_steps(rank: Rank, count: int, seconds: float = 0.1) -> None:
    for _ in range(count):
        rank.wait(seconds)
        rank.step()


def test_warm_is_declared_at_the_kth_clean_step_and_ended_with_the_last_activity() -> None:
    rank = Rank()
    compile_once(rank)
    ended = rank.now
    run_steps(rank, 1 + K - 1)
    assert rank.judge().state is State.WARMING
    run_steps(rank, 1)
    assert rank.judge().state is State.WARM
    warmup = rank.slot().compile.last_warmup
    assert (warmup.ended_ns, warmup.warm_ns, warmup.steps) == (ended, rank.now, 1)
    assert warmup.began_ns == rank.slot().compile.first_begin_ns
    assert rank.warm_calls == 1


def test_a_second_warmup_is_separate_and_the_first_remains() -> None:
    rank = Rank()
    compile_once(rank)
    run_steps(rank, 6)
    first = rank.slot().compile.last_warmup
    rank.wait(50)
    began = rank.now
    compile_once(rank, 2)
    assert rank.judge().state is State.RECOMPILING
    assert rank.judge().since_ns == began
    run_steps(rank, 1 + K)
    compiled = rank.slot().compile
    assert compiled.first_warmup == first
    assert (compiled.warmups, compiled.last_warmup.began_ns, compiled.last_warmup.steps) == (
        2,
        began,
        1,
    )


def test_a_step_with_activity_counts_from_its_first_activity() -> None:
    rank = Rank()
    rank.wait(30)  # for example loading data: no part of the first step
    compile_once(rank, 7)
    run_steps(rank, 1, 0.5)
    assert rank.slot().compile.first_duration_ns == 7.5 * SECOND


def test_the_sum_of_clean_steps_is_right_and_never_falls_between_two_stores() -> None:
    """A reader may read between the two blocks' stores; Prometheus takes a fall for a reset."""
    rank = Rank()
    sums: list[int] = []
    publish = rank.store.publish

    def watch(words: list[int], *, renew_lock: bool = True) -> None:
        publish(words, renew_lock=renew_lock)
        sums.append(rank.slot().clean_sum_ns)

    rank.store.publish = watch
    for _ in range(3):
        compile_once(rank)
        run_steps(rank, 5, 0.25)
        sums.append(rank.slot().clean_sum_ns)
    assert sums == sorted(sums)
    assert rank.slot().clean_sum_ns == 3 * 4 * SECOND // 4
    assert rank.slot().compile.compile_step_sum_ns == 3 * 5.25 * SECOND


def test_the_first_step_of_an_eager_run_has_no_known_length() -> None:
    rank = Rank()
    run_steps(rank, 1, 9)
    assert rank.slot().steps == StepCounts(steps=1, last_step_ns=rank.now)
    assert sum(rank.slot().clean_bins) == 0


def test_eager_is_warm_but_was_never_warmed_up() -> None:
    rank = Rank()
    run_steps(rank, K)
    assert rank.judge().state is State.EAGER
    assert rank.judge().warm
    assert rank.slot().compile.warmups == 0
    compile_once(rank)
    assert rank.judge().state is State.WARMING


def test_a_step_in_which_earlier_activity_ends_is_not_clean() -> None:
    """Without a usual step length; the background tests cover the other case."""
    rank = Rank()
    run_steps(rank, 1)
    rank.ledger.begin("dynamo")
    with ThreadPoolExecutor(1) as other:
        other.submit(rank.ledger.begin, "inductor_compile").result()
        run_steps(rank, 1)  # ends what this thread began; the other thread goes on
        assert not rank.judge().compiling
        assert rank.judge().clean_steps == 0
        rank.wait(1)
        other.submit(rank.ledger.end, "inductor_compile").result()
    run_steps(rank, 1)
    assert rank.judge().clean_steps == 0
    run_steps(rank, 1)
    assert rank.judge().clean_steps == 1


def test_a_lost_end_event_does_not_leave_the_rank_compiling() -> None:
    rank = Rank()
    rank.ledger.begin("dynamo")
    rank.ledger.begin("inductor_compile")
    rank.wait(3)
    rank.ledger.end("dynamo")  # the inner end was lost
    assert not rank.judge().compiling
    rank.ledger.begin("dynamo")
    run_steps(rank, 1)  # and now the outer one: a step on the same thread ends it
    assert not rank.judge().compiling


def test_an_end_without_a_begin_is_ignored() -> None:
    rank = Rank()
    rank.ledger.end("dynamo")
    assert rank.judge().state is State.STARTING


def test_phase_times_are_exclusive_and_add_up() -> None:
    rank = Rank()
    for event, seconds in (("dynamo", 1), ("create_aot_dispatcher_function", 2), ("code_gen", 4)):
        rank.ledger.begin(event)
        rank.wait(seconds)
    for event, seconds in (("code_gen", 8), ("create_aot_dispatcher_function", 16)):
        rank.ledger.end(event)
        rank.wait(seconds)
    rank.ledger.end("dynamo")
    times = dict(zip(record.PHASES, rank.slot().compile.phase_ns, strict=True))
    assert {name: ns // SECOND for name, ns in times.items() if ns} == {
        "dynamo": 1 + 16,
        "aot_autograd": 2 + 8,
        "inductor": 4,
    }


def test_counters_add_up_across_a_users_clear() -> None:
    rank = Rank()
    rank.pytorch.numbers = {"graphs": 5}  # from before we were attached: not ours
    rank.ledger.begin("dynamo")
    rank.pytorch.numbers["graphs"] = 7
    rank.ledger.end("dynamo")
    assert rank.slot().compile.graphs == 2
    rank.pytorch.numbers.clear()
    rank.ledger.begin("dynamo")
    rank.pytorch.numbers["graphs"] = 1
    rank.ledger.end("dynamo")
    assert rank.slot().compile.graphs == 3


def test_recompiles_are_counted_by_category_and_apart_after_warm() -> None:
    rank = Rank()
    rank.ledger.post("compilation", {"kind": "forward", "id": "0/1", "category": "shape"})
    compile_once(rank)
    run_steps(rank, 1 + K)
    rank.ledger.post("compilation", {"kind": "forward", "id": "0/2", "category": "shape"})
    rank.ledger.post(
        "compilation", {"kind": "forward", "id": "1/0", "failure": "BackendCompilerFailed"}
    )
    compiled = rank.slot().compile
    assert compiled.recompiles_by_category[record.CATEGORIES.index("shape")] == 2
    assert (compiled.recompiles_after_warm, compiled.failures) == (1, 1)
    assert compiled.compilations[record.KINDS.index("forward")] == 3


def test_three_touched_steps_of_the_last_ten_are_thrashing() -> None:
    rank = Rank()
    for _ in range(3):
        compile_once(rank)
        run_steps(rank, 1)
    assert rank.judge().conditions == (), "the first warm-up may compile as often as it has to"
    run_steps(rank, K)
    for _ in range(2):
        compile_once(rank)
        run_steps(rank, 1)
        assert rank.judge().conditions == ()
    run_steps(rank, K)
    compile_once(rank)
    run_steps(rank, 1)
    assert rank.judge().conditions == ("thrashing",)
    run_steps(rank, K + 1)  # as long as between two of them
    assert rank.judge().conditions == ("thrashing",)
    run_steps(rank, 1)
    assert rank.judge().conditions == ()


def test_a_frame_at_the_recompile_limit_remains_a_fallback() -> None:
    rank = Rank()
    rank.ledger.post("fallback", {"name": "forward", "limit": 8})
    run_steps(rank, 50)
    assert rank.judge().conditions == ("fallback",)
    assert rank.store.notes[0][2]["steps"] == 0


def test_a_background_compilation_is_never_reported_as_warm() -> None:
    rank = Rank()
    rank.pytorch.swaps_later = True
    compile_once(rank)
    run_steps(rank, 50)
    judgement = rank.judge()
    assert (judgement.state, judgement.warm) == (State.WARMING, False)
    assert judgement.conditions == ("unknown",)
    assert rank.slot().compile.warmups == 0


def test_the_stall_limit_follows_from_the_ranks_own_steps() -> None:
    rank = Rank()
    run_steps(rank, 20, 10)
    rank.wait(95)  # ten medians are 100 s, read off bins that are 5 % wide
    assert rank.judge().state is State.EAGER
    rank.wait(10)
    assert rank.judge().state is State.STALLED
    assert rank.judge().since_ns is not None
    run_steps(rank, 1)
    assert rank.judge().state is State.EAGER
    rank.wait(200)  # the longest gap so far was 105 s: twice that is not over yet
    assert rank.judge().state is State.EAGER


def test_compile_time_does_not_raise_the_stall_limit() -> None:
    rank = Rank()
    run_steps(rank, 2)
    compile_once(rank, 500)
    run_steps(rank, 4)
    assert rank.slot().compile.longest_rest_ns < SECOND
    rank.wait(61)
    assert rank.judge().state is State.STALLED


@pytest.mark.parametrize("timeout", [0, 900], ids=["alone", "with collectives"])
def test_a_rank_stalls_before_its_first_step_if_its_collectives_are_about_to_time_out(
    timeout: float,
) -> None:
    rank = Rank()
    for end, state in ((False, State.STARTING), (True, State.WARMING)):
        if end:
            rank.ledger.begin("dynamo")
            rank.wait(1000)
            assert rank.judge(timeout=timeout).state is State.COMPILING
            rank.ledger.end("dynamo")
        rank.wait(450)
        assert rank.judge(timeout=timeout).state is state
        rank.wait(1)
        assert rank.judge(timeout=timeout).state is (State.STALLED if timeout else state)
    rank.ledger.post("settled", {"by": "ready"})  # a server that waits for requests
    rank.wait(1000)
    assert rank.judge(timeout=timeout).state is State.WARM


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("finished", State.FINISHED),
        ("failed", State.FAILED),
        ("detached", State.FINISHED),
        ("interrupted", State.FINISHED),
    ],
)
def test_a_reported_end_stands(how: str, state: State) -> None:
    rank = Rank()
    rank.ledger.begin("dynamo")
    rank.ledger.exit(End(how=how))
    ended = rank.now
    rank.wait(9)
    assert rank.judge(alive=False).state is state
    assert rank.judge(alive=False).since_ns == ended
    assert not rank.judge(alive=False).compiling


def test_a_finished_program_exits_until_its_process_is_gone() -> None:
    rank = Rank()
    run_steps(rank, 5)
    assert "exiting" not in rank.judge().conditions
    rank.ledger.exit(End(how="finished"))
    assert "exiting" in rank.judge().conditions
    assert "exiting" not in rank.judge(alive=False).conditions


def test_a_process_gone_without_an_end_is_lost() -> None:
    rank = Rank()
    run_steps(rank, 5)
    assert rank.judge(alive=False).state is State.LOST
    assert not rank.judge(alive=False).warm
    # a daemonic child that its parent terminated
    assert rank.judge(alive=False, dismissed=True).state is State.FINISHED


@pytest.mark.parametrize(
    ("states", "run"),
    [
        ((State.WARM, State.COMPILING, State.WARMING), State.COMPILING),
        ((State.WARM, State.RECOMPILING), State.RECOMPILING),
        ((State.WARM, State.STALLED), State.STALLED),
        ((State.WARM, State.FAILED), State.WARM),
        ((State.FINISHED, State.LOST, State.FAILED), State.FAILED),
        ((State.FINISHED, State.FINISHED), State.FINISHED),
    ],
)
def test_a_run_has_the_state_of_its_least_advanced_living_rank(
    states: tuple[State, ...], run: State
) -> None:
    assert least_advanced(states) is run


def test_a_run_without_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        least_advanced(())


def test_the_names_of_the_states_are_public() -> None:
    """In ``/status``, in the series and in what users wrote; and which of them are the end."""
    living = ("starting", "compiling", "warming", "warm", "eager", "recompiling", "stalled")
    ended = ("finished", "failed", "lost")
    assert tuple(state.value for state in State) == (*living, *ended)
    assert {state.value for state in states.ENDED} == states.ENDED_STATES == set(ended)
    assert {state.value for state in states.WARM} == {"warm", "eager"}
    needs = {"nothing_captured", "long_compile", "never_compiled"}
    assert set(states.CONDITIONS) > states.NEEDS_ATTENTION == needs
    assert states.NEEDS_ATTENTION > states.MAY_NEVER_END == {"long_compile"}


def test_every_state_is_in_the_order_of_advancement() -> None:
    assert {least_advanced([state]) for state in State} == set(State)


def test_unknown_facts_of_a_rank_have_their_defaults() -> None:
    """An unknown time or length is 0."""
    known = {"attached_ns": 1, "warm_steps": K, "steps": StepCounts(), "compile": CompileCounts()}
    facts = Facts(**known)  # type: ignore[arg-type]
    assert verdict.judge(facts, 2).state is State.STARTING
    others = facts._asdict()
    assert {name: value for name, value in others.items() if name not in known} == {
        **dict.fromkeys(("median_step_ns", "gone_ns", "usual_step_ns")),
        **dict.fromkeys(("longest_step_ns", "peers_compiled_ns", "last_batch_ns"), 0),
        **dict.fromkeys(("working_ns", "peers_longest_ns", "pause_ns", "baseline_steps"), 0),
        **dict.fromkeys(("killed_by", "collective_timeout_ns"), 0),
        **dict.fromkeys(("fell_first", "dismissed"), False),
        **dict.fromkeys(("slower", "memory_growing", "workers_memory", "workers_compile"), False),
        "alive": True,
        "long_compile_ns": verdict.LONG_COMPILE_NS,
        "earlier_warmups_ns": (),
    }
