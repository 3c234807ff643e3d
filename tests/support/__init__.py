"""What several tests build on."""

from __future__ import annotations

import os

# Nothing of what tests train goes into the history of who runs them.
os.environ["WARMWATCH_STATE"] = "off"
