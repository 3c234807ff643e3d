"""Figures of processes, GPUs and the host, and the health of what reads them."""

from typing import Annotated

from msgspec import Struct

from warmwatch_monitor.figures.declared import Epoch, Joules, Number, Seconds, figure


class Compiler(Struct, frozen=True, kw_only=True):
    """A compiler process below a training process."""

    pid: int
    """In the monitor's pid namespace."""
    name: str
    """`cc1plus`, `ptxas`, `compile worker`...: of a closed list."""
    cpu_seconds: Seconds
    """CPU time so far."""
    busy: bool | None = None
    """Whether its CPU time grows; null in the first poll."""
    stopped: bool = False
    """Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger."""


class Process(Struct, frozen=True, kw_only=True):
    """The training process and its compile workers, as the host measures them."""

    cpu_seconds: Annotated[Seconds, figure("process_cpu_seconds_total")]
    """CPU time of the training process so far."""
    resident_bytes: Annotated[int, figure("process_resident_memory_bytes")]
    """Resident memory of the training process, in bytes."""
    cpu_ratio: Number | None = None
    """Its share of one core in the last poll, from 0."""
    threads: Annotated[int | None, figure("process_threads")] = None
    """Threads of the training process."""
    workers_busy: int | None = None
    """Compile workers whose CPU time grows."""
    workers_idle: int | None = None
    """Compile workers whose CPU time does not."""
    stopped: Annotated[bool, figure("process_stopped")] = False
    """Stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger, or frozen with its cgroup."""
    compilers: tuple[Compiler, ...] = ()
    """The busiest compilers below it, without idle compile workers."""


# figures of a GPU that the reading has as pairs and `/status` by name
CLOCKS = figure("gpu_clock_hertz", label="domain", text="Clocks by domain, hertz.")
ECC_ERRORS = figure(
    "gpu_ecc_errors_total",
    label="kind",
    text="ECC errors by kind, since the driver was loaded.",
)


class GpuIdentity(Struct, frozen=True, kw_only=True):
    """The constant properties of a GPU or a MIG device."""

    uuid: str
    """NVML's UUID, the same everywhere."""
    index: int
    """NVML's index of the board, not CUDA's."""
    name: str | None = None
    """Product name."""
    driver: str | None = None
    """Version of the driver."""
    pci_bus_id: str | None = None
    """Its PCI bus id."""
    parent: str | None = None
    """For a MIG device, the UUID of its board."""
    profile: str | None = None
    """For a MIG device, its profile, such as `1g.10gb`."""


class GpuValues(GpuIdentity, frozen=True, kw_only=True):
    """What NVML reports of a GPU or a MIG device. What it does not support is null."""

    trouble: str | None = None
    """Why its other keys are null; null if nothing is wrong."""
    utilization_ratio: Annotated[Number | None, figure("gpu_utilization_ratio")] = None
    """Share of NVML's last sample period (1/6 to 1 s) in which any kernel ran, 0 to 1: how often
    the GPU was used, not how much of it.
    """
    memory_utilization_ratio: Annotated[Number | None, figure("gpu_memory_utilization_ratio")] = (
        None
    )
    """Share of NVML's last sample period in which device memory was read or written, 0 to 1."""
    sm_active_ratio: Annotated[Number | None, figure("gpu_sm_active_ratio")] = None
    """How busy the streaming multiprocessors were since the last reading (GPM), 0 to 1."""
    tensor_active_ratio: Annotated[Number | None, figure("gpu_tensor_active_ratio")] = None
    """How busy the tensor cores were since the last reading (GPM), 0 to 1."""
    dram_active_ratio: Annotated[Number | None, figure("gpu_dram_active_ratio")] = None
    """Share of the device memory bandwidth used since the last reading (GPM), 0 to 1."""
    memory_used_bytes: Annotated[int | None, figure("gpu_memory_used_bytes")] = None
    """Device memory in use by all processes, bytes."""
    memory_total_bytes: Annotated[int | None, figure("gpu_memory_total_bytes")] = None
    """Device memory, bytes."""
    power_watts: Annotated[Number | None, figure("gpu_power_watts")] = None
    """Power draw of the board, watts."""
    power_limit_watts: Annotated[Number | None, figure("gpu_power_limit_watts")] = None
    """Power limit that is enforced on the board, watts."""
    idle_watts: Number | None = None
    """Lowest power measured while no kernel ran, watts."""
    temperature_celsius: Annotated[Number | None, figure("gpu_temperature_celsius")] = None
    """Temperature of the GPU, degrees Celsius."""
    energy_joules: Annotated[Joules | None, figure("gpu_energy_joules_total")] = None
    """Energy that the board has used since the driver was loaded."""
    xid_errors: Annotated[int | None, figure("gpu_xid_errors_total")] = None
    """Critical XID errors since this monitor began to listen."""
    last_xid: int | None = None
    """Number of the latest XID error."""


class Host(Struct, frozen=True, kw_only=True):
    """The machine."""

    memory_total_bytes: Annotated[int, figure("host_memory_total_bytes")]
    """Memory of the host, bytes."""
    memory_available_bytes: Annotated[int, figure("host_memory_available_bytes")]
    """Memory of the host that programs can still allocate, bytes."""
    cpus: Annotated[int, figure("host_cpus")]
    """Logical CPUs of the host."""
    load_1m: Annotated[Number | None, figure("host_load1")] = None
    """The host's load average over a minute."""
    stolen_seconds: Number | None = None
    """CPU time of all CPUs since boot that the hypervisor gave to other machines."""
    pci_gpus: Annotated[int | None, figure("host_pci_gpus")] = None
    """NVIDIA GPUs on the host's PCI bus, whether or not their driver works."""


class SourceHealth(Struct, frozen=True, kw_only=True):
    """Health of a data source."""

    source: str
    """Its name: `records`, `host`, `nvml`, `observed`, ..."""
    up: Annotated[bool, figure("source_up")]
    """Whether the last read of the source succeeded."""
    last_success: Annotated[Epoch | None, figure("source_last_success_timestamp_seconds")] = None
    """When the source was last read without an error; absent if it never was."""
    read_seconds: Annotated[Seconds | None, figure("source_read_seconds")] = None
    """How long the last read of the source took."""
    error: str | None = None
    """What is wrong, in one sentence."""


class ExportHealth(Struct, frozen=True, kw_only=True):
    """Health of an export."""

    export: str
    """Its name: `otlp`."""
    up: Annotated[bool | None, figure("export_up")] = None
    """Whether the receiver accepted the last export; absent before the first."""
    last_success: Annotated[Epoch | None, figure("export_last_success_timestamp_seconds")] = None
    """When the receiver last accepted an export; absent if it never did."""
    error: str | None = None
    """What is wrong, in one sentence."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Something in a record directory that cannot be read."""

    path: str
    """Its path."""
    reason: str
    """Why it cannot be read, in one sentence."""
