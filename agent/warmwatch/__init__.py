"""Warmwatch: is ``torch.compile`` still compiling, or is this the real speed?

``import warmwatch.auto`` attaches the agent, and is all that most trainings need. This module is
the API for other cases; importing it does nothing. No function here raises into the training:
invalid use causes one Python warning, and the monitor shows a count of internal errors.
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
    """``%load_ext warmwatch``: attach, and show a live status line under a training cell."""
    from warmwatch.frameworks.ipython import load  # a notebook's alone

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """``%unload_ext warmwatch``: remove the status line; the agent stays attached."""
    from warmwatch.frameworks.ipython import unload  # as above

    unload(shell)
