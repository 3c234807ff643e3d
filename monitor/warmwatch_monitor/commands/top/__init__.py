"""``warmwatch top``: runs and ranks on a live screen.

A change begins in ``app.py`` (keys, widgets).
"""
