"""The ``/status`` answer, for ``/docs`` and ``/openapi.json``: each key, its unit, and when null.

Answers are written by ``export.answer``, which is faster; the tests hold real ones to these models,
key by key.
"""

from __future__ import annotations

from warmwatch_monitor.status.schema.status import STATUS_DESCRIPTION, Problem, Status

__all__ = ["STATUS_DESCRIPTION", "Problem", "Status"]
