"""The HTTP API: ``/status``, ``/metrics``, ``/events``, ``/history``, probes, ``/docs``.

Answers come from the latest Snapshot, as cached bytes. A new endpoint is a function in
``app.py``.
"""
