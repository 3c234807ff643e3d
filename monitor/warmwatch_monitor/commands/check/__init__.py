"""``warmwatch check``: a gate for CI that fails if a training compiles more than its baseline.

A change begins in ``comparison.py`` (what is compared), ``baseline.py`` (the file)
and ``output.py`` (the answer).
"""
