"""Counts what a test compiles, for the pytest plugin: hooks without agent, record or thread.

May import: ``hooks``, ``process``, ``shared``. A change begins in ``compile_limits.py``.
"""
