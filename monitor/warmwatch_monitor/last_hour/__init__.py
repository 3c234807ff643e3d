"""The last hour, second by second: the one store behind ``/history``, the live page and ``top``.

The daemon fills it, or a command that reads records itself. A change begins in ``ring.py``.
"""
