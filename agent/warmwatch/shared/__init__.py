"""What the agent and the monitor both use: the record format, the verdict, states, places,
words.

May import: nothing else of ours. The monitor imports this room of the agent and no other. A
change begins in ``record/`` for the format, ``verdict.py`` for a state, ``reasons.py`` for a
word.
"""
