"""``warmwatch stacks``: what a rank does now, from py-spy or from the agent's stack dump.

May import: ``client``, ``sources``, ``status``. A change begins in ``command.py``.
"""
