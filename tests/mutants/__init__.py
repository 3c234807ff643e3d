"""Mutants: the code broken in every small way, and whether a test fails of it."""
