"""``warmwatch modes``: one script in each mode of ``torch.compile``.

A change begins in ``table.py``.
"""
