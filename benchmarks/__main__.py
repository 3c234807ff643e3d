"""``python -m benchmarks [NAME...]``: run all, or those named; print a table; exit 1 on a miss."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    "step",
    "attach",
    "compile_time",
    "nvml",
    "daemon",
    "memory",
    "command",
    "exports",
    "history",
)


def main(names: tuple[str, ...]) -> int:
    missed = 0
    for name in names:
        print(f"{name}: measuring ...", file=sys.stderr, flush=True)
        for figure in import_module(f"benchmarks.{name}").measure():
            missed += not figure.met
            print(figure, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or NAMES))
