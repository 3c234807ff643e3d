"""The GPU source: all devices, followed through drivers that come, go, reload and lose a GPU.

A round either reads every device or says in one sentence why NVML cannot be used; the next round
then tries afresh. A device that is lost stays in the list, with its trouble and no figures, and the
library is started anew now and then until it is back.
"""

from __future__ import annotations

from warmwatch_monitor.clock import Clock
from warmwatch_monitor.model import GpuReading
from warmwatch_monitor.sources.nvml import driver
from warmwatch_monitor.sources.nvml.devices import Device, board, mig_devices, mig_handles
from warmwatch_monitor.sources.nvml.driver import DriverError, GpuLostError, ask

_RENEW_NS = 30 * 10**9  # how soon a lost device, or a division into MIG devices, is looked for
_EVENTS_AT_ONCE = 100


class NvmlSource:
    """Reads all GPUs; one object for the daemon's life."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._session: _Session | None = None

    def read(self) -> tuple[GpuReading, ...]:
        """One reading for each device, boards before their MIG devices.

        Raises:
            DriverError: NVML cannot be used now; the message is one sentence.
        """
        session = self._session
        if session is not None and session.stale():
            self._close()
        if self._session is None:
            driver.start()
            try:
                self._session = _Session(self._clock)
            except DriverError:
                driver.stop()
                raise
        try:
            return self._session.read()
        except DriverError:
            self._close()
            raise

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
        driver.stop()


class _Session:
    """The devices of a library that was started, until something is lost or divided anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began_ns = clock, clock.monotonic_ns()
        version = ask("nvmlSystemGetDriverVersion")
        version = version.decode() if isinstance(version, bytes) else version
        self._devices: list[Device] = []
        self._lost: dict[str, GpuReading] = {}
        self._unseen = False
        for index in range(ask("nvmlDeviceGetCount") or 0):
            try:
                parent = board(index, clock, version)
                self._devices += [parent, *mig_devices(parent, clock)]
            except GpuLostError:
                self._unseen = True
        self._divided = self._division()
        self._events = ask("nvmlEventSetCreate")
        for device in self._devices:
            self._register(device)

    def stale(self) -> bool:
        """Whether to look at all of it anew: something was lost, or divided, a while ago."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._began_ns < _RENEW_NS:
            return False
        self._began_ns = now_ns
        try:
            return bool(self._lost) or self._unseen or self._division() != self._divided
        except (DriverError, GpuLostError):
            return True

    def read(self) -> tuple[GpuReading, ...]:
        """A reading of each device; of one that is lost, its name and its trouble."""
        self._take_events()
        return tuple(self._read(device) for device in self._devices)

    def close(self) -> None:
        """Give back what was allocated, where the driver still takes it."""
        try:
            for device in self._devices:
                device.close()
            if self._events is not None:
                ask("nvmlEventSetFree", self._events)
        except (DriverError, GpuLostError):
            return  # the driver is gone, and what it held with it

    def _read(self, device: Device) -> GpuReading:
        uuid = device.facts.uuid
        if uuid not in self._lost:
            try:
                return device.read()
            except GpuLostError as error:
                known = {name: getattr(device.facts, name) for name in type(device.facts).__slots__}
                now_ns = self._clock.monotonic_ns()
                self._lost[uuid] = GpuReading(**known, at_ns=now_ns, trouble=str(error))
        return self._lost[uuid]

    def _division(self) -> list[list[str]]:
        """The uuids of the MIG devices of each board."""
        boards = [device for device in self._devices if device.facts.parent is None]
        here = [one for one in boards if one.facts.uuid not in self._lost]
        return [[uuid for uuid, _ in mig_handles(one)] for one in here]

    def _register(self, device: Device) -> None:
        """Count XID errors of a board from here on, where the driver tells of them."""
        if self._events is None or device.facts.parent is not None:
            return
        kinds = ask("nvmlDeviceGetSupportedEventTypes", device.handle)
        if kinds is None or not kinds & driver.XID_EVENT:
            return
        ask("nvmlDeviceRegisterEvents", device.handle, driver.XID_EVENT, self._events)
        device.xid_errors = 0

    def _take_events(self) -> None:
        if self._events is None:
            return
        by_address = {driver.address(device.handle): device for device in self._devices}
        for _ in range(_EVENTS_AT_ONCE):
            event = ask("nvmlEventSetWait", self._events, 0)
            if event is None:
                return
            device = by_address.get(driver.address(event.device))
            if device is not None and device.xid_errors is not None:
                device.xid_errors += 1
                device.last_xid = int(event.eventData)
