"""``python -m benchmarks [NAME...]``: run all, or those named; print a table; exit 1 on a miss."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

NAMES = (
    "step",
    "attach",
    "compile_time",
    "compile_events",
    "nvml",
    "daemon",
    "polls",
    "memory",
    "command",
    "exports",
    "history",
)
ALONE = ("many", "rapid", "load", "waiting", "fleet")  # these take minutes


def _requested() -> tuple[str, ...]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = ", ".join(NAMES + ALONE)
    shown = f"of {known}; without one: {', '.join(NAMES)}"
    parser.add_argument("names", metavar="NAME", nargs="*", help=shown)
    names = tuple(parser.parse_args().names)
    if unknown := [name for name in names if name not in NAMES + ALONE]:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {known}")
    return names or NAMES


def main(names: tuple[str, ...]) -> int:
    missed = 0
    for name in names:
        print(f"{name}: measuring ...", file=sys.stderr, flush=True)
        for figure in import_module(f"benchmarks.{name}").measure():
            missed += not figure.met
            print(figure, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(_requested()))
