"""``warmwatch stacks``: what a rank does now, from py-spy, the agent's stack dump or the kernel.

A change begins in ``command.py``.
"""
