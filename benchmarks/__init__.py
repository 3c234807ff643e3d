"""The speed claims, each a ratio of two things measured in one run. `make benchmark` runs all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Measurements must not enter the history of the user who runs them.
os.environ.setdefault("WARMWATCH_STATE", "off")

# Some benchmarks, and processes that they start, use the stand-ins of the tests.
_TESTS = str(Path(__file__).parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), _TESTS)))
