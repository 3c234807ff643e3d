"""The public API and the lifecycle of an attached process: hooks, record, fork, detach, exit.

A change begins in ``api.py`` for a public function, in ``agent.py`` for the wiring.
"""
