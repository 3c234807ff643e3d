"""Per-process agent state: record, ledger, console, watches. A forked child replaces all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING

from warmwatch.ledger.ledger import Ledger
from warmwatch.notify.console import LONG_SECONDS, Announcer, is_logged
from warmwatch.notify.stack_dumps import StackWriter
from warmwatch.process.process_tree import is_data_worker
from warmwatch.process.threads import ActivityWatch, Alarm, QuietWatch
from warmwatch.recorder.worker_entry import WorkerEntry, folder_of_parent
from warmwatch.shared.record import COMPILE_INDEX as AT
from warmwatch.shared.record import STACKS
from warmwatch.shared.record.workers_file import Entry

if TYPE_CHECKING:
    from warmwatch.hooks.installation import Hooks
    from warmwatch.recorder.writer import OwnRecord

_QUIET_GAPS = 2  # equal to ``verdict.QUIET_GAPS``; importing verdict takes a tenth of the import


class ProcessState:
    """Record, ledger, console messages and watches of the current process.

    Look the parts up on every use; do not cache them. ``renew()`` replaces them after a fork.

    Args:
        redact_break: redacts the reason of a graph break.
        shown: print the console messages in the terminal, too.
        stacks_after: seconds of an activity after which stacks are written; ``None``: never.
        quiet_ns: time without compilation after which a process without steps is warm; 0: never.

    Attributes:
        record, ledger: where facts are stored. announcer: the console messages.
        watch: runs while an activity is in progress.
        quiet: waits until a process without steps is warm; then calls ``on_quiet`` on its thread.
    """

    on_quiet: Callable[[], None] = staticmethod(lambda: None)
    _worker_compiles = ""

    def __init__(
        self,
        own_record: OwnRecord,
        hooks: Hooks,
        redact_break: Callable[[str], str],
        *,
        shown: bool,
        stacks_after: float | None,
        quiet_ns: int,
    ) -> None:
        self._hooks, self._redact_break, self._stacks_after = hooks, redact_break, stacks_after
        self._quiet_ns = quiet_ns
        self._parent_folder: Path | None = None
        self._begin(own_record, shown=shown)

    def renew(self, now: tuple[int, int]) -> None:
        """Replace all parts in a forked child. Never touches the parent's record."""
        self._parent_folder = self.record.writer.folder or self._parent_folder
        self._begin(self.record.renewed(now), shown=self.announcer.shown)

    def _begin(self, own_record: OwnRecord, *, shown: bool) -> None:
        # Replace record and ledger first: a late write must not reach the parent's record.
        self.record = own_record
        self.ledger = Ledger(own_record, self._hooks, self._redact_break, quiet_ns=self._quiet_ns)
        self.announcer = Announcer(shown=shown, slot=own_record.image, rank=lambda: own_record.rank)
        self.watch = self._new_watch()
        self._worker: WorkerEntry | None = None
        self.quiet = QuietWatch(self._quiet_at, lambda: self.on_quiet())
        self.update_work()

    def report_as_worker(self, name: str | None = None) -> None:
        """In a DataLoader's worker, which has no record: report the activity that begins or ended.

        ``name``: of the function that compiles, if it is known.
        """
        if self.record.opened or not is_data_worker():
            return
        if self._worker is None:
            self._worker = WorkerEntry(lambda: self._parent_folder or folder_of_parent())
        self._worker_compiles = name or self._worker_compiles
        block = self.ledger.block
        self._worker.update(
            Entry(
                begun=block[AT["begun"]],
                since_ns=block[AT["active_since_ns"]],
                last_end_ns=block[AT["last_end_ns"]],
                compile_ns=self.ledger.compile_ns(),
                name=self._worker_compiles,
            )
        )

    def steps(self) -> int:
        """Steps marked so far."""
        return self.record.steps()

    def update_work(self) -> None:
        """Store the work of a step that the user passed, if any."""
        if work := self.record.work_per_step:
            self.ledger.post("work", work)

    @property
    def announces(self) -> bool:
        """Whether console messages go to the terminal or to a log."""
        return self.announcer.shown or is_logged()

    def show(self, shown: bool) -> None:
        """Print console messages in the terminal, or stop that."""
        if shown != self.announcer.shown:
            self.announcer.shown = shown
            self.watch.stop()
            self.watch = self._new_watch()
            self.watch.begun()  # an activity may be in progress

    def _new_watch(self) -> ActivityWatch:
        return ActivityWatch(self.ledger.active_since, self._alarms(self.ledger.block))

    def _quiet_at(self) -> int | None:
        """Earliest time at which this process can be warm without a step; see ``verdict``.

        It runs after every compile event, so it reads only a few counters.
        """
        counters = self.ledger.block
        begun, quiet = counters[AT["begun"]], counters[AT["quiet_ns"]]
        if (
            not quiet
            or counters[AT["optimizers"]]
            or counters[AT["settled"]] == begun + 1
            or self.steps()
        ):
            return None
        if not (begun or counters[AT["graphs_before"]] or counters[AT["precompiled"]]):
            return None
        if counters[AT["asynchronous"]]:  # compiled code may be swapped in at any time: never warm
            return None
        if counters[AT["active_since_ns"]]:
            return monotonic_ns() + quiet
        since = max(counters[AT["last_end_ns"]], self.record.header.attached_ns)
        return since + max(quiet, _QUIET_GAPS * counters[AT["longest_gap_ns"]])

    def _alarms(self, counters: Sequence[int]) -> list[Alarm]:
        writer = self.record.writer
        alarms = [Alarm(after=LONG_SECONDS, act=self.announcer.long)] if self.announces else []
        if self._stacks_after is not None:
            stacks = StackWriter(
                phase=lambda: counters[AT["active_phase"]],
                threads=self.ledger.compiling,
                opened=lambda flags: writer.opened(STACKS, flags),
            )
            alarms.append(Alarm(after=self._stacks_after, act=stacks.write, again=True))
        return alarms
