"""What limits the speed: averages of each poll, and the verdict from them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import builders as b
from support import recordings
from support.builders import NOW, SECOND, view_of
from support.values import replace
from warmwatch.shared.states import LIMITS
from warmwatch_monitor.commands.report.goodput import CLEAN, DATA, goodput
from warmwatch_monitor.figures.rank import LimitedBy
from warmwatch_monitor.model.machine import ProcessReading
from warmwatch_monitor.model.records import RecordReading
from warmwatch_monitor.model.snapshot import RankView, limit_of
from warmwatch_monitor.pipeline.limit_verdict import MARGIN, OVERHEAD, Load, limited_by
from warmwatch_monitor.pipeline.limits import Window, follow, load_of, with_limits
from warmwatch_monitor.status.run import rank
from warmwatch_monitor.status.words.sentence import answer

# averages of an H100, as shared recordings and `tests/gpu/limits.py` have them
AT_WORK = Load(gpus=1, busy=0.99, sm=0.88, tensor=0.52, dram=0.43, watts=686, power=0.98, cpu=1)
STREAM = Load(gpus=1, busy=1.0, sm=0.95, tensor=0.0, dram=0.88, watts=480, power=0.69, cpu=1)
TINY = Load(gpus=1, busy=0.3, sm=0.01, tensor=0.0, dram=0.01, watts=130, power=0.19, cpu=1)
# two H200: all-reduces of 1 GB, whose kernels take 66 % of the step by the profiler; a rank that
# waits for another one in 95 % of it
COPIES = Load(
    gpus=1,
    busy=0.865,
    sm=0.454,
    tensor=0.025,
    dram=0.419,
    watts=405,
    power=0.58,
    nvlink_bytes=148e9,
    ranks=2,
)
WAITS = replace(
    COPIES, busy=0.995, sm=0.274, tensor=0.066, dram=0.042, power=0.33, nvlink_bytes=3e9
)
# a loop that waits for a server, on a machine without a GPU
SLEEPS = Load(cpu=0.1, below=0.0, queued=0.0, batches=0, accelerated=False)
AS_READ = {"utilization_ratio": 0.99}  # as builders.gpu() has the rest
COMPUTES = {**AS_READ, "tensor_active_ratio": 0.7}


def verdict(load: Load) -> str | None:
    found = limited_by(load)
    return found.verdict if found else None


@pytest.mark.parametrize(
    ("load", "verdict"),
    [
        (AT_WORK, "compute"),
        (replace(AT_WORK, tensor=0.0, dram=0.1), "compute"),  # in float32: all SMs, no tensor core
        (replace(AT_WORK, tensor=0.40, dram=0.48), None),  # both explain it
        (replace(AT_WORK, tensor=None, sm=None, dram=None), None),  # utilization alone: no GPM
        (replace(AT_WORK, throttled={"sw_power_cap": 1.0}), "compute"),
        (replace(AT_WORK, throttled={"hw_thermal_slowdown": 0.4}), "throttled"),
        (replace(AT_WORK, throttled={"hw_thermal_slowdown": 0.1}), "compute"),
        (replace(AT_WORK, others=0.3), "shared"),
        (replace(AT_WORK, others=0.1), "compute"),
        (replace(AT_WORK, waiting=0.6), "compute"),  # queued kernels run during the wait
        (replace(AT_WORK, saving=0.3), "saving"),
        (replace(AT_WORK, saving=0.21, evaluating=0.5), "evaluation"),
        (STREAM, "memory"),
        (TINY, "host"),
        (replace(TINY, crowded=3.0), "shared"),
        (replace(TINY, cpu=0.4, queued=0.6), "shared"),  # a quota of CPUs, or others on them
        (replace(TINY, cpu=0.1, queued=0.3), None),
        (replace(TINY, queued=0.1), "host"),
        (replace(TINY, queued=0.1, crowded=3.0), "host"),  # other threads do not slow this one
        (replace(TINY, cpu=0.1), None),  # the process sleeps: what it waits for is not known
        (replace(TINY, cpu=None), None),
        (replace(TINY, waiting=0.65), "input"),
        (replace(TINY, gpus=4, busy=0.25), None),  # one after the other, as in a naive pipeline
        (replace(TINY, gpus=4, busy=0.1), "host"),
        (replace(TINY, fetched_ahead=True), None),  # it may wait for the thread that fetches
        (replace(TINY, evaluating=0.5), "evaluation"),  # no kernel in 70 % of the other half
        (replace(TINY, cpu=0.1, throttled={"hw_thermal_slowdown": 1.0}), None),  # it waits for else
        (replace(TINY, waiting=0.65, busy=None), None),  # queued kernels may run
        (COPIES, "communication"),
        (replace(COPIES, busy=0.789, sm=0.409, cpu=1.0), "communication"),  # 51 %, and gaps of 21 %
        (replace(COPIES, busy=0.6, sm=0.2, cpu=1.0), "communication"),
        (replace(COPIES, busy=0.5, sm=0.2, cpu=1.0), "host"),  # gaps of half the time
        (replace(COPIES, ranks=1), None),
        (replace(COPIES, nvlink_bytes=None), None),
        (WAITS, "communication"),
        (replace(WAITS, power=0.9), None),
        (replace(WAITS, sm=0.02), None),  # tiny kernels
        (Load(waiting=0.4), "input"),  # without a GPU nothing runs during the wait
        (Load(waiting=0.1, cpu=1.0), None),
        (Load(queued=0.3, cpu=0.7, cpus=2), "shared"),
        (Load(queued=0.05, cpu=0.01, cpus=2), None),  # it sleeps
        (Load(queued=1.0, cpu=0.0, cpus=2), "shared"),
        (Load(queued=0.3, cpu=0.7), None),  # its own threads may use all CPUs
        (Load(queued=0.3, waiting=0.5, cpu=0.2, cpus=2), "input"),
        (Load(queued=0.3, evaluating=0.15, waiting=0.29, cpu=0.7, cpus=2), "input"),
        (Load(queued=0.1, crowded=3.0, cpu=0.7, cpus=2), None),  # the others leave it its CPUs
        (Load(queued=0.6, crowded=3.0, cpu=1.9, cpus=2), None),  # its own threads use the CPUs
        (replace(AT_WORK, queued=0.5), "compute"),  # the GPU works all the time
        (Load(), None),
        (SLEEPS, "waiting"),
        (replace(SLEEPS, below=0.9), None),  # its children work
        (replace(SLEEPS, below=None), None),
        (replace(SLEEPS, cpu=0.9), None),
        (replace(SLEEPS, queued=0.9), None),  # it could run
        (replace(SLEEPS, queued=None), None),
        (replace(SLEEPS, accelerated=True), None),  # another accelerator may work
        (replace(SLEEPS, accelerated=None), None),
        (replace(SLEEPS, batches=None), None),  # waits for batches are not known
        (replace(SLEEPS, batches=9), None),
        (replace(SLEEPS, batches=9, waiting=0.1), "waiting"),
        (replace(SLEEPS, batches=9, waiting=0.6), "input"),
        (replace(SLEEPS, batches=9, waiting=0.1, fetched_ahead=True), None),
        (replace(SLEEPS, evaluating=0.6), "evaluation"),
        (replace(SLEEPS, gpus=1, busy=0.35, accelerated=True), "waiting"),
        (replace(SLEEPS, gpus=1, busy=0.35, cpu=0.5), None),  # in turns, or at one time
        (replace(SLEEPS, gpus=1, busy=0.9), None),
        (replace(SLEEPS, gpus=1), None),
        (replace(SLEEPS, gpus=2, busy=0.45), None),
    ],
)
def test_the_verdict_of_a_load(load: Load, verdict: str | None) -> None:
    found = limited_by(load)
    assert (found.verdict if found else None) == verdict
    assert found is None or (found.evidence and all(found.evidence))


def test_workers_that_compile_are_in_the_evidence_of_input() -> None:
    found = limited_by(Load(waiting=0.4, workers_compiled=8))
    assert found is not None
    assert found.evidence[1] == "8 DataLoader workers have compiled, each for itself"


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        ("off", 'CUDA graphs are off: mode="reduce-overhead" may help'),
        ("skipped", "CUDA graphs were requested and skipped"),
        ("on", None),
    ],
)
def test_gaps_between_kernels_name_cuda_graphs(graphs: str, words: str | None) -> None:
    found = limited_by(replace(TINY, cudagraphs=graphs))
    assert found is not None
    assert [one for one in found.evidence if "CUDA graphs" in one] == ([words] if words else [])


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (None, "no kernel runs 70 % of the time"),
        (0.1, "no kernel runs 60 % of the time, besides the measured waits for batches"),
    ],
)
def test_gaps_do_not_claim_that_no_batch_is_awaited(waiting: float | None, words: str) -> None:
    """A loader of another library, or one that starts its workers, may hold the loop up."""
    found = limited_by(replace(TINY, waiting=waiting))
    assert found is not None
    assert found.evidence == (words, "the process uses 1.0 cores")


SHARES = st.none() | st.floats(0, 1)
LOADS = st.builds(
    Load,
    **dict.fromkeys(
        ("waiting", "saving", "evaluating", "busy", "sm", "tensor", "dram", "others"), SHARES
    ),
    power=SHARES,
    cpu=st.none() | st.floats(0, 4),
    cpus=st.none() | st.integers(1, 4),
    queued=SHARES,
    crowded=st.none() | st.floats(0, 9),
    gpus=st.integers(0, 3),
    ranks=st.integers(1, 3),
    throttled=st.dictionaries(st.sampled_from(["hw_slowdown", "sw_power_cap"]), st.floats(0, 1)),
)


@given(LOADS, st.none() | st.sampled_from(LIMITS))
def test_a_verdict_has_a_name_of_the_list_and_a_share(load: Load, held: str | None) -> None:
    found = limited_by(load, held)
    if found is not None:
        assert found.verdict in LIMITS
        assert found.share is not None
        assert 0 <= found.share <= 1


@given(LOADS, st.floats(0, 1), st.sampled_from(["saving", "evaluating", "waiting"]))
def test_more_of_what_limits_it_does_not_change_the_verdict(
    load: Load, more: float, name: str
) -> None:
    verdict = {"saving": "saving", "evaluating": "evaluation", "waiting": "input"}[name]
    before = limited_by(load)
    now = limited_by(replace(load, **{name: max(getattr(load, name) or 0.0, more)}))
    if before is not None and before.verdict == verdict:
        assert now is not None
        assert now.verdict == verdict
        assert (now.share or 0) >= (before.share or 0)


@given(LOADS)
def test_a_verdict_holds_until_the_load_has_changed_by_a_margin(load: Load) -> None:
    found = limited_by(load)
    held = limited_by(load, found.verdict if found else None)
    assert (held.verdict if held else None) == (found.verdict if found else None)


def test_a_share_around_the_limit_does_not_flap() -> None:
    held, seen = None, []
    for share in (0.19, 0.21, 0.19, 0.17, 0.19, 0.21, 0.14, 0.19):
        found = limited_by(Load(waiting=share), held)
        held = found.verdict if found else None
        seen.append(held)
    assert seen == [None, *["input"] * 5, None, None]
    assert pytest.approx(0.15) == OVERHEAD - MARGIN


class Training:
    """A rank that is polled once a second from its warm-up on, with steps of half a second.

    Attributes:
        marked_every: seconds between the step marks that polls see. evaluating_since: when an
        evaluation in progress began, in seconds.
    """

    def __init__(self, **gpu: float | None) -> None:
        self.gpu, self.marked_every, self.evaluating_since = gpu, 1, 0
        self.window: Window | None = None
        self.seconds = self.marked = 0
        self.spent = {
            "batch_wait_ns": 0,
            "waited_before_ns": 0,
            "saving_ns": 0,
            "evaluating_ns": 0,
            "cpu": 0.0,
            "queued": 0,
            "none": 0,
        }

    def view(
        self, *, begun: int = 2, run: str = "gpt2", at: int = 0, **identity: object
    ) -> RankView:
        """As of now, or ``at``."""
        at, gpu = at or NOW + self.seconds * SECOND, None
        paused = self.spent["saving_ns"] + self.spent["evaluating_ns"]
        if self.gpu:
            gpu = replace(b.gpu(0, **self.gpu), at_ns=at)
            identity = {"gpus": (gpu.uuid,), **identity}
        slot = replace(
            b.WARM,
            identity=replace(b.WARM.identity, run=run, **identity),
            compile=replace(
                b.WARM.compile,
                begun=begun,
                activities_seen=begun,
                clean_after=b.WARM.steps.steps - 3,
                irregular_step_ns=NOW - 3 * SECOND // 2 + paused,
                clean_sum_before_ns=b.WARM.compile.clean_sum_ns,
                waited_before_ns=self.spent["waited_before_ns"],
                saving_ns=self.spent["saving_ns"],
                evaluating_ns=self.spent["evaluating_ns"],
                evaluating_since_ns=self.evaluating_since and NOW + self.evaluating_since * SECOND,
            ),
            steps=replace(
                b.WARM.steps,
                steps=b.WARM.steps.steps + 2 * self.marked,
                last_step_ns=NOW + self.marked * SECOND,
                batches=9 + self.seconds,
                batch_wait_ns=self.spent["batch_wait_ns"],
            ),
            recent=b.ring(*(SECOND // 2,) * 8),
        )
        process = ProcessReading(
            pid=1,
            cpu_seconds=self.spent["cpu"],
            resident_bytes=1,
            cpu_ratio=1.0,
            queued_seconds=self.spent["queued"] / SECOND,
            cpus=2,
        )
        reading = RecordReading(folder=f"/d/{run}", slot=slot, alive=True, pid=1)
        return view_of(reading, at, process=process, gpus=(gpu,) if gpu else ())

    def after(self, seconds: int, *, cpu: float = 1.0, **spent: float) -> Load:
        """The averages after as many polls; ``spent``: seconds of each second."""
        for _ in range(seconds):
            self.seconds += 1
            if self.seconds % self.marked_every == 0:
                self.marked = self.seconds
            self.spent["cpu"] += cpu
            for name, share in spent.items():
                self.spent[name] += round(share * SECOND)
            self.window = follow(self.window, self.view(), NOW + self.seconds * SECOND, {1})
        assert self.window is not None
        return load_of(self.window, self.view(), None, NOW + self.seconds * SECOND)

    def paused(self, seconds: int, name: str) -> Load:
        """The averages after a pause between two steps."""
        every, self.marked_every = self.marked_every, 10**9
        load = self.after(seconds, **{name: 1.0})
        self.marked_every = every
        return load


def test_a_few_seconds_give_no_verdict() -> None:
    load = Training(tensor_active_ratio=0.3).after(4, batch_wait_ns=0.9)
    pauses = {"saving": 0.0, "evaluating": 0.0, "by_chance": ["saving", "evaluation"]}
    assert load == Load(gpus=1, cpus=2, cudagraphs="off", batches=13, **pauses)


@pytest.mark.parametrize("name", ["saving", "evaluating"])
def test_one_pause_has_no_rate_and_two_have_one(name: str) -> None:
    """Steps that mostly compute do not limit a training that mostly saves."""
    training = Training(**COMPUTES)
    assert verdict(training.after(20)) == "compute"
    assert verdict(training.paused(20, f"{name}_ns")) is None
    assert verdict(training.after(20)) is None
    load = training.paused(20, f"{name}_ns")
    assert verdict(load) == {"saving": "saving", "evaluating": "evaluation"}[name]
    assert getattr(load, name) == pytest.approx(40 / 79, abs=0.01)  # the first poll begins it
    assert verdict(training.after(300)) == "compute"


def test_an_evaluation_counts_before_it_ends() -> None:
    training = Training(**COMPUTES)
    training.after(20)
    training.evaluating_since, training.marked_every = training.seconds, 10**9
    assert verdict(training.after(4)) == "compute"
    load = training.after(16)
    assert (verdict(load), load.evaluating) == (None, pytest.approx(0.5, abs=0.02))


def test_batches_without_a_wait_come_from_another_thread() -> None:
    load = Training(**AS_READ).after(20)
    assert (load.waiting, load.fetched_ahead) == (0.0, True)
    training = Training(**AS_READ)
    training.marked_every = 5
    assert not training.after(20, batch_wait_ns=1e-6).fetched_ahead


def test_the_idle_gpu_counts_while_a_loader_waits_for_long() -> None:
    """As a loader that fetches a shard from time to time."""
    training = Training(**COMPUTES)
    load = training.after(10)
    for _ in range(4):
        training.gpu = {**COMPUTES, "utilization_ratio": 0.0, "tensor_active_ratio": 0.0}
        training.paused(9, "none")
        training.after(1, batch_wait_ns=10.0)
        training.gpu = COMPUTES
        load = training.after(10)
    assert (verdict(load), load.waiting) == ("input", pytest.approx(0.5, abs=0.1))


@pytest.mark.parametrize(
    ("seconds", "ago", "busy", "share"),
    [
        (14, 0, 0.1, 0.8),
        (14, 0, 0.5, 0.5),
        (14, 0, 0.95, None),
        (3, 0, 0.1, None),
        (14, 30, 0.1, None),
        (0, 0, 0.1, None),
    ],
    ids=("idle", "half", "runs ahead", "too short", "before the last compilation", "none kept"),
)
def test_a_late_reader_has_the_utilization_that_the_driver_kept(
    seconds: int, ago: int, busy: float, share: float | None
) -> None:
    """Waits of the CPU while queued kernels run cost nothing, so both are needed on a GPU."""
    training = Training(utilization_ratio=busy)
    training.seconds = training.marked = 30
    training.spent["batch_wait_ns"] = round(0.8 * 63 * SECOND / 2)
    view = training.view()
    ages = [SECOND * fifth // 5 for fifth in range(1, 5 * seconds + 1)]  # NVML promises no order
    kept = tuple((NOW + (30 - ago) * SECOND - age, busy) for age in ages)
    view = replace(view, gpus=tuple(replace(gpu, kept_utilization=kept) for gpu in view.gpus))
    limit = with_limits(b.runs(view), {}, None, NOW + 30 * SECOND)[1][0].limited_by
    assert (limit and limit.verdict) == (share and "input")
    assert (limit and limit.share) == (share and pytest.approx(share, abs=0.01))


def test_sentence_daemon_and_report_agree_on_the_share_of_waits() -> None:
    """Of a recorded training, as on a machine without GPUs; the page has the daemon's answer."""
    recording = recordings.read("waiting")
    (facts,) = recording.records.values()
    slot, at = recordings.slot_of(facts), recording.monotonic_ns
    slot = replace(slot, identity=replace(slot.identity, gpus=()))

    def view(seconds: int = 0) -> RankView:
        """The rank after so many more seconds of the same; a step takes 0.1 s."""
        steps = slot.steps
        more = steps.batch_wait_ns // (steps.steps - 1) * 10 * seconds
        steps = replace(
            steps,
            steps=steps.steps + 10 * seconds,
            batches=steps.batches + 10 * seconds,
            last_step_ns=steps.last_step_ns + seconds * SECOND,
            batch_wait_ns=steps.batch_wait_ns + more,
        )
        reading = RecordReading(folder="/d/r", slot=replace(slot, steps=steps), alive=True, pid=1)
        return view_of(reading, at + seconds * SECOND)

    late = with_limits(b.runs(view()), {}, None, at)[1][0].limited_by
    windows, runs = {}, b.runs(view())
    for seconds in range(30):
        windows, runs = with_limits(b.runs(view(seconds)), windows, None, at + seconds * SECOND)
    polled = runs[0].limited_by
    report = goodput(msgspec.to_builtins(rank(view())), (), view().figures.steps.last_at or 0.0)
    assert late is not None
    assert polled is not None
    assert report is not None
    taken = {one.name: one.seconds for one in report.shares}
    share = taken[DATA] / (taken[DATA] + taken[CLEAN])
    assert (late.verdict, polled.verdict) == ("input", "input")
    assert (late.share, polled.share) == (pytest.approx(share, abs=0.05),) * 2


