"""Earlier runs in SQLite: write, list, find, compare.

May import: ``pipeline``, ``status``, ``output``, ``sources``. A change begins in ``schema`` of
``database.py`` and ``rows.py`` (stored fields), or ``summaries.py`` (what is stored of a run).
"""
