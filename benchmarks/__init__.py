"""The speed claims, each a ratio of two things measured in one run. `make benchmark` runs all."""

from __future__ import annotations

import os

# Nothing of what is measured goes into the history of who measures.
os.environ.setdefault("WARMWATCH_STATE", "off")
