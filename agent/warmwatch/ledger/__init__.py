"""Turns facts into cumulative counters and journal lines, one fact at a time.

A change begins in the table of facts in ``ledger.py``, or in the file of the kind of fact:
activities, compilations, pauses, steps, the program's own calls.
What only PyTorch's counters show (graphs, graph breaks, cache hits) is in ``counters.py``.
"""
