"""One GPU of the ``/status`` answer."""

from __future__ import annotations

from pydantic import BaseModel, Field

from warmwatch_monitor.views.schema.units import Joules, Seconds


class Gpu(BaseModel):
    """One GPU, or one MIG device. What it does not support is null."""

    uuid: str = Field(description="NVML's name for it, the same everywhere.")
    index: int = Field(description="NVML's, of the board; not CUDA's.")
    name: str | None = Field(description="The product.")
    driver: str | None = Field(description="Version of the driver.")
    pci_bus_id: str | None = Field(description="Where it is plugged in.")
    parent: str | None = Field(description="Of a MIG device the uuid of its board.")
    profile: str | None = Field(description="Of a MIG device its size, such as `1g.10gb`.")
    trouble: str | None = Field(description="Why nothing more is known of it.")
    utilization_ratio: float | None = Field(
        description="Share of the last sample period in which any kernel ran, 0 to 1."
    )
    memory_utilization_ratio: float | None = Field(
        description="Share of it in which device memory was read or written, 0 to 1."
    )
    sm_active_ratio: float | None = Field(
        description="How busy the multiprocessors were since the last reading, 0 to 1."
    )
    tensor_active_ratio: float | None = Field(
        description="How busy the tensor cores were since the last reading, 0 to 1."
    )
    dram_active_ratio: float | None = Field(
        description="Memory bandwidth used since the last reading, of what there is, 0 to 1."
    )
    memory_used_bytes: int | None = Field(description="Memory in use by all processes, bytes.")
    memory_total_bytes: int | None = Field(description="Memory, bytes.")
    power_watts: float | None = Field(description="Power draw of the board, watts.")
    power_limit_watts: float | None = Field(description="Limit that is enforced, watts.")
    idle_watts: float | None = Field(description="Least power seen while no kernel ran, watts.")
    temperature_celsius: float | None = Field(description="Temperature, degrees Celsius.")
    energy_joules: Joules | None = Field(description="Since the driver was loaded.")
    xid_errors: int | None = Field(description="Critical XID errors since the monitor began.")
    last_xid: int | None = Field(description="Number of the latest of them.")
    clocks_hertz: dict[str, float] | None = Field(description="Clocks by domain, hertz.")
    throttled: list[str] | None = Field(description="What holds the clocks down now.")
    ecc_errors: dict[str, int] | None = Field(description="By kind, since the driver was loaded.")
    age: Seconds = Field(description="How long ago all this was read.")
