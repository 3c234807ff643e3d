"""``warmwatch status`` and ``warmwatch runs``: the sentence, the table, the reasons, in a
terminal.

A change begins in ``table.py``.
"""
