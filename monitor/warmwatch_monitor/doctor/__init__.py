"""``warmwatch doctor``: checks the installation and the host, and suggests remedies.

May import: ``client``, ``sources``, ``pipeline``, ``terminal``. A new check is a
function in ``checks.py``.
"""
