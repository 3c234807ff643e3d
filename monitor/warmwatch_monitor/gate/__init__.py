"""The gate for CI: what a training compiled, as numbers, and whether they grew. Pure.

``measured`` takes the numbers from the runs of a Snapshot, ``baseline`` keeps them in a file that
people review, ``growth`` holds the one against the other. Words are in ``export/words/growth.py``.
"""
