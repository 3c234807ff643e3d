"""The speed claims, each a ratio of two things measured in one run. `make benchmark` runs all."""

from __future__ import annotations

import os

# Measurements must not enter the history of the user who runs them.
os.environ.setdefault("WARMWATCH_STATE", "off")
