"""Runs on many hosts: a Prometheus server's samples as a Snapshot.

A change begins in ``figures.py``.
"""

from warmwatch_monitor.sources.fleet.assembly import assemble

__all__ = ["assemble"]
