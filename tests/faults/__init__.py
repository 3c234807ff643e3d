"""Faults made to happen to real processes, with figures: run by hand, from ``tests/``."""
