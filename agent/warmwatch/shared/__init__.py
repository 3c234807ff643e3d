"""What the agent and the monitor both use: the record format, the verdict, states, places,
words.

The agent's ``shared`` room is the only one that the monitor imports. A change begins in ``record/``
for the format, ``verdict.py`` for a state, ``reasons.py`` for a recompile reason in plain words.
"""
