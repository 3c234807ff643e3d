"""Runs, remembered: an Account of each, kept in SQLite, and found again by its name or id.

``making`` makes Accounts of what is seen, ``store`` keeps them, ``keeper`` is the daemon's thread
that does so as time goes, ``finding`` knows which run is meant.
"""
