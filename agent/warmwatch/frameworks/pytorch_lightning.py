"""Lightning, as the package ``pytorch_lightning``: ``Trainer(callbacks=[WarmwatchCallback()])``.

Lightning finds it by itself, by an entry point, where the process is attached; ``FabricCallback``
is for ``Fabric(callbacks=[...])``.
"""

from __future__ import annotations

import pytorch_lightning as pytorch

from warmwatch.frameworks._lightning_hooks import FabricHooks, Hooks
from warmwatch.frameworks._reporting import is_attached


class WarmwatchCallback(Hooks, pytorch.Callback):
    """Attaches, and tells of the trainer's own steps, of validation, test and prediction."""


class FabricCallback(FabricHooks):
    """Attaches, and tells of what the loop calls: ``fabric.call("on_validation_start")``."""


def callbacks() -> list[WarmwatchCallback]:
    """Lightning's entry point: one for each trainer, and none where nobody attached."""
    return [WarmwatchCallback()] if is_attached() else []
