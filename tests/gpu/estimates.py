"""``python -m gpu.estimates [NAME...]`` from tests/: the time left, in real trainings on a GPU.

Each of ``trainings/`` is trained six times with cold caches. Prints the table of
docs/explanation/accuracy.md for their records.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from support import estimates, scenarios

FOLDER = Path(__file__).parent / "trainings"
TIMES = 6


def main(names: list[str]) -> int:
    """Each, or those named."""
    with tempfile.TemporaryDirectory() as place:
        for path in sorted(FOLDER.glob("*.py")):
            if names and path.stem not in names:
                continue
            cold = replace(scenarios.declared(path), cold=True)
            for number in range(TIMES):
                folder = Path(place, path.stem, str(number))
                (folder / "records").mkdir(parents=True)
                scenarios.trained(cold, folder, "with", SCENARIO_AGENT="1")
        print(estimates.table(estimates.found_in([Path(place)])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
