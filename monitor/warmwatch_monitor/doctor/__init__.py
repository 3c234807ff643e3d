"""``warmwatch doctor``: checks the installation and the host, and says what to do.

May import: ``client``, ``sources``, ``pipeline``. A new check is a function in ``checks.py``.
"""
