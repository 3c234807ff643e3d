"""The compile counter of the pytest plugin, and the check of all hooks for ``doctor --hooks``.

The counter uses hooks without agent, record or thread. A change begins in ``compile_counter.py``.
"""
