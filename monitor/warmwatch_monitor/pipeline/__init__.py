"""From readings to a Snapshot: poll, group into runs, judge, estimate, account energy, publish.

May import: ``sources``, ``model``, ``settings``. No other room makes a Snapshot.
A change begins in ``poller.py`` (when), ``judging.py`` (in which order), ``runs.py`` (what).
"""
