"""``warmwatch run``: starts a command with the agent attached, and follows it.

May import: ``client``, ``report``, ``history``, ``output``. A change begins in ``command.py``.
"""