def _later(view: RankView, seconds: int) -> RankView:
    record = view.record
    steps = replace(
        record.slot.steps, last_step_ns=record.slot.steps.last_step_ns + seconds * SECOND
    )
    return replace(
        view,
        reading=replace(record, slot=replace(record.slot, steps=steps)),
        gpus=tuple(replace(one, at_ns=one.at_ns + seconds * SECOND) for one in view.gpus),
        process=replace(view.process, cpu_seconds=float(seconds)) if view.process else None,
    )


@pytest.mark.parametrize(
    ("listed", "ratios", "others"),
    [
        ((1, 9), ((1, 0.6), (9, 0.3)), 0.3),
        ((1, 9), ((1, 0.6),), 0.0),  # it only holds memory
        ((1, 2), ((1, 0.6), (2, 0.3)), 0.0),  # a rank of the same run
        ((1,), (), 0.0),
        ((8, 9), ((8, 0.6), (9, 0.3)), None),  # pids of another namespace
        (None, (), None),
    ],
)
def test_other_programs_on_the_gpu(
    listed: tuple[int, ...] | None, ratios: tuple[tuple[int, float], ...], others: float | None
) -> None:
    training = Training(**AS_READ)
    window = None
    for second in range(10):
        training.seconds = training.marked = second
        view = training.view()
        gpus = tuple(replace(one, processes=listed, process_ratios=ratios) for one in view.gpus)
        window = follow(window, replace(view, gpus=gpus), NOW + second * SECOND, {1, 2})
    assert window is not None
    load = load_of(window, training.view(), None, NOW + 9 * SECOND)
    assert load.others == pytest.approx(others)


