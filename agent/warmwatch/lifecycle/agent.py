"""The agent of one attached process: arms the hooks, opens the record, handles fork, detach
and exit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from warmwatch._guard import warn_once
from warmwatch.hooks.imports import FRAMES, is_imported
from warmwatch.hooks.points import Hooks, Listener
from warmwatch.hooks.redaction import words
from warmwatch.ledger.ledger import Ledger
from warmwatch.lifecycle import api as brackets
from warmwatch.lifecycle.after_warm import AfterWarm
from warmwatch.lifecycle.eager_baseline import EagerBaseline
from warmwatch.lifecycle.listener import HookListener
from warmwatch.lifecycle.process_state import ProcessState
from warmwatch.lifecycle.step_source import StepSource
from warmwatch.lifecycle.warmth import WarmCallbacks
from warmwatch.process.ending import End, at_childs_end
from warmwatch.process.process_tree import child_name, is_data_worker, is_preparing
from warmwatch.process.settings import Settings
from warmwatch.process.torch_state import Parameters
from warmwatch.recorder.own_record import OwnRecord
from warmwatch.steps.batches import make_batches
from warmwatch.steps.steps import make_steps


def arm(hooks: Hooks, listener: Listener, mode: str | None) -> None:
    """Dynamo is there: install all that it is heard by."""
    from warmwatch.hooks.registry import POINTS, hide

    hooks.install(POINTS, listener)
    if mode is not None:
        _impose(mode, hooks, listener)
    hide([*hooks.functions(), *FRAMES])
    brackets.dynamo_came()


def arm_ahead(hooks: Hooks, listener: Listener) -> None:
    """Look for code that was compiled ahead of time, once PyTorch is there."""
    if is_imported("torch"):
        from warmwatch.hooks.registry import AHEAD

        hooks.install(AHEAD, listener)


def arm_other_compilers(hooks: Hooks, listener: Listener, module: str) -> None:
    """Another compiler is there: listen to it."""
    from warmwatch.hooks.registry import OTHER_COMPILERS, hide

    before = set(hooks.functions())
    hooks.install((OTHER_COMPILERS[module],), listener)
    if is_imported("torch._dynamo"):
        hide([one for one in hooks.functions() if one not in before])


def _impose(mode: str, hooks: Hooks, listener: Listener) -> None:
    """Have everything compiled in the mode that ``warmwatch modes`` asks for."""
    from warmwatch.hooks.dynamo.imposed_mode import imposing

    hooks.install((("imposed_mode", imposing(mode)),), listener)
    if "imposed_mode" in hooks.missing:
        warn_once(f"this PyTorch has no place where the mode {mode!r} can be imposed")


_Moment = tuple[int, int]
_OPENING_SECONDS = 2.0  # that a disk may take is less: a training waits for none
_OWN_OPTIONS = (
    "say",
    "baseline_steps",
    "after_warm",
)  # what the record does not hold as it was said


class Agent:
    """One attached process: what it is made of, its life and its death.

    Args:
        settings: from the environment. version: the agent's own.
        options: what the user gave to ``attach()``: ``run``, ``tokens_per_step``...
        attached: when, on the monotonic and on the wall clock, in nanoseconds.
        quiet: there is no record before the first step or compile activity.

    Attributes:
        listener: what hooks tell it. marking: whose calls are steps.
        step: marks a step by hand: ``marking``'s own, for nothing stands between.
        warmth: whether it is warm. after_warm: what becomes of compilations from then on.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        version: str,
        options: Mapping[str, Any],
        attached: _Moment,
        quiet: bool = False,
    ) -> None:
        self._quiet, self._armed, self._mode = quiet, False, settings.mode
        self._opening = RLock()
        self._hooks, parameters, worded = Hooks(), Parameters(), words(full=settings.full_reasons)
        told = _of_the_record(options)
        self._own = own = ProcessState(
            OwnRecord(settings, version=version, options=told, attached=attached),
            self._hooks,
            worded.graph_break,
            shown=bool(options.get("say", settings.say)),
            stacks_after=settings.stacks,
            quiet_ns=round(settings.quiet * 1e9) if settings.quiet else 0,
        )
        self.after_warm = AfterWarm(own, options.get("after_warm", settings.after_warm))
        self.warmth = WarmCallbacks(own, self.open, self.after_warm)
        own.on_quiet = self.warmth.quiet
        self.marking = StepSource(own, self._hooks, parameters, self.open)
        self._eager = EagerBaseline(own, self._hooks, int(options.get("baseline_steps", 0)))
        self.steps = self.marking.steps = self._eager.steps = make_steps(
            own.record.writer.buffer,
            own.ledger,
            is_step=self.marking.is_step,
            warm_steps=settings.warm_steps,
            on_warm=self.warmth.came,
            on_long=self._long_step,
            on_baseline=self._eager.step,
        )
        self.step: Callable[[], None] = self.marking.step
        self.batches = make_batches(own.record.writer.buffer)
        self.listener = HookListener(
            own,
            self._hooks,
            steps=self.steps,
            created=self.marking.created,
            trains=self.marking.trains,
            after_warm=self.after_warm,
            batches=self.batches,
            parameters=parameters,
            words=worded,
            open_record=self.open,
        )

    @property
    def record(self) -> OwnRecord:
        """This process's record."""
        return self._own.record

    @property
    def ledger(self) -> Ledger:
        """This process's ledger."""
        return self._own.ledger

    def arm(self) -> None:
        """Dynamo is there: install the hooks, and speak unless this is somebody's child."""
        arm(self._hooks, self.listener, self._mode)
        self._look_ahead()
        self._armed = True
        self._eager.begin()
        if child_name() is None and not self._quiet:
            self.open()
        self.record.hooked(self._hooks.names, self._hooks.missing)

    def arm_other_compilers(self, module: str) -> None:
        """Another compiler is there: listen to it. It says nothing before it has compiled."""
        arm_other_compilers(self._hooks, self.listener, module)
        self.record.hooked(self._hooks.names, self._hooks.missing)

    def _look_ahead(self) -> None:
        if "precompiled" not in self._hooks.names:
            arm_ahead(self._hooks, self.listener)

    def update(self, options: Mapping[str, Any]) -> None:
        """The user gave more options; a new value replaces the old one."""
        self.record.update(_of_the_record(options))
        self._own.tell_worth()
        if "baseline_steps" in options:
            self._eager.wanted = options["baseline_steps"]
            if self._armed:
                self._eager.begin()
        if "after_warm" in options:
            self.after_warm.mode = options["after_warm"]
            self.refuse_again()
        if "say" in options:
            self._own.show(options["say"])

    def open(self) -> None:
        """Make the record, once, unless this process only helps another.

        Of several threads that come at once, one makes it, and the others wait for it: what they
        tell is to be in it. A signal handler that comes meanwhile goes on without.
        """
        if self._opening.acquire(timeout=_OPENING_SECONDS):
            try:
                self._open()
            finally:
                self._opening.release()

    def _open(self) -> None:
        own = self._own
        if own.record.opened or is_preparing() or is_data_worker():
            return
        self._look_ahead()
        graphs = self._hooks.counters().get("graphs", 0)
        try:
            own.record.open(self._hooks.names, self._hooks.missing, graphs_before=graphs)
        finally:  # a signal handler may raise while a disk is waited for: it is made all the same
            own.ledger.opened(graphs)
            self.steps.bind(own.record.writer.buffer, own.ledger)
            self.batches.bind(own.record.writer.buffer)
            at_childs_end(self.finish)
            own.quiet.begun()

    def speak(self) -> None:
        """It is no longer ``quiet``."""
        self._quiet = False
        if self._armed and child_name() is None:
            self.open()

    def finish(self, end: End, *, leaving: bool = False) -> None:
        """The process ends. Nothing is said by one that had nothing to say.

        ``leaving``: Python itself ends, with no other word.
        """
        own = self._own
        if own.record.visible:
            own.ledger.exit(end)
            own.announcer.ended(end)
            own.record.flush(leaving=leaving)

    def refuse_again(self) -> None:
        """Refuse what compiles from now on, if that was asked for and the process is warm."""
        refuses = self.after_warm.mode == "raise"
        if refuses and (self.after_warm.was_warm or self.warmth.judgement().warm):
            self.after_warm.warm()
        if not refuses:
            self.after_warm.give_back()

    def detach(self) -> None:
        """Take every hook away and let go of the record."""
        self.after_warm.give_back()
        self._eager.end()
        self._hooks.uninstall_all()
        self._own.watch.stop()
        self._own.quiet.stop()
        self.finish(End(how="detached"))
        self.record.close()

    def forked(self, now: _Moment) -> None:
        """In a forked child: what is the parent's is let go of, and none of it is waited for."""
        self._opening = RLock()
        self.after_warm.renew()
        self.marking.renew()
        try:
            self._own.renew(now)
        finally:  # whatever befell what is said aloud: the parent's slot is memory of both
            self.steps.bind(self.record.writer.buffer, self.ledger)
            self.batches.bind(self.record.writer.buffer, anew=True)
        self._eager.renew()

    def _long_step(self, steps: int, now: int, duration: int, usual: int) -> None:
        """A clean step came far later than usual."""
        behind = self.batches.behind(steps - 1)
        self.ledger.marks.long_step(steps, now, duration, usual, behind)


def _of_the_record(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
