"""``warmwatch run``: a command with the agent attached, and what may stand beside it.

It knows nothing of records or answers; what is shown is given to it (``cli/run.py``).
"""
