"""``warmwatch doctor``: checks the installation and the host, and suggests remedies.

A new check is a function in ``checks.py``.
"""
