"""Tables and reasons of ranks as ``status``, ``runs`` and ``top`` draw them.

A change begins in ``table.py``.
"""
