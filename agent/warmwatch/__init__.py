"""Warmwatch: is ``torch.compile`` still at work, or is this the real speed?

``import warmwatch.auto`` attaches the agent, and is all that most trainings need. This module is
the API for the rest; importing it does nothing. No function here raises into the training: what is
wrong is said once as a Python warning, and errors are counted where the monitor shows them.
"""

from warmwatch._version import __version__ as __version__
from warmwatch.lifecycle.api import (
    activity,
    allow_compilation,
    attach,
    detach,
    evaluating,
    is_compiling,
    is_warm,
    on_recompile,
    on_warm,
    ready,
    saving,
    state,
    step,
)

__all__ = [
    "activity",
    "allow_compilation",
    "attach",
    "detach",
    "evaluating",
    "is_compiling",
    "is_warm",
    "on_recompile",
    "on_warm",
    "ready",
    "saving",
    "state",
    "step",
]


def load_ipython_extension(shell: object) -> None:
    """``%load_ext warmwatch``: attach, and show a live answer under the cell that trains."""
    from warmwatch.frameworks.ipython import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """``%unload_ext warmwatch``: show no more; the agent stays attached."""
    from warmwatch.frameworks.ipython import unload

    unload(shell)
