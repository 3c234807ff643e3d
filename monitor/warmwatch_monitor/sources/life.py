"""Whether a record's process lives, from one look at its slot to the next.

The lock is the kernel's word: where it is held, the process lives. Only a lock of the record's own
process counts, or of its user's: one that another user was let take keeps nothing alive. Where it
is free, it may have been freed by the process's own code, so the process that held it is asked.
Where that cannot be asked (it is in another pid namespace, or this reader never saw the lock held)
numbers that move are life, and only what has not moved for a while is gone. Nothing is final: a
record whose lock is taken again, or that moves again, lives again. Only a word of its end is, and
"finished" not before the process is gone: how it ended is its exit code, which it has yet to leave.
"""

from __future__ import annotations

from collections.abc import Callable

from warmwatch import record
from warmwatch_monitor.sources.holder import Holder, Presence, holder, presence, writer
from warmwatch_monitor.sources.slot import Look

_REST_NS = 2 * 10**9


class Life:
    """What the looks at one record amount to.

    Attributes:
        alive: as of the last look. pid: of its process, where that is known.
        gone_ns: when it was first found gone after it had been alive; ``None`` where it lives, or
        was never seen alive.
        rests: nothing of it has moved for a while after it was gone.
    """

    def __init__(
        self,
        *,
        find: Callable[[int], Holder | None] = holder,
        ask: Callable[[Holder, int], Presence] = presence,
        named: Callable[[int, int, int], Holder | None] = writer,
    ) -> None:
        self._find, self._ask, self._named = find, ask, named
        self._holder: Holder | None = None
        self._held_by: int | None = None
        self._sign_ns: int | None = None
        self._since_ns: int | None = None
        self.alive = False
        self.gone_ns: int | None = None
        self.rests = False

    @property
    def pid(self) -> int | None:
        """Of the process that holds the lock, or held it and is still there."""
        if not self.alive:
            return None
        return self._held_by or (self._holder.pid if self._holder else None)

    def note(self, look: Look, now_ns: int, *, ours: bool = True) -> None:
        """Take a look into account that was made at ``now_ns``.

        What is not of this boot (``ours``) is dead, whoever holds its lock.
        """
        held = look.held and self._is_own(look)
        self._held_by = look.pid if held else None
        if held or look.moved:
            self._sign_ns = now_ns
        alive = ours and (held or self._lives_unheld(look, now_ns))
        if alive:
            self.gone_ns = None
        elif self.alive:
            self.gone_ns = now_ns
        if self._since_ns is None or alive or self.alive or look.moved:
            self._since_ns = now_ns
        self.alive = alive
        self.rests = not alive and now_ns - self._since_ns >= _REST_NS

    def _is_own(self, look: Look) -> bool:
        """Whether the lock that is held is the record's own process's; who that is, is remembered.

        Of a holder in another pid namespace nothing is known, and it is believed.
        """
        if look.pid is None:
            self._holder = None
            return True
        found = self._holder
        if found is None or found.pid != look.pid:
            found = self._find(look.pid)
        if found is not None and not found.speaks_for(look.owner, look.slot.identity.pid):
            return False
        self._holder = found
        return True

    def _lives_unheld(self, look: Look, now_ns: int) -> bool:
        said = record.ENDS[look.slot.compile.end_code]
        if said not in ("", "finished"):
            return False
        if self._holder is None and self._since_ns is None:  # never seen before, nor its lock
            self._holder = self._named(look.slot.identity.pid, look.inode, look.owner)
        there = self._ask(self._holder, look.inode) if self._holder else Presence.UNKNOWN
        if there is Presence.GONE:  # from here on only what moves could bring it back
            self._holder = self._sign_ns = None
        if said:  # what moves is no sign any more, and it may have closed all that it had open
            return self._holder is not None
        if there is Presence.UNKNOWN:
            return self._sign_ns is not None and now_ns - self._sign_ns < _REST_NS
        return there is Presence.THERE
