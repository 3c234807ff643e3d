"""What ``warmwatch doctor --hooks`` checks: each hook's figures against PyTorch's own records.

The agent does the work, in a process of its own with empty compile caches (``hook_check``).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import TextIO

from warmwatch_monitor.base.interpreter import python
from warmwatch_monitor.commands.doctor.checks import Finding, Mark, fine, trouble

_SECONDS = 600.0
_IN_PLACE = "in place"
_MARKS = {"ok": Mark.FINE, _IN_PLACE: Mark.FINE, "skipped": Mark.NOTE}
_ADVICE = {
    "absent": "renamed in this PyTorch: its figures are absent; report it with the version",
    "not checked": "the check, or PyTorch itself, fails with this version: report it",
    "wrong": "figures of this hook are wrong with this PyTorch: report it with the version",
}


def hooks(environ: Mapping[str, str], *, counts: bool = False) -> Iterator[Finding]:
    """One finding for each hook as soon as it is known, and one if the check cannot run.

    ``counts``: the hooks that are in place but not compared share one finding, the last.
    """
    with tempfile.TemporaryDirectory(prefix="warmwatch-hooks-") as place:
        ours = {"WARMWATCH_DIR": place, "WARMWATCH_STATE": "off", "WARMWATCH_SAY": "0"}
        caches = {"TORCHINDUCTOR_CACHE_DIR": place, "TRITON_CACHE_DIR": place}
        inherited = {
            name: value for name, value in environ.items() if not name.startswith("WARMWATCH_")
        }
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                python("warmwatch.testing.hook_check"),
                env={**inherited, **ours, **caches},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            yield from _findings(process, errors, counts=counts)


def _findings(process: subprocess.Popen[str], errors: TextIO, *, counts: bool) -> Iterator[Finding]:
    timeout = threading.Timer(_SECONDS, process.kill)
    timeout.daemon = True
    timeout.start()
    is_found, in_place = False, 0
    try:
        with process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    is_found, report = True, json.loads(line)
                    if counts and report["result"] == _IN_PLACE:
                        in_place += 1
                    else:
                        yield _finding(report)
        timed_out = not timeout.is_alive()
    finally:
        timeout.cancel()
        process.kill()
    if in_place:
        what = f"{in_place} more {_IN_PLACE}: none of their figures was compared"
        yield fine(f"hooks: {what}")
    if process.returncode not in (0, 1) or not is_found:
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["no output"])[-1]
        what = f"hooks: the check ended with exit code {process.returncode}"
        if timed_out:
            what = f"hooks: the check did not end within {_SECONDS:.0f} s"
            last = "compiling hangs on this host"
        yield trouble(what, advice=last)


def _finding(report: Mapping[str, str]) -> Finding:
    result = str(report["result"])
    return Finding(
        mark=_MARKS.get(result, Mark.TROUBLE),
        what=f"hook {report['hook']}: {result}: {report['words']}",
        advice=_ADVICE.get(result, ""),
    )
