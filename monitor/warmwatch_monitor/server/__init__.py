"""``warmwatch serve``: connections, TLS, authentication, and the wiring of the daemon.

Every request passes ``guard.py`` first. A change begins in ``command.py`` (an option) or
``guard.py`` (token and TLS).
"""
