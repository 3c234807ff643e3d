"""``warmwatch status --misses``: why compile caches missed.

May import: ``sources``, ``client``, ``output``. A change begins in ``cache_keys.py``.
"""
