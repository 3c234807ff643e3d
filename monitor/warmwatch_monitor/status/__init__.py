"""The ``/status`` document: one Snapshot as JSON, its schema, its sentences, and when a wait
is over.

It never reads a source. A change begins in ``schema/`` (a key: type, unit, description) and
``document.py`` or ``run.py`` (its value), or in ``words/`` (a sentence).
"""
