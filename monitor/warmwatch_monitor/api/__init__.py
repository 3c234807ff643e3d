"""The HTTP API: ``/status``, ``/metrics``, ``/events``, ``/history``, probes, ``/docs``.

May import: ``status``, ``metrics``, ``page``, ``model``. Answers come from the latest Snapshot,
as bytes that are made once. A new endpoint is a function in ``routes.py``.
"""
