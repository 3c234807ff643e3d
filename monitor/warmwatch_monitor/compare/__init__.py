"""``warmwatch compare``: runs side by side, and their break-even.

May import: ``report``, ``history``, ``output``. A change begins in ``comparison.py``.
"""
