"""The cost of one window between two readings of a GPU's energy, to the joule."""

from __future__ import annotations

import pytest

from support import builders as b
from support.builders import NOW, SECOND
from warmwatch.shared.record import CompileCounts, StepCounts
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.model.snapshot import RankView, Spending
from warmwatch_monitor.pipeline.energy import EnergyUsed, charge, compile_ns_at, retained, updated


def ns(seconds: float) -> int:
    return NOW + round(seconds * SECOND)


def seen(
    second: int, *joules: float | None, compiled: float = 0, begun: int = 0, steps: int = 0
) -> RankView:
    """A rank that has compiled for so long by then; each of ``joules`` is one GPU's counter."""
    gpus: list[GpuReading] = [
        b.gpu(number, energy_joules=energy, read_energy_ns=ns(second))
        for number, energy in enumerate(joules)
    ]
    counts = CompileCounts(begun=begun, ended=begun, phase_ns=b.phases(dynamo=compiled))
    return b.view(b.slot(StepCounts(steps=steps), counts), gpus=tuple(gpus))


def spent(*views: RankView) -> Spending:
    """Of views a moment after their GPUs were read."""
    account = EnergyUsed()
    for view in views:
        account = updated(account, view, max(gpu.read_energy_ns or 0 for gpu in view.gpus) + 5)
    return account.spending


STARTED = seen(0, 1000.0)
COMPILED = seen(10, 2000.0, compiled=10, begun=1)  # at 100 W
TRAINED = seen(10, 7000.0, begun=0, steps=1)  # at 600 W


def test_a_window_with_only_compile_activity_costs_all_of_its_energy() -> None:
    assert spent(STARTED, COMPILED) == Spending(compile_joules=1000.0, compile_seconds=10.0)
    dearer = seen(20, 5000.0, compiled=20, begun=2)
    assert spent(STARTED, COMPILED, dearer).compile_joules == 4000.0, "what it drew, not 100 W"


@pytest.mark.parametrize(("joules", "compiling"), [(3000.0, 400.0), (300.0, 300.0), (0.0, 0.0)])
def test_a_mixed_window_uses_the_known_power_of_compiling_up_to_its_total(
    joules: float, compiling: float
) -> None:
    mixed = seen(20, 2000.0 + joules, compiled=14, begun=2, steps=3)
    assert spent(STARTED, COMPILED, mixed) == Spending(
        compile_joules=1000.0 + compiling, compile_seconds=14.0
    )


def test_the_power_of_compiling_is_known_after_clean_windows() -> None:
    clean = seen(20, 8000.0, compiled=10, begun=1, steps=10)
    mixed = seen(30, 9000.0, compiled=14, begun=2, steps=20)
    assert spent(STARTED, COMPILED, clean, mixed).compile_joules == 1400.0


@pytest.mark.parametrize(("joules", "compiling"), [(4000.0, 400.0), (3600.0, 0.0), (300.0, 0.0)])
def test_a_mixed_window_costs_the_energy_beyond_that_of_its_steps(
    joules: float, compiling: float
) -> None:
    mixed = seen(20, 7000.0 + joules, compiled=4, begun=1, steps=9)
    assert spent(STARTED, TRAINED, mixed) == Spending(compile_joules=compiling, compile_seconds=4.0)


def test_the_power_of_steps_is_known_after_mixed_windows() -> None:
    mixed = [seen(10 * n, 3000.0 + 4000 * n, compiled=4 * n - 4, begun=n, steps=9) for n in (2, 3)]
    assert spent(STARTED, TRAINED, *mixed).compile_joules == 800.0


def test_before_the_first_step_a_mixed_window_is_split_by_time() -> None:
    idle = seen(10, 1500.0)
    mixed = seen(20, 2500.0, compiled=4, begun=1)
    assert spent(STARTED, idle, mixed).compile_joules == 400.0
    assert spent(STARTED, seen(10, 2000.0, compiled=4, begun=1)).compile_joules == 400.0


def test_an_activity_that_just_began_costs_nothing_and_ends_a_clean_sequence() -> None:
    begun = seen(20, 14_000.0, begun=1, steps=2)
    assert spent(STARTED, TRAINED, begun) == Spending()
    after = seen(30, 15_000.0, begun=1, steps=3)
    assert spent(STARTED, TRAINED, begun, after) == Spending(), "from its mark on, not before"
    later = seen(40, 15_700.0, begun=1, steps=5)
    assert spent(STARTED, TRAINED, begun, after, later) == Spending(
        clean_joules=700.0, clean_steps=2.0
    )


def test_clean_steps_cost_the_energy_from_mark_to_mark() -> None:
    windows = [seen(10, 1600.0, steps=1), seen(20, 2200.0, steps=1), seen(30, 2900.0, steps=3)]
    assert spent(STARTED, *windows) == Spending(clean_joules=1300.0, clean_steps=2.0)
    silent = seen(40, 3400.0, steps=3)
    assert spent(STARTED, *windows, silent) == Spending(clean_joules=1300.0, clean_steps=2.0)
    last = seen(50, 4000.0, steps=4)
    assert spent(STARTED, *windows, silent, last) == Spending(clean_joules=2400.0, clean_steps=3.0)


