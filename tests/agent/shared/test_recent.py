"""The ring of the last step lengths: what the hot path stores, and the speed computed from it."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from statistics import median

import pytest

from support.ranks import SECOND, K, Rank
from warmwatch.shared import record
from warmwatch.shared.record import RING, packed, recent_lengths
from warmwatch.shared.record.recent import (
    Trend,
    gap_ns,
    is_clean,
    length_ns,
    level_ns,
    marks_ns,
    newest_first,
    queued_ns,
    trend,
    unsettled,
)

MS = 10**6


def warm(length: float = 0.02) -> Rank:
    """A rank that has compiled in its first step and is warm."""
    rank = Rank()
    rank.ledger.begin("dynamo")
    rank.wait(5)
    rank.ledger.end("dynamo")
    for _ in range(1 + K):
        rank.step()
        rank.wait(length)
    return rank


def steps(rank: Rank, count: int, length: float) -> None:
    for _ in range(count):
        rank.wait(length)
        rank.step()


def test_the_recent_speed_ignores_earlier_faster_steps() -> None:
    rank = warm()
    steps(rank, 60_00, 0.02)
    steps(rank, 40, 0.4)
    slot = rank.slot()
    assert slot.recent_step_ns == 400 * MS
    assert record.quantile_ns(slot.clean_bins, 0.5) == pytest.approx(20 * MS, rel=0.03)


@pytest.mark.parametrize("pause", [0, 30])
@pytest.mark.parametrize(
    ("before", "after"),
    [((36, 1.5), (20, 1.1)), ((10, 8.0), (300, 0.02)), ((900, 0.02), (70, 0.3))],
)
def test_with_gpus_steps_from_before_a_recompile_are_no_part_of_a_mean(
    before: tuple[int, float], after: tuple[int, float], pause: int
) -> None:
    """A run on an H100 had 1.4 s for steps of 1.1 s: the batch had become smaller."""
    rank = warm()
    steps(rank, *before)
    rank.ledger.begin("dynamo")
    rank.wait(140)
    rank.ledger.end("dynamo")
    steps(rank, *after)
    if pause:  # it is no step, and the steps around it are clean
        rank.ledger.post("pause_began", {"what": "saving"})
        rank.wait(pause)
        rank.ledger.post("pause_ended", {"what": "saving"})
        steps(rank, *after)
    slot = rank.slot()
    slot = slot._replace(identity=slot.identity._replace(gpus=("GPU-0",)))
    assert slot.recent_step_ns == pytest.approx(after[1] * SECOND, rel=0.02)
    count, total = slot.clean_since_activity
    assert total / count == pytest.approx(after[1] * SECOND, rel=0.02)


def test_the_recent_speed_is_the_median_of_the_last_64_steps_of_the_last_minute() -> None:
    rank = warm()
    lengths = [0.02 + (n % 7) / 1000 for n in range(300)]
    for one in lengths:
        steps(rank, 1, one)
    assert rank.slot().recent_step_ns == pytest.approx(median(lengths[-64:]) * SECOND, abs=100)
    for one in (4, 5, 4, 5, 4, 6, 7, 8, 9, 10, 11, 9, 8):
        steps(rank, 1, one)
    # those within a minute of the last step: 8, 9, 11, 10, 9, 8 and 7 s ago
    assert rank.slot().recent_step_ns == 9 * SECOND


def test_at_least_three_steps_count_even_if_they_take_more_than_a_minute() -> None:
    rank = warm()
    steps(rank, 70, 0.02)
    steps(rank, 3, 90)
    assert rank.slot().recent_step_ns == 90 * SECOND


def test_before_three_clean_steps_there_is_no_recent_length() -> None:
    rank = Rank()
    steps(rank, 3, 0.02)  # the first one has no beginning
    assert rank.slot().recent_step_ns is None
    steps(rank, 1, 0.02)
    assert rank.slot().recent_step_ns == 20 * MS


def test_after_a_recompile_the_steps_before_it_do_not_count() -> None:
    """The batch size has grown: earlier steps do not show the present speed."""
    rank = warm()
    steps(rank, 200, 0.02)
    rank.ledger.begin("dynamo")
    rank.wait(2)
    rank.ledger.end("dynamo")
    rank.step()
    steps(rank, 2, 0.05)
    assert rank.slot().recent_step_ns == 20 * MS, "two are too few"
    steps(rank, 1, 0.05)
    assert rank.slot().recent_step_ns == 50 * MS


def test_a_pause_is_not_part_of_a_step_but_ages_earlier_steps() -> None:
    rank = warm()
    steps(rank, 20, 0.5)
    rank.ledger.post("pause_began", {"what": "evaluating"})
    rank.wait(100)
    rank.ledger.post("pause_ended", {"what": "evaluating"})
    steps(rank, 3, 1)
    slot = rank.slot()
    assert slot.recent_step_ns == SECOND, "the others ended more than a minute ago"
    assert slot.steps.last_duration_ns == SECOND


def test_the_last_length_is_that_of_the_ring() -> None:
    rank = warm()
    steps(rank, 10, 0.02)
    steps(rank, 1, 0.021)
    assert rank.slot().steps.last_duration_ns == 21 * MS


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_newest_first_returns_only_steps_that_were_marked(count: int) -> None:
    ring = [0] * RING
    for step in range(1, count + 1):
        ring[(step - 1) % RING] = step
    assert newest_first(ring, count) == tuple(range(count, max(0, count - RING), -1))


def test_an_entry_holds_a_duration_a_pause_and_whether_it_was_clean() -> None:
    assert packed(20 * MS) == 20 * MS, "the hot path stores the length as it is"
    assert is_clean(packed(1))
    assert not is_clean(packed(1, clean=False))
    assert not is_clean(packed(0, 5 * SECOND)), "its length is not known"
    huge = packed(2**60, 2**60, clean=False)
    assert huge < 2**64
    assert length_ns(huge) == 2**48 - 1


def test_a_pause_is_stored_in_whole_seconds_up_to_nine_hours() -> None:
    assert gap_ns(packed(7, 499_999_999)) == 7
    assert gap_ns(packed(7, SECOND // 2)) == SECOND + 7
    assert gap_ns(packed(7, 2**60)) == (2**15 - 1) * SECOND + 7


WINDOW = 60 * SECOND
UNKNOWN = packed(0, clean=False)  # not clean, and of unknown duration


@pytest.mark.parametrize(
    ("words", "lengths"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 2], []),
        ([1, 0, 2, 3], [1, 2, 3]),
        ([1, 2, 3, packed(9, clean=False), 4], [1, 2, 3]),
        ([1, 2, 3, UNKNOWN, 4], [1, 2, 3]),
        ([WINDOW - 2, 1, 1, 5, 6], [WINDOW - 2, 1, 1, 5]),  # 5 began its gap within the window
        ([WINDOW - 2, 1, 2, 5], [WINDOW - 2, 1, 2]),
    ],
)
def test_only_clean_steps_of_the_window_count(words: list[int], lengths: list[int]) -> None:
    assert recent_lengths(words) == lengths


def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    assert record.median_ns([9, 1, 5]) == 5
    assert record.median_ns([10, 1, 3, 2]) == 2.5
    assert record.median_ns([]) is None


def test_the_ring_gives_the_time_of_each_mark() -> None:
    words = [5, packed(7, 2 * SECOND), 11]
    marked = list(marks_ns(words, 10 * SECOND))
    assert marked == [(10 * SECOND, 5), (10 * SECOND - 5, words[1]), (8 * SECOND - 12, 11)]


def test_a_step_marked_while_the_record_is_read_moves_the_median_by_one() -> None:
    ring = [20 * MS] * RING
    ring[RING * 5 % RING] = 400 * MS  # step 321 is stored, and `steps` is still 320
    lengths = recent_lengths(newest_first(ring, 320))
    assert record.median_ns(lengths) == 20 * MS


def varying(seconds: float, count: int, spread: float = 0.05) -> list[float]:
    drawn = random.Random(count)
    return [seconds * drawn.lognormvariate(0, spread) for _ in range(count)]


def followed(lengths: Iterable[float]) -> Iterator[tuple[float, float]]:
    """After each step: its time and the recent speed."""
    words, now = list[int](), 0.0
    for one in lengths:
        words = [packed(round(one * SECOND)), *words][:RING]
        now += one
        speed = record.median_ns(recent_lengths(words))
        if speed is not None:
            yield now, speed / SECOND


def delay(before: list[float], after: list[float], within: float = 0.1) -> float:
    """Seconds after a change until the recent speed stays near the new level."""
    level, change = median(after), sum(before)
    wrong = [
        now
        for now, speed in followed(before + after)
        if now > change and not 1 - within < speed / level < 1 + within
    ]
    return max(wrong, default=change) - change


@pytest.mark.parametrize(
    ("usual", "times", "seconds"),
    [
        *((0.02, 1.3, 1), (0.02, 2, 1.5), (0.02, 5, 3.5), (0.02, 20, 5), (0.02, 100, 9)),
        *((0.2, 1.3, 9), (0.2, 2, 5), (0.2, 5, 5), (0.2, 20, 17), (1.0, 1.3, 36), (1.0, 2, 9)),
    ],
)
def test_a_slowdown_is_followed_after_five_steps_and_five_seconds(
    usual: float, times: float, seconds: float
) -> None:
    """Or after 32 steps or half a minute, if that is earlier."""
    fast, slow = varying(usual, 100), varying(usual * times, 80)
    assert delay(fast, slow) <= seconds
    assert delay(slow, fast) <= min(32 * usual * 1.1, 30), "a recovery brings short steps"
    if times >= 2:
        assert delay(slow, fast, within=0.2) <= max(5, 8 * usual) * 1.1, "8 of them, and 5 s"


@pytest.mark.parametrize("hiccup", [0, 20])
@pytest.mark.parametrize(
    "sizes", [(0.03, 0.12), (2.0, 6.0), (0.03, 0.03, 0.12), (0.02, 0.02, 0.02, 0.02, 0.2)]
)
def test_steps_of_several_sizes_in_turn_have_their_mean(
    sizes: tuple[float, ...], hiccup: float
) -> None:
    """The median is that of one size, and jumps from one to another as the window moves."""
    rank = warm(0)
    steps(rank, 1, sizes[0])
    for n in range(1, 120):
        steps(rank, 1, sizes[n % len(sizes)] + hiccup * (n == 100))
        if n >= 20:  # at most two of the longest are missing
            speed = (rank.slot().recent_step_ns or 0) / SECOND
            assert speed == pytest.approx(sum(sizes) / len(sizes), rel=0.25), n


def test_every_tenth_step_and_a_change_of_the_speed_leave_the_median() -> None:
    tenth = [100 if n % 10 == 9 else 20 for n in range(64)]
    assert record.level_ns(tenth) == 20
    for change in range(65):
        lengths = [20] * change + [80] * (64 - change)
        assert record.level_ns(lengths) == record.median_ns(lengths)


@pytest.mark.parametrize("workers", [8, 12, 16])
def test_a_loop_that_waits_for_each_round_of_many_workers_has_its_mean(workers: int) -> None:
    """All but one step of a round find a batch: the median was a tenth of the step."""
    lengths = [400 if n % workers == 0 else 5 for n in range(400)]
    mean = sum(lengths[: 10 * workers]) / (10 * workers)
    for end in range(64, 400):
        assert record.level_ns(lengths[end - 64 : end]) == pytest.approx(mean, rel=0.15)


def test_long_steps_of_one_half_or_of_less_time_than_the_others_leave_the_median() -> None:
    assert record.level_ns([5] * 20 + [400] * 3 + [5] * 41) == 5
    assert record.level_ns([5] * 30 + [400] * 3 + [5] * 31) == 5
    assert record.level_ns([30 if n % 8 == 0 else 5 for n in range(64)]) == 5


def hiccups() -> list[float]:
    """Each hundredth step takes five seconds, and the two after it one."""
    return [{0: 5.0, 1: 1.0, 2: 1.0}.get(n % 100, one) for n, one in enumerate(varying(0.02, 1000))]


@pytest.mark.parametrize(
    "lengths",
    [
        varying(0.02, 1000),
        varying(0.3, 1000, spread=0.3),
        varying(2.0, 1000, spread=0.3),
        [0.9 if n % 10 == 9 else 0.05 for n in range(1000)],
        [10.0 if n % 10 == 9 else 0.05 for n in range(1000)],
        [0.3 * random.Random(n).choice((1, 2, 4)) for n in range(1000)],
        [0.4 * (1 + n / 500) for n in range(1000)],
        hiccups(),
    ],
    ids=[
        *("alike", "noise", "long steps", "logging", "saving", "three lengths", "drift"),
        "hiccups",
    ],
)
def test_varying_steps_are_not_a_slowdown(lengths: list[float]) -> None:
    """The speed is the median of all steps in the window."""
    for n, (_, speed) in enumerate(followed(lengths), start=3):
        steps = lengths[max(0, n - RING) : n]
        while len(steps) > 3 and sum(steps[1:]) > 60:
            steps = steps[1:]
        assert speed == pytest.approx(median(steps), rel=1e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (varying(0.2, 100), 0.4),
        (varying(0.4, 100), 0.8),
        (varying(0.8, 100), 1.6),
        ([0.9 if n % 10 == 9 else 0.05 for n in range(100)], 1.0),
    ],
    ids=["curriculum-1", "curriculum-2", "curriculum-3", "logging before"],
)
def test_each_stage_is_followed(before: list[float], after: float) -> None:
    assert delay(before, varying(after, 80)) <= 9


@pytest.mark.parametrize(
    ("slow", "before", "counted"),
    [
        ([SECOND] * 5, [MS] * 35 + [SECOND] * 5, 5),
        ([SECOND] * 5, [MS] * 34 + [SECOND] * 5, 44),
        ([SECOND] * 4 + [SECOND - 1], [MS] * 40, 45),
        ([2 * SECOND] * 4, [MS] * 40, 44),
    ],
    ids=["an eighth before", "more than an eighth before", "less than 5 s", "fewer than 5"],
)
def test_a_slowdown_is_recognized_by_the_newest_steps(
    slow: list[int], before: list[int], counted: int
) -> None:
    before = [MS, *before[1:]]  # a short step ends the newest ones
    assert len(recent_lengths(slow + before)) == counted


@pytest.mark.parametrize(
    ("lengths", "waits", "expected"),
    [
        ([1, 1, 19, 1, 1, 1, 18, 1, 1], 0, (19 + 3) / 4),
        ([1, 1, 19, 1, 1, 1, 20, 1, 21, 1], 0, (19 + 3 + 20 + 1) / 6),
        ([1, 1, 1, 19, 1, 1, 1, 20, 1, 21, 1], 0, (19 + 3 + 20 + 1) / 6),
        ([1, 1, 1, 1, 19, 1, 1, 1, 18, 1, 1, 1, 1], 0, (19 + 3) / 4),
        ([1, 1, 1, 1, 19, 1, 1, 1, 18, 1, 1, 1, 1, 1], 0, 1.0),
        ([1, 1, 20, 1, 1, 1, 10, 1, 1], 0, 1.0),
        ([1, 19, 1], 0, 1.0),
        ([1, 1, 19, 1, 1, 1], 0, 1.0),
        ([1, 1, 19, 1, 1, 1], 60, 1.0),
        ([1, 1, 19, 1, 1, 1], 5, (95 + 5 * 19) / 100),
        ([1, 1, 1, 1], 5, (95 + 5 * 19) / 100),
        ([1, 1, 1, 1], 6, 1.0),
        ([1] * RING, 1, (99 + 19) / 100),
        ([1] * RING, 2, 1.0),
        ([10, 10, 10, 10, 11], 0, 10.0),
        ([10, 10, 20, 10, 10, 10, 20, 10, 10], 0, (20 + 30) / 4),
        ([10, 10, 15, 10, 15, 10, 15, 10], 0, 95 / 8),
        ([6] * 9 + [18, 12] + [6] * 53, 2, 6.0),
        ([6] * 9 + [18, 12] + [6] * 53, 6, (94 * 6 + 6 * 19) / 100),
        ([1] * 9 + [18, 15] + [1] * 53, 4, (96 + 4 * 19) / 100),
        ([1] * 9 + [18, 15] + [1] * 53, 6, (94 + 6 * 19) / 100),
        ([1] * 9 + [18, 15] + [1] * 53, 10, (62 + 33) / 64),
        ([6] * 11 + [1] * 45 + [19, 6, 6], 40, (60 + 40 * 19) / 100),
    ],
    ids=[
        *("two waits", "three waits", "irregular waits", "a period at each end"),
        *("more than a period at the end", "one of half the length", "the second of three"),
        *("one wait and none before", "one wait, most before", "one wait", "none, few before"),
        *("none, many before", "none of 64, one before", "none of 64, two before"),
        *("alike", "twice as long", "half as long again"),
        *("two hiccups", "two hiccups, many before", "two waits in a row, few before"),
        *("two waits in a row, some before", "two waits in a row, many before"),
        "a full queue, then a synchronization",
    ],
)
def test_a_step_of_a_loop_that_queues_its_work(
    lengths: list[int], waits: int, expected: float
) -> None:
    """``waits`` of 100 earlier steps took 19 ms, the others 1 ms, as launches do or did."""
    bins = [0] * record.BINS
    bins[bisect_left(record.BOUNDS_NS, MS)] += 100 - waits
    bins[bisect_left(record.BOUNDS_NS, 19 * MS)] += waits
    total = (100 - waits + 19 * waits) * MS
    found = queued_ns([one * MS for one in lengths], bins, 100, total)
    assert found == pytest.approx(expected * MS, rel=0.02)


def test_slow_steps_of_earlier_code_are_no_waits_of_the_present_one() -> None:
    bins = [0] * record.BINS
    for length, number in ((MS, 198), (40 * MS, 2), (19 * MS, 1000)):
        bins[bisect_left(record.BOUNDS_NS, length)] += number
    total = (198 + 2 * 40) * MS
    assert queued_ns([MS] * RING, bins, 200, total) == pytest.approx(total / 200)


@pytest.mark.parametrize("waits", [0, 2])
@pytest.mark.parametrize(("before", "after"), [(74, 55), (55, 74)])
def test_steps_from_before_a_change_of_the_speed_are_no_waits(
    before: int, after: int, waits: int
) -> None:
    """Two ranks on two GPUs, one of which another program used until a second ago. The waits, of
    saving without a pause or of a log, count as before."""
    bins = [0] * record.BINS
    for length, number in ((before, 300), (after, 64), (3000, waits)):
        bins[bisect_left(record.BOUNDS_NS, length * MS)] += number
    count, total = 364 + waits, (300 * before + 64 * after + 3000 * waits) * MS
    found = queued_ns([after * MS] * RING, bins, count, total)
    assert found == pytest.approx(((3000 - after) * waits / count + after) * MS, rel=0.02)


REAL = 6.0  # milliseconds of the GPU for a step


def period(every: int, full: int, launch: float) -> list[int]:
    """The lengths from one synchronization to the next: launches, waits for a full queue, one wait.

    ``full``: so many steps fit into the queue.
    """
    launches = min(every - 1, full)
    before = [launch] * launches + [REAL] * (every - 1 - launches)
    return [round(one * MS) for one in (*before, every * REAL - sum(before))]


@pytest.mark.parametrize("full", [8, 21, 29, 45, 100])
@pytest.mark.parametrize("launch", [0.05, 0.3, 2, 4])
def test_a_step_takes_a_whole_period_however_many_are_queued(full: int, launch: float) -> None:
    """At any phase. From a full queue to a synchronization the GPU works for other steps, too."""
    for every in (*range(2, 31, 4), *range(31, RING + 1)):
        lengths = period(every, full, launch)
        marked = [bisect_left(record.BOUNDS_NS, one) for one in lengths]
        bins = [3 * marked.count(at) for at in range(record.BINS)]
        total = 3 * sum(lengths)
        for phase in range(every):
            ring = (lengths * 3 + lengths[:phase])[-RING:][::-1]
            found = queued_ns(ring, bins, sum(bins), total, queue_was_empty=True)
            assert found == pytest.approx(REAL * MS, rel=0.1), (every, phase)
            bins[marked[phase]] += 1
            total += lengths[phase]


def test_the_steps_of_a_run_count_up_to_its_last_synchronization() -> None:
    bins = [0] * record.BINS
    bins[bisect_left(record.BOUNDS_NS, MS)] = 29
    bins[bisect_left(record.BOUNDS_NS, 19 * MS)] = 1
    lengths = [MS] * 10 + [19 * MS] + [MS] * 19
    found = queued_ns(lengths, bins, len(lengths), sum(lengths), queue_was_empty=True)
    assert found == pytest.approx((19 + 19) / 20 * MS)
    found = queued_ns([MS] * 5, bins, len(lengths), sum(lengths), queue_was_empty=True)
    assert found == pytest.approx((19 + 29) / 30 * MS), "no step of the ring synchronized"


def test_two_hiccups_at_the_begin_of_a_run_are_not_the_end_of_a_period() -> None:
    """Counted from their end, the mean would be 20 ms."""
    lengths = [MS] * 30 + [40 * MS] * 2 + [MS] * 2
    bins = [0] * record.BINS
    for one in lengths:
        bins[bisect_left(record.BOUNDS_NS, one)] += 1
    found = queued_ns(lengths, bins, len(lengths), sum(lengths), queue_was_empty=True)
    assert found == pytest.approx(112 / 34 * MS)


def test_before_three_steps_a_loop_that_queues_its_work_has_no_length() -> None:
    assert queued_ns([], [0] * record.BINS, 0, 0) is None
    assert queued_ns([MS] * 3, [0] * record.BINS, 0, 0) == MS, "no earlier step is known"


def claimed(length: Callable[[int], float], base: float) -> tuple[int, float]:
    """After how many steps of ``base * length(n)`` seconds the speed is settled, and its level as a
    multiple of the later one.
    """
    lengths = [round(base * length(n) * SECOND) for n in range(800)]
    for count in range(3, len(lengths)):
        words = lengths[max(0, count - RING) : count][::-1]
        if not unsettled(words, count, sum(lengths[:count])):
            later = level_ns(lengths[400:464]) or 0.0
            return count, (level_ns(recent_lengths(words)) or 0.0) / later
    raise AssertionError("never")


def decays(over: int) -> Callable[[int], float]:
    return lambda n: 1 + 2 * max(0.0, 1 - n / over)


@pytest.mark.parametrize("base", [0.05, 0.2])
@pytest.mark.parametrize(
    ("length", "least", "most"),
    [
        (lambda _: 1.0, 10, 64),
        (decays(5), 25, 64),
        (decays(20), 45, 75),
        (lambda n: 3.0 if n < 8 else 1.0, 25, 64),
        (lambda n: (1.0, 3.0)[n % 2], 10, 64),
        (lambda n: 4.0 if n % 4 == 3 else 1.0, 10, 64),
        (lambda n: 1.0 if n < 16 else 10.0, 20, 70),
    ],
    ids=["constant", "5", "20", "plateau", "two sizes", "every 4th", "prefetched"],
)
def test_the_speed_settles_when_its_steps_have_no_trend(
    length: Callable[[int], float], least: int, most: int, base: float
) -> None:
    count, ratio = claimed(length, base)
    assert least <= count <= most
    assert 0.9 <= ratio <= 1.1


@pytest.mark.parametrize("base", [0.02, 0.04])
def test_a_slow_trend_of_many_short_steps_is_one(base: float) -> None:
    count, ratio = claimed(decays(100), base)
    assert (count, ratio) == (pytest.approx(145, abs=15), pytest.approx(1, abs=0.1))


@pytest.mark.parametrize("spread", [0.05, 0.3, 0.6])
def test_noise_is_no_trend_for_long(spread: float) -> None:
    chance = random.Random(3)
    for _ in range(30):
        count, _ = claimed(lambda _: 1 + chance.uniform(-spread, spread), 0.2)
        assert count <= 75


def test_a_training_that_varies_for_ever_settles_after_a_minute_and_64_steps() -> None:
    count, _ = claimed(lambda n: 1.02**n, 0.1)
    assert count >= 64
    assert 60 <= sum(0.1 * 1.02**n for n in range(count)) < 63


@pytest.mark.parametrize(
    ("base", "steps"), [(2, 10), (5.9, 10), (7, 9), (12, 5), (21, 5), (300, 5)]
)
def test_slow_steps_settle_when_five_took_a_minute(base: float, steps: int) -> None:
    assert claimed(lambda _: 1.0, base) == (steps, 1.0)


def test_short_steps_settle_after_three_seconds() -> None:
    """A DataLoader with many workers has prefetched more than 64 batches."""
    assert claimed(lambda _: 1.0, 0.004) == (750, 1.0)


@pytest.mark.parametrize("base", [7, 21])
@pytest.mark.parametrize("over", [5, 8, 12, 20])
def test_slow_steps_that_get_faster_are_no_speed(base: float, over: int) -> None:
    count, ratio = claimed(decays(over), base)
    assert over <= count <= over + 14
    assert ratio == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("by", "faster"), [(0.999, True), (1.001, False)])
def test_short_steps_that_change_for_seconds_are_no_speed(by: float, faster: bool) -> None:
    """The last 64 of them are all alike."""
    lengths, bins = [round(0.02 * by**n * SECOND) for n in range(1000)], [0] * record.BINS
    for one in lengths:
        bins[bisect_left(record.BOUNDS_NS, one)] += 1
    words = lengths[-RING:][::-1]
    assert unsettled(words, 1000, sum(lengths)) is False
    found = unsettled(words, 1000, sum(lengths), bins)
    assert isinstance(found, Trend)
    assert (found.steps, found.faster) == (RING, faster)


def test_many_short_steps_of_several_lengths_have_no_trend() -> None:
    chance = random.Random(5)
    for draw in (lambda: chance.choice((1, 3)), lambda: chance.lognormvariate(0, 0.5)):
        lengths, bins = [round(0.01 * draw() * SECOND) for _ in range(2000)], [0] * record.BINS
        for one in lengths:
            bins[bisect_left(record.BOUNDS_NS, one)] += 1
        for end in range(RING, 2000, 50):
            words = lengths[end - RING : end][::-1]
            alone = unsettled(words, 2000, 30 * SECOND)
            assert unsettled(words, 2000, 30 * SECOND, bins) == alone


def test_the_trend_is_that_of_the_newer_half_or_of_the_newest_seconds() -> None:
    assert trend([30 * MS] * 5 + [90 * MS] * 5) == (30 * MS, 5, True)
    assert trend([90 * MS] * 5 + [30 * MS] * 5) == (90 * MS, 5, False)
    assert trend([30 * MS] * 5 + [31 * MS] * 5) is None
    assert trend([3 * SECOND] * 4 + [SECOND] * 16) == (3 * SECOND, 4, False), "at least four"
    assert trend([3 * SECOND] * 3 + [SECOND] * 17) is None
    assert trend([600 * MS] * 9 + [300 * MS] * 31) == (600 * MS, 9, False), "of 5 s"
    assert trend([600 * MS] * 7 + [300 * MS] * 33) is None


def test_of_a_few_newest_steps_all_have_to_show_the_trend() -> None:
    seconds = [SECOND * n // 10 for n in (20, 21, 22, 23, 10, 10, 10, 10, 10)]
    assert trend(seconds) == (2.15 * SECOND, 4, False)
    assert trend([*seconds, 3 * SECOND]) is None


def flaps(length: Callable[[], float], bins: list[int]) -> int:
    """How often a speed that has settled is taken back, polled at each second of 90."""
    lengths: list[int] = []
    total, settled, found = 0, False, 0
    for second in range(1, 90):
        while total < second * SECOND:
            lengths.append(round(length() * SECOND))
            total += lengths[-1]
            if bins:
                bins[bisect_left(record.BOUNDS_NS, lengths[-1])] += 1
        before = settled
        settled = not unsettled(lengths[-RING:][::-1], len(lengths), total, bins)
        found += before and not settled
    return found


@pytest.mark.parametrize("binned", [True, False])
@pytest.mark.parametrize(("base", "most"), [(0.036, 0), (0.25, 0), (1.0, 2)])
def test_noise_does_not_take_a_settled_speed_back(base: float, most: int, binned: bool) -> None:
    """In at most so many of 60 runs. The newest four steps of each poll did so in about 20."""
    chance = random.Random(11)
    runs = 0
    for spread in (0.1, 0.2, 0.4):
        for _ in range(20):
            bins = [0] * record.BINS if binned else []
            runs += flaps(lambda: base * chance.lognormvariate(0, spread), bins) > 0  # noqa: B023
    assert runs <= most


def test_a_burst_of_other_work_does_not_take_the_speed_of_short_steps_back() -> None:
    """After ten seconds, 64 steps of 36 ms are too short a time for a trend."""
    lengths = [54 * MS] * 32 + [36 * MS] * 32
    assert not unsettled(lengths, 1000, 37 * SECOND)
    assert unsettled(lengths, 200, 8 * SECOND) == (54 * MS, 32, False)


def test_a_change_that_the_histogram_shows_takes_the_speed_back() -> None:
    bins = [0] * record.BINS
    bins[bisect_left(record.BOUNDS_NS, 36 * MS)] = 1000
    bins[bisect_left(record.BOUNDS_NS, 54 * MS)] = RING
    assert unsettled([54 * MS] * RING, 1064, 40 * SECOND, bins) == (54 * MS, RING, False)


def test_a_trend_shows_before_there_are_enough_steps() -> None:
    words = [30 * MS] * 6 + [90 * MS] * 6
    assert unsettled(words, 12, sum(words)) == (30 * MS, 6, True)
    assert unsettled(words[:6], 6, sum(words[:6])) is True
