"""What a training notices of its record's disk: ``python -m faults.record_files``.

As root. A process marks steps by hand, 300 before the fault, 300 under it and 300 after it; with
every tenth it also writes a rare fact. ``longest`` is the longest of those calls under the fault,
``stale`` what the record on the disk is behind when they are done, ``after`` the same once the
fault is over. The last column is the exit code; a negative one is the signal that killed it.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from support.filesystems import FAULTS, FOR_GOOD, KINDS, NotHereError, mounted
from support.stepping import PROGRAM, Stepping, stepping
from warmwatch.shared import record

_TIMEOUT = 10.0


def main() -> None:
    """Print a line for each case."""
    print(
        f"{'filesystem':<10} {'fault':<10} {'longest':>12} {'stale':>6} {'after':>6} warned  exit"
    )
    for kind in KINDS:
        for fault in FAULTS:
            print(f"{kind:<10} {fault:<10} {' '.join(_case(kind, fault))}", flush=True)


def _case(kind: str, fault: str) -> Iterator[str]:
    try:
        with tempfile.TemporaryDirectory() as place, mounted(kind) as disk:
            errors = Path(place) / "errors"
            with stepping(disk.place / "records", errors, PROGRAM) as training:
                yield from _under(
                    training, FAULTS[fault](disk, training.folder / record.SLOT), fault
                )
            yield f"{errors.read_text().count('UserWarning'):>6}"
            yield f"{training.process.wait():>5}"
    except NotHereError as error:
        yield str(error)


def _under(
    training: Stepping, fault: contextlib.AbstractContextManager[None], name: str
) -> Iterator[str]:
    try:
        training.step()
        with fault:
            yield f"{training.step() / 1e3:>9.0f} us"
            time.sleep(0.5)
            yield f"{_behind(training):>6}"
        training.step()
        deadline = time.monotonic() + (0 if name in FOR_GOOD else _TIMEOUT)
        while _behind(training) != "0" and time.monotonic() < deadline:
            time.sleep(0.05)
        yield f"{_behind(training):>6}"
        training.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            training.process.wait(_TIMEOUT)
    except (AssertionError, OSError) as error:
        yield f"({str(error) or type(error).__name__})"


def _behind(training: Stepping) -> str:
    """Steps that the record does not tell of; ``-`` where there is nothing to read."""
    try:
        image = (training.folder / record.SLOT).read_bytes()
        return str(training.steps - record.unpack(image).steps.steps)
    except (OSError, record.RecordError):
        return "-"


if __name__ == "__main__":
    main()
