"""Compile cache lookups: key and result, from instant events of the chromium logger.

``fx_graph_cache_hit``, ``_miss``, ``_bypass`` and ``autograd_cache_...`` carry the key, its
components and the reason of a bypass. ``log_instant_event`` is wrapped on the class; PyTorch's
function runs first, because it adds the compile id.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, untraced
from warmwatch.shared.values import VERDICTS

_CACHES = {"fx_graph_cache_": "inductor_fx", "autograd_cache_": "aot_autograd"}
_KEY = 12  # characters of a key: enough to compare two keys


def install(listener: Listener) -> Installed:
    with look_up():
        from torch._dynamo.utils import ChromiumEventLogger

        original = ChromiumEventLogger.log_instant_event
    replaced = Replaced()

    @functools.wraps(original, updated=())
    def wrapper(logger: Any, *args: Any, **kwargs: Any) -> Any:
        given = original(logger, *args, **kwargs)
        if replaced.listening:
            untraced("hooks.cache_events", _report_lookup, listener, args, kwargs)
        return given

    replaced.put(ChromiumEventLogger, "log_instant_event", wrapper)
    return Installed(uninstall=replaced.undo)


def _report_lookup(listener: Listener, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    event = args[0] if args else kwargs.get("event_name", "")
    metadata = args[2] if len(args) > 2 else kwargs.get("metadata")
    cache, verdict = cache_and_verdict_of(event)
    if cache and isinstance(metadata, dict):
        listener.post("cache", {"cache": cache, "verdict": verdict, **values_of(metadata)})


def cache_and_verdict_of(event: str) -> tuple[str, str]:
    """Cache and verdict of an event; empty for other events."""
    for begins, cache in _CACHES.items():
        if event.startswith(begins) and (verdict := event.removeprefix(begins)) in VERDICTS:
            return cache, verdict
    return "", ""


def values_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The needed metadata, as PyTorch passes it; none of it is reported unchanged."""
    compile_id, key = metadata.get("compile_id"), metadata.get("key")
    lines = metadata.get("components")
    return {
        "id": str(compile_id) if compile_id not in (None, "None") else None,
        "key": key[:_KEY] if isinstance(key, str) else None,
        "reason": metadata.get("cache_bypass_reason") or None,
        "lines": lines if isinstance(lines, list) else [],
    }
