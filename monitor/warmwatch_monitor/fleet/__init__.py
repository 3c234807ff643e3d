"""Samples of a Prometheus to a Snapshot: runs over any number of hosts."""

from warmwatch_monitor.fleet.assembly import assemble

__all__ = ["assemble"]
