"""``warmwatch wait``: blocks until a run is warm, or in another state.

A change begins in ``waiter.py``.
"""
