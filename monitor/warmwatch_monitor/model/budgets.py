"""Budgets: what one user, one poll and one answer may cost.

A record directory may be open to all users, so each budget holds per user and in total. Users
share a total by max-min fairness: a user who needs less than an equal share gets all of it, and
the others divide the rest. So a flood by one user never takes away what another user needs.
``docs/explanation/reliability.md`` has the table of all budgets.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

# Records that are followed. An agent keeps the last 200 of its user, a node has some hundred ranks.
RECORDS_OF_A_USER, RECORDS = 1024, 4096
# Ranks that are shown, in units: a rank is one; a long name, long reasons or a slot that is longer
# than this release's make it more.
SHOWN_OF_A_USER, SHOWN = 512, 512
NAME_UNIT, TEXT_UNIT, SLOT_UNIT = 100, 16 * 1024, 4096  # bytes: each counts as one rank more
GPUS_OF_A_RANK = 64
LONGEST_RUN = 512  # characters of a requested run's name, its owner included
# names of requested runs, which come first among their owner's
REQUESTED_OF_A_PEER, REQUESTING_PEERS = 8, 64
# A user who exceeds a budget hides no other user's run, unless so many users share a total that a
# share is smaller than this.
RECORDS_ENOUGH, SHOWN_ENOUGH = 64, 32

POLL_SECONDS = 0.05  # CPU time of one poll for reading records
URGENT_SECONDS = 0.06  # until a living or unread record of each user was read
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


def fair_shares(needs: Mapping[K, int], each: int, total: int) -> dict[K, int]:
    """How much of ``total`` each gets of what it needs, at most ``each``: max-min fairness."""
    shares: dict[K, int] = {}
    left, waiting = total, len(needs)
    for key, need in sorted(needs.items(), key=lambda one: one[1]):
        shares[key] = min(need, each, left // waiting)
        left, waiting = left - shares[key], waiting - 1
    return shares


class Turns(Generic[T]):
    """Users in turn: who was served longest ago comes first, also from one call to the next."""

    def __init__(self) -> None:
        self._served: dict[int | None, int] = {}  # by user, in which turn
        self._turn = 0

    def of(self, items: Iterable[T], user: Callable[[T], int | None]) -> Iterator[T]:
        """``items``, users in turn; those of one user keep their order."""
        waiting: defaultdict[int | None, deque[T]] = defaultdict(deque)
        for item in items:
            waiting[user(item)].append(item)
        self._served = {uid: self._served.get(uid, 0) for uid in waiting}
        while waiting:
            uid = min(waiting, key=self._served.__getitem__)
            self._turn += 1
            self._served[uid] = self._turn
            yield waiting[uid].popleft()
            if not waiting[uid]:
                del waiting[uid]
