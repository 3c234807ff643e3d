"""Turns facts into cumulative counters and journal lines, one fact at a time.

A change begins in the file of the kind of fact: activities, compilations, pauses, steps, calls.
What only PyTorch's counters show (graphs, graph breaks, cache hits) is in ``counters.py``.
"""
