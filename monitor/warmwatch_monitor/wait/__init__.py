"""``warmwatch wait``: blocks until a run is warm, or in another state.

May import: ``client``, ``status``, ``output``. A change begins in ``waiter.py``.
"""
