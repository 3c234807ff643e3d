"""The ``/status`` document: one Snapshot as JSON, its schema, its sentences, and when a wait
is over.

May import: ``pipeline`` types, ``model``, ``output``. It never reads a source.
A change begins in ``rank.py`` (a key), ``schema/`` (its documentation), ``words/`` (a sentence).
"""
