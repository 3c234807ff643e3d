"""``warmwatch status`` and ``warmwatch runs``: the sentence, the table, the reasons, in a
terminal.

May import: ``client``, ``status``, ``output``, ``history``. A change begins in ``table.py``.
"""
