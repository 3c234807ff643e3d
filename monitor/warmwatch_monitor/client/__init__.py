"""Where a command gets an answer: a daemon, the records on this machine, or a Prometheus.

A change begins in ``answers.py``.
"""
