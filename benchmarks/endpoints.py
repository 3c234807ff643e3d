"""Several endpoints in one process, for the benchmark of a fleet.

Each endpoint is what the daemon is: the records source over a directory of its own, the poller, the
exporter and the HTTP application, on a port of its own. The records of its 8 ranks and the readings
of its 8 GPUs are replayed: they change at every look.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import sys
import time
from pathlib import Path
from typing import IO

import uvicorn

from support import records, sources
from warmwatch.shared import record
from warmwatch_monitor.api.routes import create_app
from warmwatch_monitor.model import GpuReading

RANKS = GPUS = 8
HOSTS_OF_A_RUN = 8
_INTERVAL = 5.0


class Endpoint:
    """One host: its records, held open and stepping, and its poller."""

    def __init__(self, number: int, place: Path) -> None:
        self._number, self._steps = number, 9
        self._held = [self._write(place / str(number), rank) for rank in range(RANKS)]
        gpus = _Gpus(number)
        self.poller = sources.poller(
            directories=(str(place / str(number)),),
            values={"interval": _INTERVAL, "gpu_interval": _INTERVAL},
            host=sources.no_host,
            nvml=lambda _: gpus.read(),
        )

    def _write(self, directory: Path, rank: int) -> tuple[IO[bytes], mmap.mmap]:
        group, position = divmod(self._number, HOSTS_OF_A_RUN)
        slot = records.warm(
            run=f"run-{group}",
            rank=position * RANKS + rank,
            world_size=HOSTS_OF_A_RUN * RANKS,
            host=f"host-{self._number}",
            gpus=(_uuid(self._number, rank),),
        )
        file = (records.write_record(directory, slot, name=str(rank)) / record.SLOT).open("r+b")
        fcntl.lockf(file, fcntl.LOCK_EX)
        return file, mmap.mmap(file.fileno(), 0)

    def step(self) -> None:
        """Every rank makes a step."""
        self._steps += 1
        now = time.monotonic_ns()
        for _, memory in self._held:
            hot = record.hot_words(memory)
            hot[1], hot[0] = now, self._steps


class _Gpus:
    """Readings as an H200 at work gives them, with uuids of the endpoint's own."""

    def __init__(self, number: int) -> None:
        self._number, self._joules = number, 0.0

    def read(self) -> tuple[GpuReading, ...]:
        self._joules += 640 * _INTERVAL
        return tuple(self._reading(index) for index in range(GPUS))

    def _reading(self, index: int) -> GpuReading:
        now_ns = time.monotonic_ns()
        busy = 0.9 + (now_ns % 97) / 1000
        return GpuReading(
            uuid=_uuid(self._number, index),
            index=index,
            at_ns=now_ns,
            name="NVIDIA H200",
            driver="570.00",
            pci_bus_id=f"00000000:{index:02X}:00.0",
            utilization_ratio=busy,
            memory_utilization_ratio=busy / 2,
            sm_active_ratio=busy,
            tensor_active_ratio=busy / 2,
            dram_active_ratio=busy / 3,
            memory_used_bytes=77 * 10**9,
            memory_total_bytes=143 * 10**9,
            power_watts=600 + 80 * busy,
            power_limit_watts=700.0,
            temperature_celsius=60.0,
            energy_joules=self._joules,
            read_energy_ns=now_ns,
            clocks_hertz=(("sm", 1.98e9), ("memory", 3.2e9), ("graphics", 1.98e9)),
            throttled=tuple((reason, False) for reason in _REASONS),
            ecc_errors=(("corrected", 0), ("uncorrected", 0)),
            xid_errors=0,
        )


_REASONS = (
    *("applications_clocks", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"),
)


def _uuid(number: int, index: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{index:012x}"


async def _serve(endpoints: list[Endpoint], first_port: int) -> None:
    servers = []
    for offset, endpoint in enumerate(endpoints):
        config = uvicorn.Config(
            create_app(endpoint.poller.latest, "benchmark"),
            port=first_port + offset,
            log_level="error",
        )
        servers.append(uvicorn.Server(config))
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    print("ready", flush=True)  # uvicorn binds its port in its first turn
    while True:
        for endpoint in endpoints:  # one after another: the daemons of a fleet do not move at once
            endpoint.step()
            endpoint.poller.poll_once()
            await asyncio.sleep(_INTERVAL / len(endpoints))
        if any(task.done() for task in tasks):
            return


if __name__ == "__main__":
    first, count, port = map(int, sys.argv[2:5])
    asyncio.run(_serve([Endpoint(first + n, Path(sys.argv[1])) for n in range(count)], port))
