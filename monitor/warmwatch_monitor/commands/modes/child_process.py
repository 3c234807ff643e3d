"""Runs a command until it is measured, then ends it with all its descendants.

The command gets its own session, so signals to its group do not reach this process, and the
terminal sends it none. It is ended by SIGINT first, so that launchers end their workers, then by
SIGTERM and SIGKILL. This includes descendants that left its process group (torchrun's workers do)
or were adopted by init. SIGINT is repeated, because PyTorch can lose one: a KeyboardInterrupt that
is raised while guards are checked only makes the check fail.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any

import psutil

_PAUSE_SECONDS = 0.05
# signals that end it, in order, and the seconds to wait after each
PATIENCE = (
    (signal.SIGINT, 10.0),
    (signal.SIGINT, 5.0),
    (signal.SIGINT, 5.0),
    (signal.SIGTERM, 10.0),
    (signal.SIGKILL, 5.0),
)
_COUNTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stops:
    """The number of signals received, and the last one; 0 if none."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0

    def take(self, number: int, _frame: FrameType | None) -> None:
        """A signal handler."""
        self.count += 1
        self.last = number


@contextmanager
def counted_signals() -> Iterator[Stops]:
    """Counts signals that would end this process, in this block. Ignored ones stay ignored."""
    stops = Stops()
    before: dict[signal.Signals, Any] = {}
    for number in _COUNTED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, stops.take)
    try:
        yield stops
    finally:
        for counted, handler in before.items():
            signal.signal(counted, handler)


def run_until(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    output: IO[bytes] | int,
    poll: Callable[[], str | None],
    seconds: float,
    hurry: Callable[[], bool],
) -> tuple[int, str | None]:
    """Run ``command`` until it ends or ``poll`` returns a reason to end it.

    Returns its return code, and that reason; ``None`` if it ended by itself.

    Args:
        poll: called every ``seconds``.
        hurry: whether to skip the rest of the waits while the command is being ended.

    Raises:
        OSError: it cannot be started.
    """
    with _interruptible():
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    why = None
    try:
        while why is None and _code(child, seconds) is None:
            why = poll()
    finally:  # never leave the command running unattended
        if why is not None or child.poll() is None:
            _end(child, hurry)
    # do not wait for a process that SIGKILL cannot end, because it blocks in a driver
    code = _code(child, _PAUSE_SECONDS)
    return -signal.SIGKILL if code is None else code, why


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let a child get SIGINT, which a script's `warmwatch modes ... &` ignores, and so would it."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _code(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return child.wait(seconds)
    return None


def _end(child: subprocess.Popen[bytes], hurry: Callable[[], bool]) -> None:
    family: set[psutil.Process] = set()
    for number, seconds in PATIENCE:
        family |= _below(child)
        if number == signal.SIGINT:
            with suppress(OSError):
                os.killpg(child.pid, number)
        else:
            _send(number, child, family)
        if _gone(child, family, time.monotonic() + seconds, hurry):
            return


def _below(child: subprocess.Popen[bytes]) -> set[psutil.Process]:
    """Its living descendants. Those that lost their parent are found by their session."""
    processes = {
        process
        for process in psutil.process_iter()
        if _session(process.pid) == child.pid != process.pid
    }
    with suppress(psutil.Error):
        processes.update(psutil.Process(child.pid).children(recursive=True))
    return processes


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _send(
    number: signal.Signals, child: subprocess.Popen[bytes], family: set[psutil.Process]
) -> None:
    with suppress(OSError):
        child.send_signal(number)
    for process in family:
        with suppress(psutil.Error):
            process.send_signal(number)


def _gone(
    child: subprocess.Popen[bytes],
    family: set[psutil.Process],
    deadline: float,
    hurry: Callable[[], bool],
) -> bool:
    """Whether all of them end before the deadline."""
    while child.poll() is None or any(map(_lives, family)):
        if hurry() or time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
