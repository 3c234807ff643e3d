"""The environment of a command that the agent is attached to, and compile caches of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

STARTED_BY = "WARMWATCH_STARTED_BY"


def environment(
    environ: Mapping[str, str], boot: str, *, run: str | None = None, started_by: str | None = None
) -> dict[str, str]:
    """``environ`` with the folder ``boot`` first in ``PYTHONPATH``.

    ``run``: the run's name, if given. ``started_by``: the id of this launch in its records.
    """
    before = environ.get("PYTHONPATH")
    # Python ignores an empty PYTHONPATH, but an empty entry in it is the working directory
    made = {**environ, "PYTHONPATH": f"{boot}{os.pathsep}{before}" if before else boot}
    if run is not None:
        made["WARMWATCH_RUN"] = run
    if started_by is not None:
        made[STARTED_BY] = started_by
    return made


_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


class Caches(NamedTuple):
    """Environment variables that select the caches, and their folder, if any."""

    environ: Mapping[str, str] = MappingProxyType({})
    folder: str | None = None


@contextlib.contextmanager
def fresh_caches(*, keep: bool, used: Callable[[], bool] = lambda: False) -> Iterator[Caches]:
    """Empty compile caches, so that what is compiled does not depend on earlier runs.

    With ``keep``, the existing ones stay in use. At the end the folder is removed, unless
    ``used()`` reports that a process still uses it.
    """
    if keep:
        yield Caches()
        return
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="warmwatch-caches-")
    try:
        yield Caches({variable: f"{folder}/{name}" for variable, name in _CACHES.items()}, folder)
    finally:
        if not used():
            shutil.rmtree(folder, ignore_errors=True)
