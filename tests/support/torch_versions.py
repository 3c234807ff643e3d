"""What each PyTorch reports, so that a test can expect the values of the installed one.

Found by running; docs/reference/pytorch-versions.md has the same table in words. Every version
from 2.6 on can do what is not named here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Tells:
    """One PyTorch.

    Attributes:
        reason: its record of a compilation holds the reason of a recompile.
        missing: seams that it does not have, as the agent's identity names them.
        cache_load: an event reports that a compiled graph is loaded from a cache.
        limit: the setting that limits recompiles.
        threads: how many beside the main one can compile. The CUDA build of 2.11 crashes in a
            second one on a machine without a GPU, with no agent too.
        guards_of_inlined: that it adds to a function that calls one that Dynamo inlines the
            original of: on the builtin ``getattr``.
    """

    reason: bool = True
    missing: tuple[str, ...] = ()
    cache_load: bool = True
    limit: str = "recompile_limit"
    threads: int = 3
    guards_of_inlined: int = 0


_TELLS = {
    (2, 6): Tells(
        reason=False,
        missing=("runtime_compilations", "cache_verdicts", "choices"),
        cache_load=False,
        limit="cache_size_limit",
    ),
    (2, 8): Tells(missing=("cache_verdicts",)),
    (2, 11): Tells(threads=1),
    (2, 15): Tells(guards_of_inlined=2),
}


def tells() -> Tells:
    """What the installed PyTorch reports; an unlisted one reports everything."""
    return _TELLS.get(_version(), Tells())


def _version() -> tuple[int, int]:
    major, minor = re.findall(r"\d+", metadata.version("torch"))[:2]
    return int(major), int(minor)


TORCH = tells()
VERSION = ".".join(map(str, _version()))
