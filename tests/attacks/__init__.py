"""Attacks on a daemon and on commands, as one command: ``python -m attacks`` (``make attack``)."""
