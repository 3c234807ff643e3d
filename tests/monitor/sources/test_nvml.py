"""The GPU source through the real pynvml, over a stand-in for NVIDIA's library."""

from __future__ import annotations

from typing import Any

import pytest

from support import builders as b
from support.nvml import H100, Standin, board
from support.nvml.clock import SECOND, Time
from support.sources import records
from warmwatch.shared.record import CompileCounts
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.sources.listed import RECORDS, Readings, is_steady
from warmwatch_monitor.sources.nvml.source import NvmlSource


def only(readings: tuple[GpuReading, ...]) -> GpuReading:
    (reading,) = readings
    return reading


def test_every_figure_comes_in_base_units(nvml: Standin, source: NvmlSource, time: Time) -> None:
    nvml.say(board(0, processes="4242 17"))
    source.read()
    time.passes(1)
    gpu = only(source.read())
    assert gpu == GpuReading(
        uuid="GPU-00000000-0000-4000-8000-000000000000",
        index=0,
        at_ns=time.ns,
        name="NVIDIA H100 80GB HBM3",
        driver="580.159.04",
        pci_bus_id="00000000:1b:00.0",
        utilization_ratio=0.98,
        memory_utilization_ratio=0.43,
        sm_active_ratio=0.88,
        tensor_active_ratio=0.52,
        dram_active_ratio=0.43,
        memory_used_bytes=77_000_000_000,
        memory_total_bytes=85_520_809_984,
        power_watts=686.0,
        power_limit_watts=700.0,
        temperature_celsius=61,
        energy_joules=5000.0,
        read_energy_ns=time.ns,
        clocks_hertz=(
            ("graphics", 1.98e9),
            ("sm", 1.98e9),
            ("memory", 2.619e9),
            ("video", 1.545e9),
        ),
        throttled=(
            ("sw_power_cap", True),
            ("hw_slowdown", False),
            ("sw_thermal_slowdown", False),
            ("hw_thermal_slowdown", False),
            ("hw_power_brake_slowdown", False),
            ("applications_clocks", False),
            ("sync_boost", False),
        ),
        ecc_errors=(("corrected", 0), ("uncorrected", 0)),
        xid_errors=0,
        processes=(17, 4242),
    )


FIELDS = {
    "name": {"name": None},
    "pci": {"pci_bus_id": None},
    "util": {"utilization_ratio": None, "memory_utilization_ratio": None},
    "memory": {"memory_used_bytes": None, "memory_total_bytes": None},
    "power": {"power_watts": None},
    "power_limit": {"power_limit_watts": None},
    "energy": {"energy_joules": None, "read_energy_ns": None},
    "temperature": {"temperature_celsius": None},
    "clocks": {"clocks_hertz": ()},
    "throttle": {"throttled": ()},
    "ecc": {"ecc_errors": ()},
    "gpm": {"sm_active_ratio": None, "tensor_active_ratio": None, "dram_active_ratio": None},
    "processes": {"processes": None},
    "xids": {"xid_errors": None},
}


@pytest.mark.parametrize("code", [3, 4, 999], ids=["not supported", "no permission", "unknown"])
@pytest.mark.parametrize("field", FIELDS)
def test_only_unsupported_values_are_absent(
    nvml: Standin, source: NvmlSource, time: Time, field: str, code: int
) -> None:
    nvml.say(board(0, processes="17"))
    source.read()
    time.passes(1)
    whole = only(source.read())
    source._close()
    nvml.say(board(0, **{"processes": "17", field: f"!{code}"}))
    source = NvmlSource(clock=time.clock())
    source.read()
    time.passes(11)
    part = only(source.read())
    source._close()
    absent = {name for name in GpuReading.__struct_fields__ if getattr(part, name) in (None, ())}
    known = {name for name in GpuReading.__struct_fields__ if getattr(whole, name) in (None, ())}
    assert absent - known == set(FIELDS[field])


@pytest.mark.parametrize(
    ("field", "value", "names"),
    [
        ("util", f"{0xFFFFFFFF} 43", {"utilization_ratio"}),
        ("power", str(0xFFFFFFFF), {"power_watts"}),
        ("temperature", str(0xFFFFFFFF), {"temperature_celsius"}),
        ("energy", str(2**64 - 1), {"energy_joules", "read_energy_ns"}),
        ("memory", f"85520809984 {2**64 - 1}", {"memory_used_bytes"}),
    ],
)
def test_a_sentinel_is_not_a_value(
    nvml: Standin, source: NvmlSource, field: str, value: str, names: set[str]
) -> None:
    nvml.say(board(0, **{field: value}))
    gpu = only(source.read())
    assert all(getattr(gpu, name) is None for name in names)
    assert gpu.memory_total_bytes == 85_520_809_984


