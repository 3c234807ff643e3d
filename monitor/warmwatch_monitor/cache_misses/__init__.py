"""``warmwatch status --misses``: why compile caches missed.

A change begins in ``cache_keys.py``.
"""
