"""Compile caches of their own for what a command starts, so that each time is as the first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

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