def test_utilization_by_process_is_read_if_there_are_several(
    nvml: Standin, source: NvmlSource, time: Time
) -> None:
    time.passes(2)
    nvml.say(board(0, processes="17 42", process_use="17 30 42 60 42 40"))
    assert only(source.read()).process_ratios == ((17, 0.3), (42, 0.5))
    nvml.say(board(0, processes="17 42"))
    assert only(source.read()).process_ratios == ((17, 0.3), (42, 0.5)), "too soon for a new one"
    time.passes(2)
    assert only(source.read()).process_ratios == ()
    nvml.say(board(0, processes="17", process_use="17 30"))
    time.passes(2)
    assert only(source.read()).process_ratios == ()


def test_the_first_reading_has_the_utilization_that_nvml_kept(
    nvml: Standin, source: NvmlSource, time: Time
) -> None:
    nvml.say(board(0, samples="5 40 7 4294967295"))
    gpu = only(source.read())
    assert [ratio for _, ratio in gpu.kept_utilization] == [0.05, 0.4, 0.07]
    ages = [(time.ns - at_ns) / SECOND for at_ns, _ in gpu.kept_utilization]
    assert ages == pytest.approx([0.8, 0.6, 0.4], abs=0.1)
    time.passes(1)
    assert only(source.read()).kept_utilization == ()


@pytest.mark.parametrize(
    ("compile", "attached", "alive", "steady"),
    [
        (CompileCounts(last_end_ns=b.ago(61)), 300, True, True),
        (CompileCounts(last_end_ns=b.ago(59)), 300, True, False),
        (CompileCounts(active_since_ns=b.ago(90)), 300, True, False),
        (CompileCounts(), 59, True, False),
        (CompileCounts(active_since_ns=b.ago(90)), 300, False, True),
        (CompileCounts(background_since_ns=b.ago(90)), 300, True, False),
        (CompileCounts(background_ended_ns=b.ago(59)), 300, True, False),
    ],
    ids=[
        *("nothing for a minute", "compiled lately", "compiles", "just attached", "gone"),
        *("compiles in another thread", "compiled lately in another thread"),
    ],
)
def test_the_host_is_steady_after_a_minute_without_compilation(
    compile: CompileCounts, attached: float, alive: bool, steady: bool
) -> None:
    one = b.view(b.slot(compile=compile, attached=attached), alive=alive).record
    read = records(one)(Readings())
    assert is_steady(Readings(values={RECORDS.name: read}), b.NOW) is steady


def test_mig_devices_appear_with_their_uuid_and_their_parent(
    nvml: Standin, source: NvmlSource, time: Time
) -> None:
    """The board itself has no utilization then; each part has its own memory and activity."""
    parts: dict[str, Any] = {
        f"gpu0/mig{place}/{key}": value
        for place in range(2)
        for key, value in {
            "uuid": f"MIG-AAAAAAAA-0000-4000-8000-00000000000{place}",
            "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            "memory": f"10200547328 {place + 1}000000",
            "instance": str(7 + place),
            "gpm": f"{10 * (place + 1)} 5 6",
        }.items()
    }
    nvml.say({**board(0, mig="7", util="!3")}, **parts)
    source.read()
    time.passes(1)
    parent, *children = source.read()
    assert parent.utilization_ratio is None
    assert parent.power_watts == 686.0
    assert [child.uuid for child in children] == [
        "MIG-aaaaaaaa-0000-4000-8000-000000000000",
        "MIG-aaaaaaaa-0000-4000-8000-000000000001",
    ]
    assert {child.parent for child in children} == {parent.uuid}
    assert {child.profile for child in children} == {"1g.10gb"}
    assert [child.memory_used_bytes for child in children] == [1_000_000, 2_000_000]
    assert [child.sm_active_ratio for child in children] == [
        pytest.approx(0.1),
        pytest.approx(0.2),
    ]
    assert {child.power_watts for child in children} == {None}


def test_a_gpu_that_is_partitioned_later_is_detected(
    nvml: Standin, source: NvmlSource, time: Time
) -> None:
    nvml.say(board(0))
    assert len(source.read()) == 1
    nvml.say(board(0, mig="1"), **{"gpu0/mig0/uuid": "MIG-1"})
    time.passes(31)
    assert [gpu.uuid for gpu in source.read()] == [H100["uuid"], "MIG-1"]
