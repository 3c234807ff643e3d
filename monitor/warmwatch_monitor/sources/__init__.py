"""Data sources: records, host, NVML, unattached trainings. All reading from outside happens here.

May import: ``model``, ``settings``, ``clock``, ``errors``, and the agent's ``shared``.
A new source is one file and one entry in ``listed.py``.
"""
