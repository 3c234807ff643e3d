"""From readings to a Snapshot: poll, group into runs, judge, estimate, account energy, publish.

A change begins in ``poller.py`` (when), ``judging.py`` (in which order), ``runs.py`` (what). Only
``fleet`` makes a Snapshot without it, from Prometheus.
"""
