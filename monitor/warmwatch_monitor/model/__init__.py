"""The frozen values that flow through the monitor: readings, health, figures, Snapshot.

All are frozen: a source makes readings, the poller makes one Snapshot of them and publishes it by
one assignment, exports and views only read it. ``None`` is "not known", never 0. Monotonic times
are nanoseconds (``*_ns``); everything else is seconds, bytes, and seconds since the epoch.

Readings hold raw data. For a rank, exports and views use only its Figures.
A change begins in ``machine.py`` (a reading), ``figures.py`` (a figure of a rank), or
``snapshot.py`` (what is published).
"""
