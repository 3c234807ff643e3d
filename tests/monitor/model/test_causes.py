"""Likely causes of slower steps: what differs from before, and where it is read."""

from __future__ import annotations

import pytest

from warmwatch_monitor.model.causes import Surroundings, causes_since


def at_seconds(at: float, **other: object) -> Surroundings:
    known = {"at_ns": round(at * 1e9), "attached_ns": 0, "cpus": 2, "load": 0.5}
    return Surroundings(**{**known, **other})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({}, {}, []),
        ({}, {"load": 8.9}, ["load 8.9 on 2 CPUs"]),
        ({"load": 8.5}, {"load": 8.9}, ["load 8.9 on 2 CPUs (8.5 before)"]),
        ({"load": 8.9}, {"load": 8.5}, []),
        ({"load": None}, {"load": 8.9}, []),  # it may have been as high
        ({"load": 8.5}, {"load": 8.9, "breaks": 1}, ["1 more graph break"]),
        ({"load": 2.0}, {"load": 2.3}, []),
        (
            {"throttled": ()},
            {"throttled": ("sw_thermal_slowdown",)},
            ["GPU throttled (sw_thermal_slowdown)"],
        ),
        ({}, {"throttled": ("hw_slowdown",)}, []),  # it may have held before
        ({"throttled": ("sw_power_cap",)}, {"throttled": ("sw_power_cap",)}, []),
        ({"others": 1}, {"others": 2}, ["another process on the GPU"]),
        (
            {"clock_hertz": 1.98e9},
            {"clock_hertz": 1.2e9},
            ["GPU clock at 1200 MHz (1980 before)"],
        ),
        ({"clock_hertz": 1.98e9}, {"clock_hertz": 1.9e9}, []),
        ({"wait_ns": 0}, {"wait_ns": 45 * 10**9}, ["45 % of the time is waiting for data"]),
        ({"wait_ns": 50 * 10**9}, {"wait_ns": 100 * 10**9}, []),
        (
            {"stolen": 7.0},
            {"stolen": 87.0},  # of 100 s of two CPUs
            ["the hypervisor takes 40 % of the CPU time (steal)"],
        ),
        ({"stolen": 7.0}, {"stolen": 17.0}, []),
        ({}, {"stolen": 87.0}, []),
        ({"tokens": 16384}, {"tokens": 65536}, ["tokens a step went from 16384 to 65536"]),
        ({"tokens": 0}, {"tokens": 65536}, []),
        ({"tokens": 65536}, {"tokens": 16384}, []),
        (
            {"saving_ns": 0},
            {"saving_ns": 60 * 10**9},
            ["a background save takes 60 % of the time"],
        ),
        ({"saving_ns": 50 * 10**9}, {"saving_ns": 100 * 10**9}, []),
        ({"retries": 2}, {"retries": 32}, ["GPU memory is full (30 allocator retries)"]),
        ({"retries": 2}, {"retries": 3}, []),  # one in 100 s explains nothing
        ({"retries": 2}, {"retries": 2}, []),
        ({}, {"retries": 2}, []),
        (
            {"limit_watts": 700.0},
            {"limit_watts": 350.0},
            ["GPU power limit at 350 W (700 before)"],
        ),
        ({"limit_watts": 700.0}, {"limit_watts": 690.0}, []),
        ({"fallbacks": 0}, {"fallbacks": 1}, ["calls of 1 more function run eagerly"]),
        ({"breaks": 1}, {"breaks": 3}, ["2 more graph breaks"]),
    ],
)
def test_a_cause_is_a_difference_from_before(
    before: dict[str, object], now: dict[str, object], words: list[str]
) -> None:
    assert list(causes_since(at_seconds(100, **before), at_seconds(200, **now))) == words
