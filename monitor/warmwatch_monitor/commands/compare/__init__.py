"""``warmwatch compare``: runs side by side, and their break-even.

A change begins in ``comparison.py``.
"""
