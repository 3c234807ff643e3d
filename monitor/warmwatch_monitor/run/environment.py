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
    """``environ`` with the folder ``boot`` first in ``PYTHONPATH``, and nothing else changed.

    ``run``: the run's name, where one was given. ``started_by``: what the records of this launch
    are known by.
    """
    before = environ.get("PYTHONPATH")
    # an empty one is none to Python, while an empty part of one is the working directory
    made = {**environ, "PYTHONPATH": f"{boot}{os.pathsep}{before}" if before else boot}
    if run is not None:
        made["WARMWATCH_RUN"] = run
    if started_by is not None:
        made[STARTED_BY] = started_by
    return made


_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


class Caches(NamedTuple):
    """What is to be set in the environment for them, and the folder that they are in, if any."""

    environ: Mapping[str, str] = MappingProxyType({})
    folder: str | None = None


@contextlib.contextmanager
def fresh_caches(*, keep: bool, used: Callable[[], bool] = lambda: False) -> Iterator[Caches]:
    """Compile caches that are empty, so that what is compiled depends on nobody's day before.

    With ``keep`` nothing is set. They are removed in the end, but not where somebody still
    ``used()`` them.
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