IN_A_COLLECTIVE = {
    "sm_active_ratio": 0.27,
    "tensor_active_ratio": 0.0,
    "dram_active_ratio": 0.0,
    "power_watts": 180.0,
    "utilization_ratio": 1.0,
}


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_in_a_collective_name_the_rank_that_they_wait_for(ranks: int) -> None:
    views = [
        Training(**(IN_A_COLLECTIVE if number else AS_READ)).view(rank=number, world_size=ranks)
        for number in range(ranks)
    ]
    views = [
        replace(view, reading=replace(view.record, folder=f"/d/{number}"))
        for number, view in enumerate(views)
    ]
    windows: dict[str, Window] = {}
    for second in range(20):
        moved = [_later(view, second) for view in views]
        windows, (run,) = with_limits(b.runs(*moved), windows, None, NOW + second * SECOND)
    assert [one.limited_by.verdict for one in run.ranks if one.limited_by] == [
        "compute",
        *["communication"] * (ranks - 1),
    ]
    assert run.ranks[0].limited_by is not None
    others = "2 ranks wait" if ranks == 3 else "rank waits"
    assert run.ranks[0].limited_by.evidence[-1] == f"the other {others} for rank 0"
    assert run.ranks[1].limited_by is not None
    assert run.ranks[1].limited_by.evidence[0] == "waits for rank 0, which compute limits"
    assert run.limited_by is not None
    assert run.limited_by.verdict == "compute"


