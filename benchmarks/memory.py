"""Memory of the daemon over that of an empty Starlette application under uvicorn, in one run.

The difference is Warmwatch's own; the rest is the memory of the idle libraries. Tools show resident
memory; the unique part is what the end of the process would free.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil

from benchmarks.figure import Figure
from benchmarks.served import daemon

SETTLING = 5.0
EMPTY = """
import socket, uvicorn
from starlette.applications import Starlette
listener = socket.create_server(("127.0.0.1", 0))
print("there", flush=True)
config = uvicorn.Config(Starlette(), access_log=False, log_level="warning", ws="none")
uvicorn.Server(config).run(sockets=[listener])
"""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        environ = {**os.environ, "WARMWATCH_DIR": place}
        served = stack.enter_context(daemon(environ))
        empty = subprocess.Popen(
            [sys.executable, "-c", EMPTY], env=environ, stdout=subprocess.PIPE, text=True
        )
        stack.callback(empty.kill)
        assert empty.stdout
        assert empty.stdout.readline() == "there\n"
        for path in ("/status", "/metrics"):
            served.ask(path)
        time.sleep(SETTLING)
        yield from _figures(psutil.Process(served.pid), psutil.Process(empty.pid))


def _figures(ours: psutil.Process, empty: psutil.Process) -> Iterator[Figure]:
    for name, part in (("resident", "rss"), ("unique", "uss")):
        one, other = (getattr(found.memory_full_info(), part) / 1e6 for found in (ours, empty))
        yield Figure(
            name=f"memory: daemon / an empty Starlette application, {name}",
            value=one / other,
            detail=f"{one:.1f} MB over {other:.1f} MB",
        )
