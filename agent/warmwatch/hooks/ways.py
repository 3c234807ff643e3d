"""How ``torch.compile`` was called, from what it hands to ``torch._dynamo.optimize``.

It puts mode and options into an object (torch 2.6 to 2.15): for Inductor their settings together
(``config``), from which a mode is known by what it sets; for another backend both as they were
given (``kwargs``). Of options the names are told where they read as such, and short hashes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from warmwatch._hashes import of_value
from warmwatch.bounds import MOST_OPTIONS

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,79}")
_HIDDEN = "..."


def way_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The journal's words for one call."""
    backend = args[0] if args else kwargs.get("backend", "inductor")
    dynamic = kwargs.get("dynamic")
    mode, options = _mode_and_options(backend)
    return {
        "mode": mode,
        "backend": _backend(backend),
        "dynamic": dynamic if isinstance(dynamic, bool) else None,
        "fullgraph": kwargs.get("nopython") is True,
        "options": [
            f"{_named(name)}={of_value(value)}"
            for name, value in sorted(options.items(), key=lambda one: str(one[0]))[:MOST_OPTIONS]
        ],
    }


def _mode_and_options(backend: Any) -> tuple[str, Mapping[Any, Any]]:
    settings, given = getattr(backend, "config", None), getattr(backend, "kwargs", None)
    if isinstance(settings, dict):
        mode = _mode_of(settings)
        return mode, {} if mode != "default" else settings
    if isinstance(given, dict):
        options = given.get("options")
        return _named(given.get("mode", "default")), options if isinstance(options, dict) else {}
    return "default", {}


def _mode_of(settings: Mapping[str, Any]) -> str:
    """The mode that sets these and nothing else."""
    inductor = sys.modules.get("torch._inductor")  # there, where it has been asked for any setting
    if not settings or inductor is None or not hasattr(inductor, "list_mode_options"):
        return "default"
    modes = inductor.list_mode_options()
    return next((name for name, sets in modes.items() if sets == settings), "default")


def _backend(backend: Any) -> str:
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", backend)
    return _named(name)


def _named(name: Any) -> str:
    return name if isinstance(name, str) and _NAME.fullmatch(name) else _HIDDEN