@pytest.mark.parametrize(
    ("nvlink_bytes", "world_size", "verdict"),
    [
        (0.0, 2, None),  # small kernels of the model
        (1e11, 2, "communication"),
        (None, 2, "communication"),  # the traffic may take another way
        (0.0, 3, "communication"),  # for the third, on another host
    ],
)
def test_ranks_that_all_wait_have_no_one_to_wait_for(
    nvlink_bytes: float | None, world_size: int, verdict: str | None
) -> None:
    views = []
    for number in range(2):
        view = Training(**IN_A_COLLECTIVE).view(rank=number, world_size=world_size)
        gpus = tuple(replace(one, nvlink_bytes=nvlink_bytes) for one in view.gpus)
        reading = replace(view.record, folder=f"/d/{number}")
        views.append(replace(view, gpus=gpus, reading=reading))
    windows: dict[str, Window] = {}
    for second in range(20):
        moved = [_later(view, second) for view in views]
        windows, (run,) = with_limits(b.runs(*moved), windows, None, NOW + second * SECOND)
    found = [one.limited_by.verdict if one.limited_by else None for one in run.ranks]
    assert found == [verdict, verdict]


INPUT = LimitedBy(verdict="input", share=0.7, evidence=("70 % of the time waits for batches",))
WAITS = LimitedBy(verdict="communication", share=0.9, evidence=("kernels run 100 % of the time",))


