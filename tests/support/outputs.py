"""What the commands print about recorded trainings, each seen at the moment of its recording.

``python -m support.outputs FOLDER NAME...`` writes one file for each recording and view. Both
clocks stand still at that moment, and another process holds the lock of a record whose training
lived then.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import recordings
from support.recordings import Recording

VIEWS = {
    "status.json": ("status", "{run}", "--json"),
    "status.txt": ("status", "{run}"),
    "runs.txt": ("runs",),
    "report.json": ("report", "{run}", "--json"),
    "report.txt": ("report", "{run}", "-v"),
}
METRICS = "metrics.txt"
FILES = (*VIEWS, METRICS)
_shown: list[Recording] = []  # the one that is shown
_WIDTH = "100"
_OWN_METRICS = ("process_",)
# of this machine and this process, not of the recording
_OWN = {
    "host",
    "hosts",
    "processes",
    "sources",
    "version",
    "monitor",
    "started",
    "pid",
    "resident_bytes",
    "cpu_seconds",
}


@contextlib.contextmanager
def _records(recording: Recording) -> Iterator[Path]:
    """Its directory of records, in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        directory = Path(place, "records")
        recordings.write_records(recording, directory)
        with _held([directory / one / "slot" for one in recording.living]):
            yield directory


@contextlib.contextmanager
def _held(slots: list[Path]) -> Iterator[None]:
    """While another process holds their locks, as their trainings did."""
    ready, told = os.pipe()
    if not (child := os.fork()):
        files = [slot.open("rb+") for slot in slots]
        for file in files:
            fcntl.lockf(file, fcntl.LOCK_EX)
        os.write(told, b"1")
        signal.pause()
    os.read(ready, 1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _stop_clocks() -> None:
    """Before the monitor is imported, whose defaults refer to them."""
    time.monotonic_ns = lambda: _shown[0].monotonic_ns
    time.time = lambda: _shown[0].epoch
    time.time_ns = lambda: int(_shown[0].epoch * 1e9)
    from warmwatch.shared import clock_origin

    clock_origin.boot_id = lambda: _shown[0].boot


def _printed(arguments: list[str]) -> str:
    from warmwatch_monitor.commands.cli import cli

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli(arguments)
    return out.getvalue()


def _metrics() -> str:
    """The samples of runs and ranks that are not 0; ``metrics_rich.txt`` has all, with help."""
    from warmwatch_monitor.base.settings import load
    from warmwatch_monitor.client.records import make_poller
    from warmwatch_monitor.metrics import render

    body, _ = render(make_poller(load(os.environ, os.geteuid(), {})).poll_once(), None, version="")
    own = ("#", *(f"warmwatch_{name}" for name in _OWN_METRICS))
    lines = [line for line in body.decode().splitlines(keepends=True) if 'run="' in line]
    shown = (line for line in lines if not line.startswith(own) and line.split()[-1] != "0.0")
    return "".join(shown)


def _without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_own(one) for key, one in value.items() if key not in _OWN}
    return [_without_own(one) for one in value] if isinstance(value, list) else value


def write(name: str, folder: Path) -> None:
    """Every view of one recording."""
    recording = recordings.read(name)
    _shown[:] = [recording]
    with _records(recording) as records:
        os.environ |= {
            "WARMWATCH_DIR": str(records),
            "WARMWATCH_STATE": str(records.with_name("state")),
            "WARMWATCH_OBSERVE": "off",  # other tests may start a script of this name
        }
        for view, arguments in VIEWS.items():
            text = _printed([one.format(run=recording.run) for one in arguments])
            text = text.replace(str(records.parent), "RECORDS")
            if view.endswith(".json"):
                text = json.dumps(_without_own(json.loads(text)), indent=1, ensure_ascii=False)
            (folder / f"{name}.{view}").write_text(text.rstrip() + "\n")
        (folder / f"{name}.{METRICS}").write_text(_metrics())


if __name__ == "__main__":
    for variable in [one for one in os.environ if one.startswith("WARMWATCH_")]:
        del os.environ[variable]
    os.environ |= {"COLUMNS": _WIDTH, "TZ": "UTC", "NO_COLOR": "1"}
    _stop_clocks()
    for each in sys.argv[2:]:
        write(each, Path(sys.argv[1]))
