"""``warmwatch export``: a run as a Perfetto trace, CSV or Parquet.

A change begins in ``trace.py`` or ``tables.py``.
"""
