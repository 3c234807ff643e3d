"""Shared formatting: durations, amounts, tables, documents, and what a command prints.

The wording of a single room does not belong here. A change begins in ``amounts.py`` (a unit),
``document.py`` (a block), ``console.py`` (printing).
"""
