"""Sentences of ``/status``, made of clauses. Pure: every state and number comes from the Snapshot.

A function returns a ``Clause`` with its kind, or ``Words``: the text and its short form. Views pick
clauses by kind; none reads the words.

A recompile reason becomes plain English in ``warmwatch.shared.reasons`` and a sentence in
``states.py``. The advice for a recompile is in ``warmwatch.shared.advice``; for graph breaks in
``warmwatch.shared.breaks``.
"""
