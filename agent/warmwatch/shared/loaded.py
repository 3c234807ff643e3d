"""Modules that are loaded, without loading any."""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any:
    """The module if it is loaded, or a replacement in ``sys.modules``; else ``None``.

    ``importlib.util.LazyLoader`` loads a module as soon as any attribute of it is read.
    """
    module = sys.modules.get(name)
    return None if module is None or is_lazy(module) else module


def is_lazy(module: object) -> bool:
    """Whether ``LazyLoader`` has imported the module, and not loaded it yet."""
    kind = type(module)
    return (kind.__module__, kind.__name__) == ("importlib.util", "_LazyModule")
