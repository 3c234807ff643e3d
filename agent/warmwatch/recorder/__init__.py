"""Writes the record: the slot, the journal, the exit status and their files.

All files of a record except ``stacks`` are written here. A change begins in ``writer.py``; for
records on a disk in ``disk_flusher.py``.
"""
