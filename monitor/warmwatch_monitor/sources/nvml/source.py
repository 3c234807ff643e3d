"""The GPU source: all devices, through driver reloads and lost GPUs.

A poll either reads every device or reports in one sentence why NVML cannot be used; the next poll
then tries again. A lost device stays in the list, with its trouble and no figures. The library is
restarted now and then until the device is back.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict

from msgspec.structs import replace

from warmwatch_monitor.base.clock import Clock
from warmwatch_monitor.model.machine import GpuReading
from warmwatch_monitor.sources.nvml import devices
from warmwatch_monitor.sources.nvml.devices import (
    Device,
    DriverError,
    GpuLostError,
    Memory,
    board,
    mig_devices,
    mig_handles,
    query,
)

_RENEW_NS = 30 * 10**9  # how often to check for a lost device, or a changed MIG division
_EVENTS_AT_ONCE = 100

_Memories = defaultdict[str, Memory]


class NvmlSource:
    """Reads all GPUs; one object for the daemon's life."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._session: _Session | None = None
        self._memories: _Memories = defaultdict(Memory)
        self._lost: dict[str, GpuReading] = {}

    def read(self, *, steady: bool = False) -> tuple[GpuReading, ...]:
        """One reading for each device, boards before their MIG devices; see :meth:`Device.read`.

        Raises:
            DriverError: NVML cannot be used now; the message is one sentence.
        """
        if self._session is not None and self._session.stale(lost=bool(self._lost)):
            self._close()
        if self._session is None:
            self._session = self._start()
        try:
            return self._with_lost(self._session.read(steady=steady))
        except DriverError:
            self._close()
            self._lost.clear()
            raise

    def _start(self) -> _Session:
        devices.start()
        try:
            return _Session(self._clock, self._memories)
        except (DriverError, GpuLostError):
            devices.stop()
            raise

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
        devices.stop()

    def _with_lost(self, readings: tuple[GpuReading, ...]) -> tuple[GpuReading, ...]:
        """Add devices lost in an earlier session, until they are read again."""
        here = {gpu.uuid: gpu for gpu in readings}
        whole = {uuid for uuid, gpu in here.items() if gpu.trouble is None}
        lost = {**self._lost, **{uuid: gpu for uuid, gpu in here.items() if gpu.trouble}}
        # a MIG device that its recovered board no longer has is not lost
        gone = {uuid: gpu for uuid, gpu in lost.items() if not {uuid, gpu.parent} & whole}
        self._lost = gone
        missing = (gpu for uuid, gpu in gone.items() if uuid not in here)
        return tuple(sorted((*readings, *missing), key=lambda gpu: gpu.index))


class _Session:
    """The devices of one initialization, until one is lost or the MIG division changes."""

    def __init__(self, clock: Clock, memories: _Memories) -> None:
        self._clock, self._began_ns = clock, clock.monotonic_ns()
        version = query("nvmlSystemGetDriverVersion")
        version = version.decode() if isinstance(version, bytes) else version
        count = query("nvmlDeviceGetCount")
        if count is None:
            raise DriverError("NVML does not report how many GPUs there are")
        self._devices: list[Device] = []
        self._lost: dict[str, GpuReading] = {}
        self._unseen = False
        for index in range(count):
            try:
                parent = board(index, clock, version)
                self._devices += [parent, *mig_devices(parent, clock)]
            except GpuLostError:
                self._unseen = True
        self._events = query("nvmlEventSetCreate")
        for device in self._devices:
            device.memory = memories[device.described.uuid]
            with contextlib.suppress(GpuLostError):  # reading it will report that
                self._register(device)

    def stale(self, *, lost: bool) -> bool:
        """Whether to start again: a device was ``lost``, or the division changed, a while ago."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._began_ns < _RENEW_NS:
            return False
        self._began_ns = now_ns
        if lost or self._unseen:
            return True
        try:
            return self._division() != {
                device.described.uuid for device in self._devices if not _whole(device)
            }
        except GpuLostError:
            return False  # reading it reports that, with its name: a new session has no handle
        except DriverError:
            return True

    def read(self, *, steady: bool) -> tuple[GpuReading, ...]:
        """A reading of each device; of a lost one, its name and its trouble."""
        self._take_events()
        return tuple(self._read(device, steady=steady) for device in self._devices)

    def close(self) -> None:
        """Free what was allocated, if the driver still accepts it."""
        try:
            for device in self._devices:
                device.close()
            if self._events is not None:
                query("nvmlEventSetFree", self._events)
        except (DriverError, GpuLostError):
            return  # the driver is gone, with its allocations

    def _read(self, device: Device, *, steady: bool) -> GpuReading:
        uuid = device.described.uuid
        if uuid not in self._lost:
            try:
                return device.read(steady=steady)
            except GpuLostError as error:
                self._lost[uuid] = device.lost(str(error))
        memory = device.memory  # the driver's report of the loss may come later
        lost = self._lost[uuid]
        return replace(lost, xid_errors=memory.xid_errors, last_xid=memory.last_xid)

    def _division(self) -> set[str]:
        """The uuids of the present MIG devices."""
        return {
            uuid for device in self._devices if _whole(device) for uuid, _ in mig_handles(device)
        }

    def _register(self, device: Device) -> None:
        """Count XID errors of a board from now on, if the driver reports them."""
        if self._events is None or not _whole(device):
            return
        kinds = query("nvmlDeviceGetSupportedEventTypes", device.handle)
        if kinds is None or not kinds & devices.XID_EVENT:
            return
        arguments = (device.handle, devices.XID_EVENT, self._events)
        if query("nvmlDeviceRegisterEvents", *arguments, silent=True):
            device.memory.xid_errors = device.memory.xid_errors or 0

    def _take_events(self) -> None:
        if self._events is None:
            return
        by_address = {devices.address(device.handle): device for device in self._devices}
        for _ in range(_EVENTS_AT_ONCE):
            try:
                event = query("nvmlEventSetWait", self._events, 0)
            except GpuLostError:  # reading the devices shows which one
                return
            if event is None:
                return
            device = by_address.get(devices.address(event.device))
            if device is not None and device.memory.xid_errors is not None:
                device.memory.xid_errors += 1
                device.memory.last_xid = int(event.eventData)


def _whole(device: Device) -> bool:
    """Whether it is a board, not a MIG device of one."""
    return device.described.parent is None
