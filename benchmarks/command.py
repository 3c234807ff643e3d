"""Time of ``warmwatch status`` against that of an empty Python program.

CPU time with a warm file cache, and wall-clock time after every file that the command loads was
dropped from the cache. The best of many runs, to exclude other load on the machine. Bytecode stays
cached, as after the installation of a wheel. The commands run in an empty directory, since they
would parse a ``pyproject.toml`` that mentions Warmwatch, such as that of this repository.

The run is the tests' record of a warm rank, whose lock another process holds. There is no history.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.figure import Figure
from support.records import held, warm, write_record

ROUNDS = 15
LIMIT_MS = 150
COMMAND = ("-m", "warmwatch_monitor", "status")
# what the command loads, from the command itself
FILES = """
import os, sys
sys.argv = ["warmwatch", *sys.argv[1:]]
os._exit = lambda _code: None  # the files are printed after it has ended
try:
    from warmwatch_monitor.__main__ import main
    main()
except SystemExit:
    pass
for module in list(sys.modules.values()):
    for name in (getattr(module, "__file__", None), getattr(module, "__cached__", None)):
        print("file", name)
"""


def measure() -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory() as empty,
        tempfile.TemporaryDirectory() as place,
        tempfile.TemporaryDirectory() as bytecode,
        patch.dict(os.environ, PYTHONPYCACHEPREFIX=bytecode, WARMWATCH_STATE="off"),
        held(write_record(Path(place), warm())),
    ):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        floor = best("-c", "pass"), best("-c", "import click")
        yield from _figures("from the records, no run", floor, "--dir", empty)
        yield from _figures("from the records, a run", floor, "--dir", place)
        with _daemon(place) as address:
            yield from _figures("from a daemon, a run", floor, "--address", address)


def _figures(source: str, floor: tuple[float, float], *options: str) -> Iterator[Figure]:
    warm = best(*COMMAND, *options)
    files = _files("status", *options)
    cold = _cold(files, *COMMAND, *options)
    bare, click = floor
    detail = f"{warm / bare:.1f} x a bare Python ({bare:.0f} ms); with click {click:.0f} ms"
    yield Figure(
        name=f"command: status {source}, ms of CPU", value=warm, limit=LIMIT_MS, detail=detail
    )
    yield Figure(name="command: the same, cold file cache, ms", value=cold)


def best(*words: str) -> float:
    """Milliseconds of CPU time of the cheapest of some runs of ``python WORDS``."""
    return min(_run(*words)[1] for _ in range(ROUNDS))


def _cold(files: list[Path], *words: str) -> float:
    """Milliseconds of the fastest of some runs of it, none of ``files`` in memory."""
    taken = []
    for _ in range(ROUNDS):
        _drop(files)
        taken.append(_run(*words)[0])
    return min(taken)


def _run(*words: str) -> tuple[float, float]:
    """Milliseconds that one run took, and of CPU time."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as empty:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=empty,
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return (time.perf_counter() - began) * 1e3, (used.ru_utime + used.ru_stime) * 1e3


def _files(*words: str) -> list[Path]:
    done = subprocess.run(
        [sys.executable, "-c", FILES, *words], capture_output=True, text=True, check=True
    )
    named = (line[5:] for line in done.stdout.splitlines() if line.startswith("file "))
    return [path for path in map(Path, named) if path.is_file()]


def _drop(files: list[Path]) -> None:
    """Ask the kernel to evict ``files`` from the page cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@contextmanager
def _daemon(place: str) -> Iterator[str]:
    command = [sys.executable, "-m", "warmwatch_monitor", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--dir", place], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split("http://")[1].split("/")[0]
        finally:
            process.terminate()
