"""``warmwatch run``: starts a command with the agent attached, and follows it.

A change begins in ``command.py``.
"""
