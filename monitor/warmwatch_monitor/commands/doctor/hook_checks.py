"""What ``warmwatch doctor --hooks`` checks: each hook's figures against PyTorch's own records.

The agent does the work, in a process of its own with empty compile caches (``hook_check``).

``warmwatch doctor -- CMD`` checks the time of guard checks in each step of a training. A training
that already runs cannot receive a request. The agent opens no socket, and has no thread while a
training is warm: it would have to look for a request at each step. So this runs CMD itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from warmwatch.shared.phrases import took
from warmwatch_monitor.base.interpreter import python
from warmwatch_monitor.commands.doctor.checks import Finding, Mark, fine, noted, trouble
from warmwatch_monitor.commands.launch import startable
from warmwatch_monitor.commands.modes.child_process import counted_signals
from warmwatch_monitor.commands.modes.command import script_name
from warmwatch_monitor.commands.modes.one_mode import AS_IS, Plan, Progress, attempt
from warmwatch_monitor.commands.modes.table import GUARD_SHARE, Tried
from warmwatch_monitor.model.run_summary import RankSummary

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


_GUARD_SECONDS = 3600.0


def guard_checks(command: tuple[str, ...]) -> tuple[Finding, int]:
    """Run ``command`` until guard checks are measured; the finding, which is never a problem, and
    the exit code if a signal interrupted it, else 0."""
    with startable(command), counted_signals() as stops:
        plan = Plan(mode=AS_IS, name=script_name(command), timeout=_GUARD_SECONDS, losses=True)
        tried = attempt(command, plan, {}, stops, Progress("measuring guard checks", sys.stderr))
    return finding(tried), 128 + stops.last if stops.last else 0


def finding(tried: Tried) -> Finding:
    """The time of guard checks, or why it is unknown."""
    ranks = tried.summary.ranks if tried.summary else ()
    share = tried.guard_share
    if not tried.guard_seconds or not share:
        what = f"the time of guard checks is unknown: {_why(tried, ranks)}"
        return noted(what)
    text = f"guard checks take {took(tried.guard_seconds)} of each step ({100 * share:.2g} %)"
    if share <= GUARD_SHARE:
        return fine(text)
    most = max(tried.guard_frames, key=lambda frame: tried.guard_frames[frame], default=None)
    if most is not None:
        text += f", {took(tried.guard_frames[most])} of it in {_function(most, ranks)}"
    return noted(text, advice="fewer, larger graphs have fewer guards")


def _why(tried: Tried, ranks: Sequence[RankSummary]) -> str:
    if tried.ended_by == "interrupted":
        return "interrupted"
    if tried.ended_by in ("itself", "timeout"):
        failed = f" with exit code {tried.code}" if tried.code else ""
        return f"the training ended{failed} before they were measured"
    if not any(rank.compiled for rank in ranks):
        return "nothing was compiled"
    if tried.guard_seconds == 0:
        return "no compiled code ran while they were measured"
    return "no scalar was passed to backward(), or the training uses a profiler"


def _function(frame: str, ranks: Sequence[RankSummary]) -> str:
    """Name and place of a frame, by its number in the compile ids."""
    for compilation in (compiled for rank in ranks for compiled in rank.compiled):
        if str(compilation.id).partition("/")[0] == frame and compilation.name:
            return f"{compilation.name} ({compilation.file}:{compilation.line})"
    return f"frame {frame}"
