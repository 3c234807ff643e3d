"""The ``/status`` document: one Snapshot as JSON, its schema, its sentences, and when a wait
is over.

May import: ``pipeline`` types, ``model``, ``output``. It never reads a source.
A change begins in ``schema/`` (a key: type, unit, description) and ``document.py``, ``run.py`` or
``rank.py`` (its value), or in ``words/`` (a sentence).
"""
