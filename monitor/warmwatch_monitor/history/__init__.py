"""Earlier runs in SQLite: write, list, find, compare.

May import: ``pipeline``, ``status``, ``output``, ``sources``. A change begins in the tables of
``database.py`` and in ``rows.py`` (stored fields), or in ``summaries.py`` (the run summary).
"""
