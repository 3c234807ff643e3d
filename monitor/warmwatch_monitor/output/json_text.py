"""The text of ``--json``."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins


def as_json(document: Any, *, indent: int | None = 2) -> str:
    """The text of a command's ``--json`` document: a msgspec Struct, or the parts of one."""
    return json.dumps(to_builtins(document), indent=indent)
