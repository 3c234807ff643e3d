"""The recompile limit: a frame that hits it runs eagerly from then on, and nothing else says so.

PyTorch logs one warning for each such frame. It is seen by a filter on that logger, which lets
everything through: a handler would change what the training prints.
"""

from __future__ import annotations

import logging
import re

from warmwatch._guard import report
from warmwatch._seams import Installed, Listener

_LOGGER = "torch._dynamo.convert_frame"
_HIT = re.compile(r"hit config\.(\w*(?:recompile|cache_size)_limit) \((\d+)\)")
_FUNCTION = re.compile(r"function: '([^']*)'")


def install(listener: Listener) -> Installed:
    def watch(line: logging.LogRecord) -> bool:
        try:
            if line.levelno >= logging.WARNING and "hit config." in str(line.msg):
                message = line.getMessage()
                if hit := _HIT.search(message):
                    function = _FUNCTION.search(message)
                    values = {"setting": hit[1], "limit": int(hit[2])}
                    listener.fallback({**values, "name": function[1] if function else None})
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("hooks.recompile_limit", error)
        return True

    logger = logging.getLogger(_LOGGER)
    logger.addFilter(watch)
    return Installed(uninstall=lambda: logger.removeFilter(watch))
