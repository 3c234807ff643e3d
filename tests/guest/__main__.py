"""``make guest``: which trainings does the agent change?

Runs each training of ``scripts/`` without and with the agent, and prints what differs. Exits with
1 if anything does. ``--python`` runs all of it with other interpreters, whose PyTorch may be of
another version; the agent need not be installed there.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from guest.comparison import MOST_LINES, Compared, compared
from guest.headers import Training, all_trainings
from support.torch_versions import VERSION

_ROOT = Path(__file__).resolve().parents[2]
_WIDTH = 400


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make guest", description="Run unusual trainings without and with the agent; compare."
    )
    parser.add_argument("names", nargs="*", help="trainings; all but the long ones by default")
    parser.add_argument("--python", action="append", default=[], help="another interpreter")
    parser.add_argument("--long", action="store_true", help="the long ones, too")
    parser.add_argument("--core", action="store_true", help="only what `make test` runs")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time (2)")
    parser.add_argument("--lines", type=int, default=MOST_LINES, help="lines shown of each subject")
    chosen = parser.parse_args()
    if chosen.python:
        return max(_with(python) for python in chosen.python)
    trainings = _chosen(chosen.names, long=chosen.long, core=chosen.core)
    print(f"Python {platform.python_version()}, torch {metadata.version('torch')}", flush=True)
    with ThreadPoolExecutor(chosen.workers) as pool:
        found = list(pool.map(lambda one: _shown(one, chosen.lines), trainings))
    changed = [one.training.name for one in found if one.differences]
    names = " ".join(changed) or "none"
    print(f"{len(found)} trainings, {len(changed)} changed by the agent: {names}")
    return 0 if all(one.as_expected for one in found) else 1


def _with(python: str) -> int:
    """Run this command with another interpreter."""
    options = sys.argv[1:]
    while "--python" in options:
        del options[(at := options.index("--python")) : at + 2]
    options = [one for one in options if not one.startswith("--python=")]
    paths = [str(_ROOT / "tests"), str(_ROOT / "agent"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run([python, "-m", "guest", *options], env=environment, check=False)
    return done.returncode


def _chosen(names: list[str], *, long: bool, core: bool) -> list[Training]:
    known = all_trainings()
    if unknown := {*names} - {one.name for one in known}:
        sys.exit(f"no such training: {', '.join(sorted(unknown))}")
    chosen = [one for one in known if one.name in names] or [
        one for one in known if (long or not one.long) and (one.core or not core)
    ]
    version = tuple(map(int, VERSION.split(".")))
    return [one for one in chosen if one.torch <= version]


def _shown(training: Training, most: int) -> Compared:
    began = time.monotonic()
    result = compared(training, most=most)
    lines = result.differences
    verdict = "CHANGED" if lines else "same   "
    if training.fault:
        verdict += f", known: {training.fault}:"
    text = [f"{verdict} {training.name} ({time.monotonic() - began:.1f} s)"]
    text += [f"    {line[:_WIDTH]}" for line in lines]
    print("\n".join(text), flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
