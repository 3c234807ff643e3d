"""``python -m gpu.estimates [NAME...]`` from tests/: the time left, in real trainings on a GPU.

Each of ``trainings/`` is trained twice with cold caches, the second time with the first to go by.
Prints a row a training, as in docs/explanation/accuracy.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from support import estimates, scenarios

FOLDER = Path(__file__).parent / "trainings"


def main(names: list[str]) -> int:
    """Each, or those named."""
    for path in sorted(FOLDER.glob("*.py")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as place:
                measured = estimates.measure(scenarios.declared(path), Path(place))
            print(estimates.rows([measured])[0], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
