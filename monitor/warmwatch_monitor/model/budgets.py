"""Budgets: what one user, one poll and one answer may cost.

A record directory may be open to all users, so a user has less than the total: a flood by one user
leaves room for others. Beyond the total, living records come first.
``docs/explanation/reliability.md`` has the table of all budgets.
"""

# Records that are followed. An agent keeps the last 200 of its user, a node has some hundred ranks.
RECORDS_OF_A_USER, RECORDS = 1024, 4096
# Ranks that are shown, in units: a rank is one; a long name or long reasons make it more.
SHOWN_OF_A_USER, SHOWN = 256, 512
NAME_UNIT, TEXT_UNIT = 100, 16 * 1024  # bytes: each counts as one rank more
GPUS_OF_A_RANK = 64
LONGEST_RUN = 512  # characters of a requested run's name, its owner included
REQUESTED_RUNS = 64  # names of requested runs, which come first among their owner's

POLL_SECONDS = 0.05  # CPU time of one poll for reading records
POLL_LONGEST = 0.5  # wall clock time of one poll, for a slow disk
LISTING_SECONDS = 0.02  # CPU time of one poll for listing a directory
FIRST_LISTING_SECONDS = 0.06  # until a directory was listed once, since no run is known before
# Polls pause longer where reading and judging take more. The whole daemon may take 0.2, answers
# included.
SHARE_OF_A_CORE = 0.11
LONGEST_PAUSE = 1.0
HISTORY_SECONDS = 0.05  # CPU time for writing runs to the history, once a second
HISTORY_SHARE = 0.03  # of a core, above which it pauses longer
JOURNALS_CACHED = 4 << 20  # bytes of journals that the history keeps parsed

# what can be left out, as /status and warmwatch_left_out_total name it
LEFT_OUT = ("records", "ranks", "gpus")
