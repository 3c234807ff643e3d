"""``python -m gpu [NAME...]`` from tests/: scenarios for a real GPU, against PyTorch's own account.

Needs a GPU, PyTorch and nothing else: no pytest, so that it runs on a machine lent for minutes.
Prints a line a scenario, then what disagrees; exit 1 where anything does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from support import scenarios
from support.case import Case
from support.comparison import findings
from support.truth import seconds

FOLDER = Path(__file__).parent / "scenarios"


def main(names: list[str]) -> int:
    wrong = 0
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as place:
            case = Case(
                scenarios.declared(path), *scenarios.run(scenarios.declared(path), Path(place))
            )
        found = findings(case)
        wrong += len(found)
        counts = case.watched.slot.compile
        print(
            f"{path.stem:<28} {'ok' if not found else 'WRONG':<6}"
            f" compilations {counts.compilations} graphs {counts.graphs}"
            f" compiled {sum(counts.phase_ns) / 1e9:.2f} s"
            f" (by PyTorch {seconds(case.intervals):.2f} s)"
            f" warm-ups {counts.warmups}, first took {counts.first_warmup.steps} steps",
            flush=True,
        )
        for sentence in found:
            print(f"    {sentence[:900]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