def test_energy_before_the_first_mark_belongs_to_no_step() -> None:
    windows = [seen(10, 1600.0), seen(20, 2200.0, steps=1), seen(30, 2900.0, steps=2)]
    assert spent(STARTED, *windows) == Spending(clean_joules=700.0, clean_steps=1.0)


def test_a_constant_value_makes_a_window_and_a_falling_one_does_not() -> None:
    still = seen(20, 2000.0, compiled=20, begun=1)
    assert spent(STARTED, COMPILED, still) == Spending(compile_joules=1000.0, compile_seconds=20.0)
    fell = seen(20, 1999.0, compiled=20, begun=1)
    assert spent(STARTED, COMPILED, fell) == Spending(compile_joules=1000.0, compile_seconds=10.0)
    marked = seen(20, 7500.0, steps=2)
    fell, on = seen(30, 10.0, steps=3), seen(40, 500.0, steps=4)
    assert spent(STARTED, TRAINED, marked, fell, on) == Spending(
        clean_joules=500.0, clean_steps=1.0
    )


def test_compile_time_that_decreases_makes_no_window() -> None:
    """It decreases by activities that ended after the reading, which the next difference has."""
    less = seen(20, 3000.0, compiled=9, begun=1)
    more = seen(30, 4000.0, compiled=20, begun=2)
    assert spent(STARTED, COMPILED, less).compile_seconds == 10.0
    assert spent(STARTED, COMPILED, less, more).compile_seconds == 20.0


def test_compile_time_longer_than_the_window_is_the_whole_window() -> None:
    assert spent(STARTED, seen(10, 2000.0, compiled=12, begun=1)) == Spending(
        compile_joules=1000.0, compile_seconds=10.0
    )


def test_each_gpu_counts_for_its_share_and_a_missing_reading_stops_no_other() -> None:
    begun = {"compiled": 10, "begun": 1}
    assert spent(seen(0, None, 0.0), seen(10, None, 800.0, **begun)) == Spending(
        compile_joules=800.0, compile_seconds=5.0
    )
    both = spent(seen(0, 0.0, 0.0), seen(10, 500.0, 800.0, **begun))
    assert both == Spending(compile_joules=1300.0, compile_seconds=10.0)


def test_an_old_reading_costs_nothing_and_stops_no_other() -> None:
    account = updated(EnergyUsed(), seen(0, 0.0, 0.0), ns(0))
    assert updated(account, seen(0, 0.0, 0.0), ns(1)) is account
    old, new = seen(0, 0.0).gpus[0], seen(10, 0.0, 800.0).gpus[1]
    view = b.view(seen(10, compiled=10, begun=1).record.slot, gpus=(old, new))
    assert updated(account, view, ns(10)).spending.compile_joules == 800.0


def test_dead_ranks_cost_nothing() -> None:
    account = updated(EnergyUsed(), STARTED, ns(0))
    dead = b.view(COMPILED.record.slot, gpus=COMPILED.gpus, alive=False)
    assert updated(account, dead, ns(10)) is account


def test_a_rank_without_an_energy_reading_has_no_summary() -> None:
    runs = b.runs(seen(0))
    assert charge({}, runs, ns(0)) == ({}, runs)


@pytest.mark.parametrize(
    ("at", "now", "compiled"),
    [(15, 20, 6), (9, 20, 1), (20, 20, 11), (25, 20, 11), (12, 11, 3), (10, 11, 2)],
)
def test_the_later_part_of_an_activity_in_progress_is_excluded(
    at: int, now: int, compiled: int
) -> None:
    counts = CompileCounts(
        begun=1, active_since_ns=ns(10), accounted_ns=ns(12), phase_ns=b.phases(dynamo=2, other=1)
    )
    view = b.view(b.slot(compile=counts))
    assert compile_ns_at(view, ns(at), ns(now)) == compiled * SECOND


def test_compile_time_is_never_negative() -> None:
    active = CompileCounts(begun=1, active_since_ns=ns(10), accounted_ns=ns(12))
    assert compile_ns_at(b.view(b.slot(compile=active)), ns(5), ns(20)) == 0
    ended = CompileCounts(begun=1, ended=1, last_end_ns=ns(10), phase_ns=b.phases(dynamo=3))
    view = b.view(b.slot(compile=ended))
    reported = {at: compile_ns_at(view, ns(at), ns(20)) / SECOND for at in (5, 9, 10, 11)}
    assert reported == {5: 0, 9: 2, 10: 3, 11: 3}


def test_records_in_an_unreadable_directory_are_not_gone() -> None:
    accounts = {folder: EnergyUsed() for folder in ("/d/a/0", "/d/b/0", "/d/b/1")}
    found = retained(accounts, {"/d/a", "/d/b/1"}, 7, 100)
    assert {folder: account.gone_ns for folder, account in found.items()} == {
        "/d/a/0": None,
        "/d/b/0": 7,
        "/d/b/1": None,
    }
    assert found["/d/a/0"] is accounts["/d/a/0"]
    later = retained(found, (), 107, 100)
    assert {folder: account.gone_ns for folder, account in later.items()} == {
        "/d/a/0": 107,
        "/d/b/0": 7,
        "/d/b/1": 107,
    }
    assert retained(found, (), 108, 100).keys() == {"/d/a/0", "/d/b/1"}
