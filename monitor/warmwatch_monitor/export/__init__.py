"""``warmwatch export``: a run as a Perfetto trace, CSV or Parquet.

May import: ``history``, ``report``, ``output``. A change begins in ``trace.py`` or ``tables.py``.
"""
