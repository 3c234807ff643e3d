"""Sentences of ``/status``. Pure: every state and number in them comes from the Snapshot.

A recompile reason becomes plain English in ``warmwatch.shared.reasons`` and a sentence in
``states.py``. The advice for a recompile is in ``warmwatch.shared.advice``; for graph breaks in
``requested.py``.
"""
