"""The life of an attached process: arming hooks, opening the record, fork, detach, exit; the
API.

May import: every room above it in this list: notify, ledger, recorder, process, steps, hooks,
shared. A change begins in ``api.py`` for a public function, in ``agent.py`` for the wiring.
"""
