"""Where a command gets an answer: a daemon, the records on this machine, or a Prometheus.

May import: ``pipeline``, ``status``, ``fleet``, ``output``. A change begins in ``answers.py``.
"""
