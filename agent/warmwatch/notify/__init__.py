"""Reports printed or written from inside the training: console messages and stack dumps.

May import: ``ledger`` and what it may import. A change begins in ``console.py``.
"""
