"""The seams in PyTorch that the agent listens to: all of them, one file each.

A seam's ``install`` puts its hook in place and returns what it gives, how to undo it among that. It
raises ``SeamAbsentError`` where this PyTorch does not have the seam, which it finds out by looking
before it touches anything: the others then give what they can, and ``warmwatch doctor`` names what
is missing. Any other exception is an error of ours, and what was half done is undone. Two entries
install nothing of their own: they ask whether the records of compilations have what came with
later versions.

Nothing here is imported before PyTorch itself has imported Dynamo. Every hook that Dynamo could
trace is disabled for it: one guarded with ``is_compiling()`` would be traced away, unseen.
"""

from __future__ import annotations

from warmwatch._seams import Install
from warmwatch.hooks import (
    async_modes,
    batches,
    cache_events,
    callbacks,
    compilations,
    events,
    garbage,
    optimizer,
    recompile_limit,
    recompile_reasons,
    saving,
)

SEAMS: tuple[tuple[str, Install], ...] = (
    ("optimizer", optimizer.install),
    ("batches", batches.install),
    ("events", events.install),
    ("callbacks", callbacks.install),
    ("compilations", compilations.install),
    ("runtime_compilations", compilations.require_runtime),
    ("cache_verdicts", compilations.require_caches),
    ("recompile_reasons", recompile_reasons.install),
    ("recompile_limit", recompile_limit.install),
    ("async_modes", async_modes.install),
    ("garbage", garbage.install),
    ("saving", saving.install),
    ("cache_events", cache_events.install),
)
