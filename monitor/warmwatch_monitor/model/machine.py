"""Readings of the machine: GPUs, processes, host, sources, signs of unattached trainings.

Also the peak FLOPS of known GPUs. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Struct
from msgspec.structs import asdict

from warmwatch_monitor.figures.declared import figure
from warmwatch_monitor.figures.machine import CLOCKS, ECC_ERRORS, GpuValues, Process
from warmwatch_monitor.figures.rank import WorkersMemory

# Of a GPU's utilization or a core: below it idles, above it works.
IDLE_RATIO, WORKING_RATIO = 0.05, 0.5
# A GPU that spins in a collective shows full utilization at a fraction of what computing draws.
LOW_POWER_RATIO = 0.4
WORKER = "compile worker"  # the name of a process of Inductor's pool among the compilers
# Throttle reasons of a healthy GPU under load.
HARMLESS = frozenset({"sw_power_cap", "applications_clocks", "sync_boost"})


class GpuReading(GpuValues, frozen=True, kw_only=True):
    """One GPU, or one MIG device, as NVML read it. What it does not support is ``None``.

    Attributes:
        at_ns: when it was read.
        kept_utilization: in the first reading, NVML's utilization of the seconds before it: when a
        sample was taken, and the ratio since the one before.
        nvlink_bytes: received by NVLink in a second, from GPM, since the last reading.
        read_energy_ns: when ``energy_joules`` was read.
        processes: pids on the host, which differ from those inside a container. process_ratios: of
        several processes, the share of the time in which each one's kernels ran, by pid.
    """

    at_ns: int
    kept_utilization: tuple[tuple[int, float], ...] = ()
    nvlink_bytes: float | None = None
    read_energy_ns: int | None = None
    clocks_hertz: Annotated[tuple[tuple[str, float], ...], CLOCKS] = ()
    throttled: Annotated[tuple[tuple[str, bool], ...], figure("gpu_throttled", label="reason")] = ()
    """1 for each reason that limits the clocks now, else 0; an idle GPU is not throttled."""
    ecc_errors: Annotated[tuple[tuple[str, int], ...], ECC_ERRORS] = ()
    processes: tuple[int, ...] | None = None
    process_ratios: tuple[tuple[int, float], ...] = ()


_TERA = 1e12


class Peaks(Struct, frozen=True):
    """Teraflops of one kind of GPU, by the type that it computes in; ``None`` where it has none."""

    bfloat16: float | None
    float16: float | None
    float8: float | None
    tf32: float | None
    float32: float | None


_HOPPER = Peaks(989.4, 989.4, 1978.9, 494.7, 66.9)
_HOPPER_NVL = Peaks(835.5, 835.5, 1670.9, 417.8, 60.0)
_HOPPER_PCIE = Peaks(756.4, 756.4, 1512.9, 378.2, 51.2)
_AMPERE = Peaks(311.9, 311.9, None, 155.9, 19.5)
# By words of the GPU name: the first entry whose words are all in the name applies.
PEAKS: Mapping[tuple[str, ...], Peaks] = {
    ("GB300",): Peaks(2500.0, 2500.0, 5000.0, 1250.0, 80.0),
    ("GB200",): Peaks(2500.0, 2500.0, 5000.0, 1250.0, 80.0),
    ("B300",): Peaks(2250.0, 2250.0, 4500.0, 1125.0, 75.0),
    ("B200",): Peaks(2250.0, 2250.0, 4500.0, 1125.0, 75.0),
    ("H200", "NVL"): _HOPPER_NVL,
    ("H200",): _HOPPER,
    ("GH200",): _HOPPER,
    ("H100", "NVL"): _HOPPER_NVL,
    ("H100", "PCIe"): _HOPPER_PCIE,
    ("H100",): _HOPPER,
    ("H800", "PCIe"): _HOPPER_PCIE,
    ("H800",): _HOPPER,
    ("H20",): Peaks(148.0, 148.0, 296.0, 74.0, 44.0),
    ("A100",): _AMPERE,
    ("A800",): _AMPERE,
    ("A30",): Peaks(165.1, 165.1, None, 82.6, 10.3),
    ("A40",): Peaks(149.7, 149.7, None, 74.8, 37.4),
    ("A10",): Peaks(125.0, 125.0, None, 62.5, 31.2),
    ("L40S",): Peaks(362.1, 362.1, 733.0, 183.2, 91.6),
    ("L40",): Peaks(181.1, 181.1, 362.1, 90.5, 90.5),
    ("L4",): Peaks(121.0, 121.0, 242.5, 60.0, 30.3),
    ("V100", "PCIE"): Peaks(None, 112.0, None, None, 14.0),
    ("V100",): Peaks(None, 125.0, None, None, 15.7),
    ("T4",): Peaks(None, 65.1, None, None, 8.1),
    # not listed: its server edition, GB10 and Thor; no data sheet confirmed their dense figures
    ("RTX", "PRO", "6000", "Blackwell", "Workstation"): Peaks(503.8, 503.8, 1007.6, 251.9, 125.0),
    ("RTX", "6000", "Ada"): Peaks(364.2, 364.2, 728.5, 182.1, 91.1),
    ("RTX", "A6000"): Peaks(154.8, 154.8, None, 77.4, 38.7),
    ("RTX", "5090"): Peaks(209.5, 209.5, 419.0, 104.8, 104.8),
    ("RTX", "4090"): Peaks(165.2, 165.2, 330.3, 82.6, 82.6),
    ("RTX", "3090"): Peaks(71.2, 71.2, None, 35.6, 35.6),
}
# another chip by the same number, or a share of one: a MIG device, a vGPU such as A40-8Q
_ANOTHER = frozenset(("Laptop", "Max", "Ti", "SUPER", "D", "MIG"))
_SHARE = r"\d+[ABCQ]"


def peak_flops(gpu: str, dtype: str) -> float | None:
    """Dense operations a second of the GPU of this name; ``None`` where that is not known.

    A MIG device or a vGPU is a part of a GPU; its share of the peak is not known.
    """
    tokens = set(gpu.replace("-", " ").split())
    if tokens & _ANOTHER or any(re.fullmatch(_SHARE, word) for word in tokens):
        return None
    for name, peaks in PEAKS.items():
        if tokens.issuperset(name):
            peak: float | None = asdict(peaks).get(dtype)
            return None if peak is None else peak * _TERA
    return None


class Compiling(Struct, frozen=True, kw_only=True):
    """Busy compilers below a training, as its process tree shows them; compile workers are none.

    Attributes:
        since_ns: since when compilers run without a pause. busy_ns: from when on one of them has
        used the CPU time that shows that it is busy. read_ns: when the tree was read.
    """

    since_ns: int
    busy_ns: int
    read_ns: int


class ProcessReading(Process, frozen=True, kw_only=True):
    """What ``/proc`` reports about one training process and its compile workers.

    Attributes:
        private_bytes: resident, without pages of files and shared memory.
        workers_memory: read only if most of the memory is used.
        memory_left_bytes: until its cgroup is at its limit; ``None`` without a limit.
        queued_seconds: in which its main thread could run and had no CPU, since it began.
        queued_ratio: the same as a share of the time, lately. cpus: that it may run on.
        compiling: the compilers below it, if one of them is busy.
        below_cpu_ratio: cores that the processes below it use, lately.
        tree_read: whether the processes below it were read.
        thaw: of one whose cgroup is frozen, what to ``echo`` into which file.
        opens_devices: whether it has a device file open, as each user of an accelerator has.
    """

    pid: int
    private_bytes: int | None = None
    workers_memory: WorkersMemory | None = None
    memory_left_bytes: int | None = None
    queued_seconds: float | None = None
    queued_ratio: float | None = None
    cpus: int | None = None
    compiling: Compiling | None = None
    below_cpu_ratio: float | None = None
    opens_devices: bool | None = None
    tree_read: bool = False
    thaw: str | None = None


class Signs(Struct, frozen=True, kw_only=True):
    """Signs of one poll of an unattached training; ``None`` is "not known".

    Attributes:
        cpu_ratio: of one core. workers_busy, workers_idle: compile workers by CPU time.
        gpu_ratio: utilization of the busiest GPU that it is listed on. watts, idle_watts: of
        that GPU, now and at the least seen.
    """

    cpu_ratio: float | None = None
    workers_busy: int | None = None
    workers_idle: int | None = None
    gpu_ratio: float | None = None
    watts: float | None = None
    idle_watts: float | None = None


class ObservedTraining(Struct, frozen=True, kw_only=True):
    """A process that looks like a training and has no agent, as far as it shows from outside.

    Attributes:
        pid: on this host. command: what it runs, shortened. gpus: uuids it is listed on.
        signs: of the last poll. polls: how many polls the estimate can use.
        likely_compiling: ``None`` if it cannot be determined.
    """

    pid: int
    command: str
    gpus: tuple[str, ...] = ()
    signs: Signs = Signs()
    polls: int = 0
    likely_compiling: bool | None = None


class Sample(Struct, frozen=True, kw_only=True):
    """One series' last value; ``name`` is without the prefix ``warmwatch_``."""

    name: str
    labels: Mapping[str, str]
    value: float


