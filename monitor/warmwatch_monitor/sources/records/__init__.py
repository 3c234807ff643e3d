"""Reading records: directory, folder, slot, journal, and whether the process lives.

A change begins in ``source.py``; for a journal field in ``model/journal.py``.
"""
