"""Data sources: records, host, NVML, unattached trainings. All reading from outside happens here.

A new source is one file and one entry in ``listed.py``.
"""
