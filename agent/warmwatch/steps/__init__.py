"""The hot path: what happens at every step, and which call counts as a step.

It reaches the ledger through a protocol only (``steps.py``). A change begins in ``steps.py`` and
carries a figure of ``make benchmark``.
"""
