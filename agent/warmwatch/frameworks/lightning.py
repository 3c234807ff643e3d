"""Lightning, as the package ``lightning``: ``Trainer(callbacks=[WarmwatchCallback()])``.

In an attached process Lightning adds it to each trainer itself, through an entry point.
``FabricCallback`` is for ``Fabric(callbacks=[...])``.
"""

from __future__ import annotations

from lightning import pytorch

from warmwatch.frameworks._lightning_hooks import FabricHooks, Hooks
from warmwatch.frameworks._reporting import is_attached


class WarmwatchCallback(Hooks, pytorch.Callback):
    """Attaches, and reports the trainer's steps, validation, test and prediction."""


class FabricCallback(FabricHooks):
    """Attaches, and reports what the loop calls: ``fabric.call("on_validation_start")``."""


def callbacks() -> list[WarmwatchCallback]:
    """Lightning's entry point: one callback per trainer, or none if not attached."""
    return [WarmwatchCallback()] if is_attached() else []
