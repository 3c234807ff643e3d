"""``warmwatch demo``: a small compiled training, watched live.

``train.py`` is a user's training. A change begins in ``command.py``.
"""
