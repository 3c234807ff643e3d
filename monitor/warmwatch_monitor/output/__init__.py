"""Shared formatting: durations, amounts, tables, documents, and what a command prints.

May import: ``model``, ``settings``, ``errors``. No room's own wording belongs here.
A change begins in ``wording.py`` (a unit), ``document.py`` (a block), ``console.py`` (printing).
"""
