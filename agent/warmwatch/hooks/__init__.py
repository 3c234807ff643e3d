"""The seams in PyTorch that the agent listens to: all of them, one file each.

A seam's ``install`` puts its hook in place and returns the function that takes it away again. It
raises ``ImportError`` or ``AttributeError`` where this PyTorch does not have the seam: the others
then give what they can, and ``warmwatch doctor`` names what is missing. Two entries install nothing
of their own: they ask whether the records of compilations have what came with later versions.

Nothing here is imported before PyTorch itself has imported Dynamo. Every hook that Dynamo could
trace is disabled for it: one guarded with ``is_compiling()`` would be traced away, unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from warmwatch._guard import report
from warmwatch.hooks import (
    async_modes,
    callbacks,
    compilations,
    events,
    optimizer,
    recompile_limit,
    recompile_reasons,
)

if TYPE_CHECKING:
    from warmwatch._agent import Agent

Uninstall = Callable[[], None]

SEAMS: tuple[tuple[str, Callable[[Agent], Uninstall]], ...] = (
    ("optimizer", optimizer.install),
    ("events", events.install),
    ("callbacks", callbacks.install),
    ("compilations", compilations.install),
    ("runtime_compilations", compilations.require_runtime),
    ("cache_verdicts", compilations.require_caches),
    ("recompile_reasons", recompile_reasons.install),
    ("recompile_limit", recompile_limit.install),
    ("async_modes", async_modes.install),
)


def install_all(agent: Agent) -> tuple[dict[str, Uninstall], tuple[str, ...]]:
    """Install every seam; what was installed and how to undo it, and the names of the missing."""
    installed: dict[str, Uninstall] = {}
    missing = []
    for name, install in SEAMS:
        try:
            installed[name] = install(agent)
        except (ImportError, AttributeError):
            missing.append(name)
        except Exception as error:  # noqa: BLE001 - a stranger PyTorch than any known
            missing.append(name)
            report(f"hooks.{name}", error)
    return installed, tuple(missing)
