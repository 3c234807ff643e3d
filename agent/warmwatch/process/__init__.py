"""The current process: settings, rank, launcher, run name, commit, process tree, threads, exit.

Nothing here patches PyTorch or writes a record. A change begins in ``settings.py`` for a variable,
in ``identity.py`` for what identifies a rank.
"""
