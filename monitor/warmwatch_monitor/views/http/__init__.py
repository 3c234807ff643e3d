"""The HTTP interface: formats the latest Snapshot, and waits for a later one where asked to.

Owns routes, query parameters and HTTP statuses, in a file for each of what is asked. Every handler
runs on the event loop and only reads the latest Snapshot, so no answer waits for a source, a GPU or
another request.
"""

from __future__ import annotations

from warmwatch_monitor.views.http.app import create_app

__all__ = ["create_app"]
