"""A file system that never replies: a FUSE mount by root without a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOUNT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % device
place = sys.argv[1].encode()
done = libc.mount(b"hung", place, b"fuse", 0, options)
print("mounted" if done == 0 else os.strerror(ctypes.get_errno()), flush=True)
sys.stdin.read()
libc.umount2(place, 2)
"""


@contextmanager
def hung(place: Path) -> Iterator[bool]:
    """``place`` does not answer any more; whether that could be had here."""
    with subprocess.Popen(
        [sys.executable, "-c", _MOUNT, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline() == "mounted\n"
        finally:
            process.stdin.close()
            process.wait(30)
