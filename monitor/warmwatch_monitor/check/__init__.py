"""``warmwatch check``: a gate for CI that fails if a training compiles more than its baseline.

May import: ``run``, ``output``, ``model``, ``sources``. A change begins in ``comparison.py`` (what
is compared), ``baseline.py`` (the file), ``wording.py`` and ``output.py`` (the answer).
"""
