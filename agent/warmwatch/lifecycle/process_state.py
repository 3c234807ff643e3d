"""Per-process agent state: record, ledger, console, watches. A forked child replaces all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

from warmwatch.ledger.ledger import Ledger
from warmwatch.notify.activity_watch import ActivityWatch, Alarm
from warmwatch.notify.console import LONG_SECONDS, Announcer, is_logged
from warmwatch.notify.quiet_watch import QuietWatch
from warmwatch.notify.stack_dumps import StackWriter
from warmwatch.shared import record

if TYPE_CHECKING:
    from warmwatch.hooks.points import Hooks
    from warmwatch.recorder.own_record import OwnRecord

_SINCE = record.COMPILE_INDEX["active_since_ns"]
_PHASE = record.COMPILE_INDEX["active_phase"]
_BEGUN = record.COMPILE_INDEX["begun"]
_LAST_END = record.COMPILE_INDEX["last_end_ns"]
_GRAPHS_BEFORE = record.COMPILE_INDEX["graphs_before"]
_OPTIMIZERS = record.COMPILE_INDEX["optimizers"]
_PRECOMPILED = record.COMPILE_INDEX["precompiled"]
_SETTLED = record.COMPILE_INDEX["settled"]
_QUIET = record.COMPILE_INDEX["quiet_ns"]
_ASYNCHRONOUS = record.COMPILE_INDEX["asynchronous"]
_QUIET_GAPS = 2  # as ``verdict.QUIET_GAPS``, which costs a tenth of the whole import
_LONGEST_GAP = record.COMPILE_INDEX["longest_gap_ns"]


class ProcessState:
    """The parts of the agent that are one process's. Who needs one asks for it here, each time.

    Args:
        word_break: how a reason of a graph break is told.
        shown: whether what the agent says is in the terminal, too.
        stacks_after: seconds of an activity after which stacks are written; ``None``: never.
        quiet_ns: how long nothing may compile before a process without steps is warm; 0: for ever.

    Attributes:
        record, ledger: what is known, and where it is kept. announcer: says it aloud.
        watch: is there while an activity is in progress. quiet: waits for a process without steps
        to be warm. on_quiet: called on a thread of ours when it may be.
    """

    on_quiet: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        own_record: OwnRecord,
        hooks: Hooks,
        word_break: Callable[[str], str],
        *,
        shown: bool,
        stacks_after: float | None,
        quiet_ns: int,
    ) -> None:
        self._hooks, self._word_break, self._stacks_after = hooks, word_break, stacks_after
        self._quiet_ns = quiet_ns
        self._begin(own_record, shown=shown)

    def renew(self, now: tuple[int, int]) -> None:
        """In a forked child: the record is the parent's, and so is what it says."""
        self._begin(self.record.renewed(now), shown=self.announcer.shown)

    def _begin(self, own: OwnRecord, *, shown: bool) -> None:
        # first, and both: nothing of a parent's is written to any more
        self.record = own
        self.ledger = Ledger(own, self._hooks, self._word_break, quiet_ns=self._quiet_ns)
        self.announcer = Announcer(shown=shown, slot=own.image, rank=lambda: own.speaks_for)
        self.watch = self._watched()  # a parent's thread is not here
        self.quiet = QuietWatch(self._quiet_at, lambda: self.on_quiet())
        self.tell_worth()

    def steps(self) -> int:
        """Steps marked so far."""
        return self.record.steps()

    def tell_worth(self) -> None:
        """What the user said that a step is worth, if anything."""
        if worth := self.record.worth:
            self.ledger.worth(worth)

    @property
    def announces(self) -> bool:
        """Whether anybody sees what is announced."""
        return self.announcer.shown or is_logged()

    def show(self, shown: bool) -> None:
        """Have what is said in the terminal, too, or no longer."""
        if shown != self.announcer.shown:
            self.announcer.shown = shown
            self.watch.stop()
            self.watch = self._watched()
            self.watch.begun()  # what is in progress goes on

    def _watched(self) -> ActivityWatch:
        """A watch over what this ledger knows to be in progress."""
        words = self.ledger.words
        return ActivityWatch(lambda: words[_SINCE], self._alarms(words))

    def _quiet_at(self) -> int | None:
        """When this process can be warm without a step at the earliest; see ``verdict``.

        Asked at the end of each event of the compiler, so it decides by a few words alone.
        """
        words = self.ledger.words
        begun, quiet = words[_BEGUN], words[_QUIET]
        if not quiet or words[_OPTIMIZERS] or words[_SETTLED] == begun + 1 or self.steps():
            return None
        if not (begun or words[_GRAPHS_BEFORE] or words[_PRECOMPILED]):
            return None
        if words[_ASYNCHRONOUS]:  # compiled code may be swapped in at any time: never warm
            return None
        if words[_SINCE]:
            return monotonic_ns() + quiet
        since = max(words[_LAST_END], self.record.header.attached_ns)
        return since + max(quiet, _QUIET_GAPS * words[_LONGEST_GAP])

    def _alarms(self, words: Sequence[int]) -> list[Alarm]:
        own = self.record
        alarms = [Alarm(after=LONG_SECONDS, act=self.announcer.long)] if self.announces else []
        if self._stacks_after is not None:
            stacks = StackWriter(
                phase=lambda: words[_PHASE],
                threads=self.ledger.compiling,
                place=lambda: own.writer.place,
            )
            alarms.append(Alarm(after=self._stacks_after, act=stacks.write, again=True))
        return alarms
