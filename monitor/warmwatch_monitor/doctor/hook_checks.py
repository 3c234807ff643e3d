"""What ``warmwatch doctor --hooks`` checks: each hook's figures against PyTorch's own records.

The agent does the work, in a process of its own with empty compile caches (``_hook_check``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from warmwatch_monitor.doctor.checks import Finding, Mark

_PROGRAM = ("-m", "warmwatch.testing.hook_check")
_SECONDS = 600.0
_MARKS = {"ok": Mark.FINE, "in place": Mark.FINE, "skipped": Mark.NOTE}
_ADVICE = {
    "absent": "this PyTorch names it otherwise: its figures are absent; report it with the version",
    "wrong": "figures of this hook are wrong with this PyTorch: report it with the version",
}


def hooks(environ: Mapping[str, str]) -> Iterator[Finding]:
    """One finding for each hook, and one where the check itself cannot run."""
    with tempfile.TemporaryDirectory(prefix="warmwatch-hooks-") as place:
        ours = {"WARMWATCH_DIR": place, "WARMWATCH_STATE": "off", "WARMWATCH_SAY": "0"}
        caches = {"TORCHINDUCTOR_CACHE_DIR": place, "TRITON_CACHE_DIR": place}
        kept = {name: value for name, value in environ.items() if not name.startswith("WARMWATCH_")}
        try:
            done = subprocess.run(
                [sys.executable, *_PROGRAM],
                env={**kept, **ours, **caches},
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = f"hooks: the check did not end within {_SECONDS:.0f} s"
            yield Finding(mark=Mark.TROUBLE, what=what, advice="compiling hangs on this host")
            return
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    yield from map(_finding, lines)
    if done.returncode not in (0, 1) or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        what = f"hooks: the check ended with exit code {done.returncode}"
        yield Finding(mark=Mark.TROUBLE, what=what, advice=last)


def _finding(line: str) -> Finding:
    said = json.loads(line)
    result = str(said["result"])
    return Finding(
        mark=_MARKS.get(result, Mark.TROUBLE),
        what=f"hook {said['hook']}: {result}: {said['words']}",
        advice=_ADVICE.get(result, ""),
    )
