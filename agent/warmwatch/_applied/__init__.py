"""Facts as the ledger applies them: one at a time, each folded into the words of the rare block.

A file for each kind of fact. Nothing here reads a clock or asks which thread it is on: that was
done where the fact was told (``_ledger.py``, ``_step_facts.py``), and it may be applied on another.
"""
