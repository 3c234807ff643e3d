"""The ``/status`` document as clients get it: JSON, decoded."""

from __future__ import annotations

import json
from typing import Any

from warmwatch_monitor.model.snapshot import Snapshot
from warmwatch_monitor.server.api.cached import json_body
from warmwatch_monitor.status import document


def status(snapshot: Snapshot, run: str | None = None) -> dict[str, Any]:
    """The whole answer; raises as ``document.status`` does."""
    answer: dict[str, Any] = json.loads(json_body(document.status(snapshot, run)).plain)
    return answer
