"""One script in several modes of ``torch.compile``: what each cost, and what it is worth. Pure."""

from __future__ import annotations

from warmwatch_monitor.export.comparison.parts import EAGER
from warmwatch_monitor.export.modes.enough import enough
from warmwatch_monitor.export.modes.parts import NAMES, USUAL, Modes, Tried
from warmwatch_monitor.export.modes.whole import modes

__all__ = ["EAGER", "NAMES", "USUAL", "Modes", "Tried", "enough", "modes"]
