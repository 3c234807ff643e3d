"""Commands in namespaces of their own, where this machine lets one make them."""

from __future__ import annotations

import shutil
import subprocess
import time


def possible(*flags: str) -> bool:
    """Whether ``unshare`` with these flags can be had here."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False)
    return done.returncode == 0


def uptime(seconds: int) -> tuple[str, ...]:
    """Flags of ``unshare`` for a time namespace in which the machine has booted so long ago."""
    offset = seconds - int(time.monotonic())
    return clocks(offset)


def clocks(offset: int) -> tuple[str, ...]:
    """Flags for a time namespace whose clocks are ``offset`` seconds ahead of the machine's."""
    return ("-T", "--fork", "--kill-child", f"--monotonic={offset}", f"--boottime={offset}")