@pytest.mark.parametrize(
    ("ranks", "where"),
    [
        ([INPUT], None),
        ([INPUT, INPUT], None),
        ([None, INPUT], "in rank 1 of 2 ranks"),
        ([None, INPUT, INPUT], "in 2 of 3 ranks"),
        ([INPUT, WAITS, WAITS], None),
    ],
)
def test_the_limit_of_a_run_names_the_ranks_that_have_it(
    ranks: list[LimitedBy | None], where: str | None
) -> None:
    limit = limit_of(dict(enumerate(ranks)))
    assert limit is not None
    assert (limit.verdict, limit.share) == ("input", 0.7)
    assert limit.evidence == (*INPUT.evidence, *([where] if where else []))


RECORDING = Path(__file__).parents[2] / "captures" / "h100_gpt2_124m_default.json"


def test_the_recorded_gpt2_has_no_single_limit() -> None:
    """Its tensor cores and its memory are used equally: 40 % and 48 %."""
    recorded = json.loads(RECORDING.read_text())["nvml"]
    steady = [one for one in recorded if one["gpm"]["sm"] > 60]
    assert len(steady) >= 3

    def mean(name: str) -> float:
        return sum(one["gpm"][name] for one in steady) / len(steady) / 100

    load = Load(gpus=1, busy=0.86, sm=mean("sm"), tensor=mean("tensor"), dram=mean("dram"))
    assert limited_by(load) is None


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([INPUT, INPUT], "limited by input (70 %)"),
        ([WAITS, WAITS, INPUT], "limited by input (70 %), rank 2 of 3"),
        ([None, INPUT, INPUT], "limited by input (70 %), 2 of 3 ranks"),
    ],
)
def test_the_sentence_names_the_ranks_that_have_the_limit(
    ranks: list[LimitedBy | None], words: str
) -> None:
    views = [
        replace(b.view(b.as_rank(b.WARM, rank, len(ranks))), limited_by=limit)
        for rank, limit in enumerate(ranks)
    ]
    made = answer(b.snapshot(*views))
    assert made.summary.endswith(f"; {words}")
    assert INPUT.evidence[0] in made.details[0]
    assert not any("limited by" in text for text in made.details)  # it is in the summary
