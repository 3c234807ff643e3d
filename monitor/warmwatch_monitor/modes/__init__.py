"""``warmwatch modes``: one script in each mode of ``torch.compile``.

May import: ``run``, ``compare``, ``report``, ``history``, ``output``. A change begins in
``table.py``.
"""
