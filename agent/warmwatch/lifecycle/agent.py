"""The agent of one attached process: hooks, record, fork, detach and exit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import RLock, main_thread
from typing import Any

from warmwatch._guard import warn_once
from warmwatch.hooks import registry
from warmwatch.hooks.dynamo.imposed_mode import imposing
from warmwatch.hooks.installation import Hooks, is_imported
from warmwatch.hooks.phases import CUSTOM
from warmwatch.hooks.redaction import redactors
from warmwatch.hooks.training.losses import recording
from warmwatch.ledger.ledger import Ledger
from warmwatch.lifecycle.eager_baseline import EagerBaseline
from warmwatch.lifecycle.listener import HookListener
from warmwatch.lifecycle.process_state import ProcessState
from warmwatch.lifecycle.step_source import StepSource
from warmwatch.lifecycle.warmth import AfterWarm, WarmCallbacks
from warmwatch.process.ending import End, on_child_exit, on_main_thread_exception
from warmwatch.process.identity import launched_with_peers
from warmwatch.process.process_tree import child_name, is_data_worker, is_preparing
from warmwatch.process.settings import Settings, plain_name
from warmwatch.process.torch_state import Parameters, has_peers
from warmwatch.recorder.writer import OwnRecord
from warmwatch.shared.fallbacks import REFUSED_CALLS
from warmwatch.steps.batches import make_batches
from warmwatch.steps.steps import make_steps

_Moment = tuple[int, int]
_OPENING_SECONDS = 2.0  # longer than the writer waits for a disk
_AGENT_OPTIONS = ("say", "baseline_steps", "after_warm")  # of ``attach()``, not in the record


class Agent:
    """Creates the parts of an attached process, and handles its lifecycle.

    Args:
        settings: from the environment.
        version: version of the agent.
        options: arguments of ``attach()``: ``run``, ``tokens_per_step``...
        attached: attach time on the monotonic and on the wall clock, in nanoseconds.
        deferred: create the record at the first step or compile activity; of a rank with peers
            when it initializes its process group or creates an optimizer.

    Attributes:
        listener: receives the events of all hooks.
        step_source: decides which calls are steps.
        step: marks a step by hand. It is ``step_source.step`` itself, to save a call.
        warmth: judges whether the process is warm.
        after_warm: reports or refuses compilations after that.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        version: str,
        options: Mapping[str, Any],
        attached: _Moment,
        deferred: bool = False,
    ) -> None:
        self._deferred, self._armed = deferred, False
        self._mode, self._losses = settings.mode, settings.losses
        self._opening = RLock()
        self._hint = settings.hint and options.get("say") is not False
        self._hooks, parameters = Hooks(), Parameters()
        redaction = redactors(full=settings.full_reasons)
        recorded = _record_options(options)
        self._process = process = ProcessState(
            OwnRecord(settings, version=version, options=recorded, attached=attached),
            self._hooks,
            redaction.graph_break,
            shown=bool(options.get("say", settings.say)),
            stacks_after=settings.stacks,
            quiet_ns=round(settings.quiet * 1e9) if settings.quiet else 0,
        )
        self.after_warm = AfterWarm(process, options.get("after_warm", settings.after_warm))
        self.warmth = WarmCallbacks(process, self.open, self.after_warm)
        process.on_quiet = self.warmth.quiet_elapsed
        self.step_source = StepSource(process, self._hooks, parameters, self.open)
        self._eager = EagerBaseline(process, self._hooks, int(options.get("baseline_steps", 0)))
        self.steps = self.step_source.steps = self._eager.steps = make_steps(
            process.record.writer.buffer,
            process.ledger,
            is_step=self.step_source.is_step,
            warm_steps=settings.warm_steps,
            on_warm=self.warmth.check,
            on_long=self._long_step,
            on_baseline=self._eager.step,
        )
        self.step: Callable[[], None] = self.step_source.step
        self.batches = make_batches(process.record.writer.buffer, process.ledger)
        self.listener = HookListener(
            process,
            self._hooks,
            steps=self.steps,
            step_source=self.step_source,
            after_warm=self.after_warm,
            batches=self.batches,
            parameters=parameters,
            redaction=redaction,
            open_record=self.open,
        )

    def activity_began(self, name: object) -> None:
        """``warmwatch.activity(name)`` began."""
        self.listener.begin(CUSTOM, {"name": _name_of(name), "kind": CUSTOM})

    def activity_ended(
        self, name: object, seconds: float, raised: type[BaseException] | None
    ) -> None:
        values = {"kind": CUSTOM, "name": _name_of(name), "seconds": seconds}
        if raised and issubclass(raised, Exception):
            values["failure"] = raised.__name__
        try:
            self.listener.post("compilation", values)
        finally:
            self.listener.end(CUSTOM)

    @property
    def record(self) -> OwnRecord:
        return self._process.record

    @property
    def ledger(self) -> Ledger:
        return self._process.ledger

    def arm(self) -> None:
        """Install the hooks of Dynamo, and open the record; of a child process if it is a rank."""
        self._hooks.install(registry.POINTS, self.listener)
        self._arm_for_modes()
        self._arm_precompiled()
        self._armed = True
        self._eager.begin()
        if has_peers() or (child_name() is None and not self._deferred):
            self.open()
        self.record.set_hooks(self._hooks.names, self._hooks.missing)

    def _arm_for_modes(self) -> None:
        """Install what ``warmwatch modes`` set: a mode for everything that compiles, and losses."""
        if self._mode is not None:
            self._hooks.install((("imposed_mode", imposing(self._mode)),), self.listener)
            if "imposed_mode" in self._hooks.missing:
                warn_once(f"the mode {self._mode!r} cannot be imposed in this PyTorch version")
        if self._losses is not None:

            def rank() -> int | None:
                self.open()  # as its first step would
                return self.record.rank

            losses = recording(self._losses, rank, self._process.steps)
            self._hooks.install((("losses", losses),), self.listener)

    def arm_other_compilers(self, module: str) -> None:
        """Install the hook of another compiler. Its first compilation opens the record."""
        self._hooks.install((registry.OTHER_COMPILERS[module],), self.listener)
        self.record.set_hooks(self._hooks.names, self._hooks.missing)

    def _arm_precompiled(self) -> None:
        """Install the hooks for code that was compiled ahead of time, once PyTorch is imported."""
        if is_imported("torch") and "precompiled" not in self._hooks.names:
            self._hooks.install(registry.AHEAD, self.listener)

    def update(self, options: Mapping[str, Any]) -> None:
        """Apply more options; a new value replaces the old one."""
        self.record.update(_record_options(options))
        self._process.update_work()
        if "baseline_steps" in options:
            self._eager.requested = options["baseline_steps"]
            if self._armed:
                self._eager.begin()
        if "after_warm" in options:
            self.after_warm.mode = options["after_warm"]
            self.update_refusal()
        if "say" in options:
            self._process.show(options["say"])

    def open(self) -> None:
        """Create the record, once, unless this process is a helper such as a data-loading worker.

        If several threads call it, one creates the record and the others wait, since their facts
        belong in it. A signal handler that interrupts the creation continues without a record.
        """
        if self._opening.acquire(timeout=_OPENING_SECONDS):
            try:
                self._open()
            finally:
                self._opening.release()

    def _open(self) -> None:
        process = self._process
        if process.record.opened or is_preparing() or is_data_worker():
            return
        self._arm_precompiled()
        graphs = self._hooks.counters().get("graphs", 0)
        try:
            process.record.open(self._hooks.names, self._hooks.missing, graphs_before=graphs)
        finally:  # a signal handler may raise during a wait for the disk; the record is still made
            process.ledger.post("opened", {"graphs": graphs})
            self.steps.bind(process.record.writer.buffer, process.ledger)
            self.batches.bind(process.record.writer.buffer, process.ledger)
            on_child_exit(self.finish)
            on_main_thread_exception(self._main_thread_raised)
            process.quiet.begun()
        if self._hint and child_name() is None and process.record.visible:
            self._hint = False
            process.announcer.attached()

    def open_if_rank(self) -> None:
        """Open the record of a rank with peers, by its launcher or by its process group; or update
        its rank and its collectives' timeout.
        """
        if self.record.opened:
            self.record.refresh()
        elif has_peers() or (child_name() is None and launched_with_peers(os.environ)):
            self.open()

    def end_deferral(self) -> None:
        """Open the record without waiting for a step or compile activity."""
        self._deferred = False
        if self._armed and child_name() is None:
            self.open()

    def _main_thread_raised(self, end: End) -> None:
        """Other threads may go on: the end is known only if the main one has trained."""
        if self._process.ledger.training_thread() == main_thread().ident:
            self.finish(end)

    def finish(self, end: End, *, leaving: bool = False) -> None:
        """Record the end of the process, if there is a record.

        ``leaving``: Python exits, so only the exit status can follow.
        """
        process = self._process
        if end.refusal in REFUSED_CALLS and not process.record.opened:
            self.open()  # else nobody would see why the training never began
        if process.record.visible:
            process.ledger.exit(end)
            process.announcer.ended(end)
            process.record.flush(leaving=leaving)

    def update_refusal(self) -> None:
        """Refuse compilations if ``after_warm="raise"`` and the process is warm; else allow."""
        refuses = self.after_warm.mode == "raise"
        if refuses and (self.after_warm.was_warm or self.warmth.judgement().warm):
            self.after_warm.refuse()
        if not refuses:
            self.after_warm.allow()

    def detach(self) -> None:
        """Uninstall every hook and close the record."""
        self.after_warm.allow()
        self._eager.end()
        self._hooks.uninstall_all()
        self._process.watch.stop()
        self._process.quiet.stop()
        self.finish(End(how="detached"))
        self.record.close()

    def forked(self, now: _Moment) -> None:
        """Replace all state in a forked child, without waiting for a lock of the parent's."""
        self._opening = RLock()
        self.after_warm.renew()
        self.step_source.renew()
        try:
            self._process.renew(now)
        finally:  # whatever failed: parent and child share the memory of the parent's slot
            self.steps.bind(self.record.writer.buffer, self.ledger)
            self.batches.bind(self.record.writer.buffer, self.ledger, reset=True)
        self._eager.renew()

    def _long_step(self, steps: int, now: int, duration: int, usual: int) -> None:
        """Record a clean step that took far longer than usual."""
        behind = self.batches.behind(steps - 1)
        self.ledger.marks.long_step(steps, now, duration, usual, behind)


def _name_of(activity: object) -> str:
    return plain_name(activity if isinstance(activity, str) else type(activity).__name__)


def _record_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _AGENT_OPTIONS}
