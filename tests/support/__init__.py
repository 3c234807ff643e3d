"""What several tests build on."""

from __future__ import annotations

import os

# Trainings of tests must not enter the history of the user who runs them.
os.environ["WARMWATCH_STATE"] = "off"
