"""The GPU source through drivers and GPUs that fail, go, and come back."""

from __future__ import annotations

import contextlib
import gc
import threading
import tracemalloc

import pytest

from support.nvml import Standin, board
from support.nvml.clock import Time
from warmwatch_monitor.sources.nvml.devices import DriverError
from warmwatch_monitor.sources.nvml.source import NvmlSource


def test_xid_errors_are_counted_as_they_occur(nvml: Standin, source: NvmlSource) -> None:
    nvml.say(board(0), board(1))
    assert [gpu.xid_errors for gpu in source.read()] == [0, 0]
    nvml.say(board(0), board(1, xids="0 79 48"))
    first, second = source.read()
    assert (first.xid_errors, first.last_xid) == (0, None)
    assert (second.xid_errors, second.last_xid) == (2, 48)


def test_a_lost_gpu_is_named_with_its_error_and_recovers(
    nvml: Standin, source: NvmlSource, time: Time
) -> None:
    nvml.say(board(0), board(1))
    source.read()
    nvml.say(board(0), board(1, lost="15"))
    first, second = source.read()
    assert first.trouble is None
    assert first.power_watts == 686.0
    assert second.trouble == "the driver has lost it"
    assert second.uuid == board(1)["uuid"]
    assert second.power_watts is None
    nvml.say(board(0), board(1))
    time.passes(31)
    assert [gpu.trouble for gpu in source.read()] == [None, None]


def test_a_driver_that_loads_late_unloads_and_reloads_is_followed(
    nvml: Standin, source: NvmlSource
) -> None:
    nvml.remove_driver()
    with pytest.raises(DriverError, match="the NVIDIA driver is not loaded"):
        source.read()
    nvml.say(board(0))
    assert len(source.read()) == 1
    nvml.say(board(0, lost="1"))  # every call now answers that NVML is not initialized
    with pytest.raises(DriverError, match="shut down"):
        source.read()
    nvml.remove_driver(18)
    with pytest.raises(DriverError, match="upgraded while this library was loaded"):
        source.read()
    nvml.say(board(0), board(1))
    assert len(source.read()) == 2


def test_a_lost_gpu_does_not_stop_the_count_of_the_others_xid_errors(
    nvml: Standin, source: NvmlSource, time: Time
) -> None:
    nvml.say(board(0), board(1))
    source.read()
    nvml.say(board(0, lost="15"), board(1, xids="0 48"))
    assert [gpu.trouble for gpu in source.read()] == ["the driver has lost it", None]
    time.passes(31)
    assert source.read()[1].xid_errors == 1


@pytest.mark.parametrize("code", [4, 999], ids=["no permission", "unknown"])
def test_a_library_that_cannot_count_is_a_failure_and_not_a_machine_without_gpus(
    nvml: Standin, source: NvmlSource, code: int
) -> None:
    nvml.say(board(0), count=f"!{code}")
    with pytest.raises(DriverError, match="does not report how many GPUs there are"):
        source.read()
    nvml.say(board(0))
    assert len(source.read()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["unloaded", "shut down", "upgraded", "lost", "reset", "uncounted"]
)
def test_a_hundred_failures_leak_no_memory_and_no_thread(
    nvml: Standin, source: NvmlSource, time: Time, fault: str
) -> None:
    """No memory, no thread, and the GPUs are back each time."""
    say = {
        "unloaded": lambda: nvml.say(board(0, lost="9"), board(1, lost="9"), init="9"),
        "shut down": lambda: nvml.say(board(0, lost="1"), board(1, lost="1")),
        "upgraded": lambda: nvml.say(board(0, lost="18"), board(1, lost="18")),
        "lost": lambda: nvml.say(board(0, lost="15"), board(1)),
        "reset": lambda: nvml.say(board(0, lost="16"), board(1)),
        "uncounted": lambda: nvml.say(board(0, lost="1"), count="!999"),
    }[fault]

    def fail_and_come_back() -> None:
        nvml.say(board(0), board(1))
        time.passes(31)
        assert [gpu.trouble for gpu in source.read()] == [None, None]
        say()
        time.passes(31)
        with contextlib.suppress(DriverError):
            assert source.read()[0].trouble

    for _ in range(5):
        fail_and_come_back()
    threads = {*threading.enumerate()}
    tracemalloc.start()
    try:
        fail_and_come_back()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            fail_and_come_back()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000
    assert {*threading.enumerate()} <= threads, "those of another test may have ended meanwhile"