POLLS, AGREEING = 3, 2
CORE_RATIO = 0.8
ABOVE_IDLE = 1.5  # a GPU that works draws well more than it does idle


def likely_compiling(polls: Sequence[Signs]) -> bool | None:
    """Whether it is likely to compile; ``None`` where the last polls are inconclusive or differ.

    - workers busy, GPU not busy: yes; workers and GPU busy: unknown.
    - workers there and idle, GPU idle, a core of the process busy: yes, it works in the main
      process; without any workers the same may be data loading.
    - GPU busy, well above its idle power, no worker busy: no.
    """
    opinions = [opinion for opinion in map(_opinion, polls[-POLLS:]) if opinion is not None]
    return opinions[0] if len(opinions) >= AGREEING and len(set(opinions)) == 1 else None


def _opinion(poll: Signs) -> bool | None:
    gpu = poll.gpu_ratio
    if poll.workers_busy:
        return True if gpu is None or gpu <= WORKING_RATIO else None
    if gpu is None:
        return None
    if gpu < IDLE_RATIO:
        core_busy = poll.cpu_ratio is not None and poll.cpu_ratio >= CORE_RATIO
        return True if poll.workers_idle and core_busy else None
    return False if gpu > WORKING_RATIO and _draws(poll) else None


def _draws(poll: Signs) -> bool:
    """Whether it draws more than an idle GPU; also if that is not known."""
    if poll.watts is None or poll.idle_watts is None:
        return True
    return poll.watts > ABOVE_IDLE * poll.idle_watts
