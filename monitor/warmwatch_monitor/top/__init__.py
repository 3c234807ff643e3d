"""``warmwatch top``: runs and ranks on a live screen.

May import: ``client``, ``terminal``, ``output``. A change begins in ``app.py`` (keys, widgets).
"""
