"""Writes the record: the slot, the journal, the exit status, and their files.

May import: ``process``, ``shared``. All file access of the agent happens here.
A change begins in ``writer.py``; for records on a disk in ``disk_flusher.py``.
"""
