"""Reports printed or written from inside the training: console messages and stack dumps.

A change begins in ``console.py``.
"""
