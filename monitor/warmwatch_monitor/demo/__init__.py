"""``warmwatch demo``: a small compiled training, watched live.

May import: ``client``, ``report``, ``terminal``, ``output``. ``train.py`` is a user's training.
A change begins in ``command.py``.
"""
