"""The public API and the lifecycle of an attached process: hooks, record, fork, detach, exit.

May import: notify, ledger, recorder, process, steps, hooks, shared.
A change begins in ``api.py`` for a public function, in ``agent.py`` for the wiring.
"""
