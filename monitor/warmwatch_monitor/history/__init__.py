"""Earlier runs in SQLite: write, list, find, compare.

A change begins in the tables of ``database.py`` and in ``rows.py`` (stored fields), or in
``summaries.py`` (the run summary).
"""
