"""The agent: one for each attached process. It wires hooks, ledger, steps and the record together.

States of its own: made, armed (hooks in place), open (a record exists, or
could not be made and plain memory stands in for it). All calls from the training come through here
or through what it handed out, and none may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from warmwatch import _brackets as brackets
from warmwatch import record
from warmwatch._activity_watch import ActivityWatch, Look
from warmwatch._baseline import Baseline
from warmwatch._batches import make_batches
from warmwatch._config import Settings
from warmwatch._ending import End, at_childs_end
from warmwatch._family import child_name, is_data_worker, is_preparing
from warmwatch._guard import quietly, report, warn_once
from warmwatch._imports import FRAMES, is_imported
from warmwatch._ledger import Ledger
from warmwatch._own_record import OwnRecord
from warmwatch._parameters import Parameters
from warmwatch._phases import is_tracing
from warmwatch._reduction import words
from warmwatch._rounds import Rounds
from warmwatch._say import LONG_SECONDS, Announcer
from warmwatch._seams import Hooks, SeamAbsentError
from warmwatch._stacks import StackWriter
from warmwatch._steps import make_steps
from warmwatch._terminal import is_logged

if TYPE_CHECKING:
    from warmwatch.verdict import Judgement

_Moment = tuple[int, int]
_SINCE = record.COMPILE_INDEX["active_since_ns"]
_PHASE = record.COMPILE_INDEX["active_phase"]
_BEGUN = record.COMPILE_INDEX["begun"]
_OPENING_SECONDS = 2.0  # that a disk may take is less: a training waits for none
_OWN_OPTIONS = ("say", "baseline_steps")  # what the record does not hold as it was said


class Agent:
    """One attached process, and what its hooks tell: a ``Listener``.

    Args:
        settings: from the environment. version: the agent's own.
        options: what the user gave to ``attach()``: ``run``, ``tokens_per_step``...
        attached: when, on the monotonic and on the wall clock, in nanoseconds.
        quiet: there is no record before the first step or compile activity.
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
        self._quiet, self._armed = quiet, False
        self._opening = RLock()
        self._callbacks: list[Callable[[], object]] = []
        self._explicit = False
        self._words = words(full=settings.full_reasons)
        self._hooks = Hooks()
        self._baseline_steps = int(options.get("baseline_steps", 0))
        self._baseline: Baseline | None = None
        self.record = OwnRecord(
            settings, version=version, options=_of_the_record(options), attached=attached
        )
        self.ledger = Ledger(self.record, self._hooks, self._words.graph_break)
        self._parameters = Parameters()
        self._rounds = Rounds(
            lambda optimizer: self.steps.lead(optimizer), self._count, self._parameters.met
        )
        self.steps = make_steps(
            self.record.writer.buffer,
            self.ledger,
            is_step=self._is_step,
            warm_steps=settings.warm_steps,
            on_warm=self._came_warm,
            on_long=self._long_step,
            on_baseline=self._eager_step,
        )
        self.batches = make_batches(self.record.writer.buffer)
        self._announcer = self._announce(bool(options.get("say", settings.say)))
        self._stacks_after = settings.stacks
        self._watch = self._watched()
        self._mode = settings.mode
        self._tell_worth()

    def arm(self) -> None:
        """Dynamo is there: install the hooks, and speak unless this is somebody's child."""
        from warmwatch.hooks import SEAMS, hide

        self._hooks.install(SEAMS, self)
        self._impose()
        hide([*self._hooks.functions(), *FRAMES])
        brackets.dynamo_came()
        self._armed = True
        self._begin_baseline()
        if child_name() is None and not self._quiet:
            self.open()
        self.record.hooked(self._hooks.names, self._hooks.missing)

    def arm_beside(self, module: str) -> None:
        """Another compiler is there: listen to it. It says nothing before it has compiled."""
        from warmwatch.hooks import BESIDE, hide

        before = set(self._hooks.functions())
        self._hooks.install((BESIDE[module],), self)
        if is_imported("torch._dynamo"):
            hide([one for one in self._hooks.functions() if one not in before])
        self.record.hooked(self._hooks.names, self._hooks.missing)

    # What the hooks tell.

    @property
    def on_step(self) -> Callable[[Any, Any, Any], None]:
        """The optimizers' post hook."""
        return self.steps.on_step

    @property
    def on_batch(self) -> Callable[[int], None]:
        """Told of each batch that a DataLoader hands out."""
        return self.batches.on_batch

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None:
        """Wrap what the post hook calls of ours."""
        self.steps.wrap_rare(wrap)

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        """A compile event began on this thread."""
        self._hooks.rearm()
        if not self.record.opened and (is_tracing(event) or child_name() is None):
            self.open()
        self.ledger.begin(event, of)
        self._watch.begun()

    def end(self, event: str) -> None:
        """A compile event ended on this thread."""
        self.ledger.end(event)
        self._watch.ended()

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """This thread begins a recompile."""
        self.ledger.recompile(self._words.recompile(reason), category, where)

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation ended on this thread."""
        if reason := values.get("reason"):
            values = {**values, "reason": self._words.recompile(reason)}
        if skip := values.get("cudagraph_skip"):
            values = {**values, "cudagraph_skip": self._words.graph_break(skip)}
        self._parameters.compiled(values.get("parameters", 0))
        self.ledger.compilation(kind, values)
        self._announcer.compiled(kind, values)

    def cached(self, cache: str, *, hit: bool) -> None:
        """A cache that PyTorch does not count was asked."""
        self.ledger.cached(cache, hit=hit)

    def cache_asked(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """A compile cache was asked: of a bypass the reason is told, reduced."""
        reason = values.get("reason")
        told = self._words.graph_break(str(reason)) if reason else None
        self.ledger.cache_asked(cache, verdict, {**values, "reason": told})

    def save_began(self) -> None:
        """This thread began to save."""
        self.ledger.pause_began("saving")

    def save_ended(self) -> None:
        """This thread ended what it began to save last."""
        self.ledger.pause_ended("saving")

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""
        self.ledger.fallback(values)
        self._announcer.fallback(values)

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were left out: the reason is told, reduced."""
        self.ledger.cudagraph_skipped(self._words.graph_break(reason), where)

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program handed something to ``torch.compile``."""
        self.ledger.wrapped(way)

    def progress(self, of: str, done: int, total: int) -> None:
        """So many of what the activity counts are done."""
        self.ledger.progress(of, done, total)

    def turned(self) -> None:
        """Compilation was perhaps turned off, or on again."""
        self.ledger.turned()

    def error(self, where: str, error: Exception) -> None:
        """Something of ours failed: the guard's sink."""
        self.ledger.error(where, self._words.error(error))

    # What the API asks.

    def pause_began(self, what: str) -> None:
        """The user's program, or its framework, began to evaluate or to save."""
        self.ledger.pause_began(what)

    def pause_ended(self, what: str) -> None:
        """It ended what it began last of it."""
        self.ledger.pause_ended(what)

    def step(self) -> None:
        """An explicit step mark; the first one ends the watching of the optimizer."""
        if not self._explicit:
            self.marked_by_hand()
            if self._rounds.leader:
                return  # the optimizer has marked this very step already
        self.steps.on_step(None, (), {})

    def marked_by_hand(self, optimizers: Iterable[Any] = ()) -> None:
        """Steps are marked explicitly from here on, and none was yet.

        ``optimizers``: those of the training, which are not asked for their parameters any more.
        """
        self.open()
        for optimizer in optimizers:
            self._parameters.met(optimizer)
        self.record.has_parameters(self._parameters.seen)
        self._hooks.uninstall("optimizer")
        self.steps.lead(id(None))
        self._explicit = True  # last: a signal handler may have raised before

    def update(self, options: Mapping[str, Any]) -> None:
        """The user gave more options; a new value replaces the old one."""
        self.record.update(_of_the_record(options))
        self._tell_worth()
        if "baseline_steps" in options:
            self._baseline_steps = options["baseline_steps"]
            self._begin_baseline()
        say = options.get("say", self._announcer.shown)
        if say != self._announcer.shown:
            self._announcer.shown = say
            self._watch.stop()
            self._watch = self._watched()
            self._watch.begun()  # what is in progress goes on

    def judgement(self) -> Judgement:
        """This process's own state, by the same rules and from the same bytes as the monitor's."""
        from warmwatch import verdict  # here: it costs a tenth of the whole import

        slot = self.record.image()
        facts = verdict.Facts(
            attached_ns=slot.header.attached_ns,
            warm_steps=slot.header.warm_steps,
            steps=slot.steps,
            compile=slot.compile,
            median_step_ns=record.quantile_ns(slot.clean_bins, 0.5),
            longest_step_ns=record.longest_ns(slot.clean_bins),
            last_batch_ns=slot.steps.last_batch_ns,
            baseline_steps=slot.identity.baseline_steps or 0,
        )
        return verdict.judge(facts, monotonic_ns())

    def on_warm(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` once: at the first warm step, or now where it is warm already."""
        self._callbacks.append(callback)
        if self.judgement().warm:
            self._call_back()

    # Life and death.

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
        if self.record.opened or is_preparing() or is_data_worker():
            return
        graphs = self._hooks.counters().get("graphs", 0)
        try:
            self.record.open(self._hooks.names, self._hooks.missing, graphs_before=graphs)
        finally:  # a signal handler may raise while a disk is waited for: it is made all the same
            self.ledger.opened(graphs)
            self.steps.bind(self.record.writer.buffer, self.ledger)
            self.batches.bind(self.record.writer.buffer)
            at_childs_end(self.finish)

    def speak(self) -> None:
        """It is no longer ``quiet``."""
        self._quiet = False
        if self._armed and child_name() is None:
            self.open()

    def finish(self, end: End, *, leaving: bool = False) -> None:
        """The process ends. Nothing is said by one that had nothing to say.

        ``leaving``: Python itself ends, with no other word.
        """
        if self.record.visible:
            self.ledger.exit(end)
            self._announcer.ended(end)
            self.record.flush(leaving=leaving)

    def detach(self) -> None:
        """Take every hook away and let go of the record."""
        if self._baseline is not None and not self._baseline.over:
            quietly("baseline", self._baseline.end)
        self._hooks.uninstall_all()
        self._watch.stop()
        self.finish(End(how="detached"))
        self.record.close()

    def forked(self, now: _Moment) -> None:
        """In a forked child: the record is the parent's, and so is what it says."""
        self._explicit, self._opening = False, RLock()
        self.record = self.record.renewed(now)
        self.ledger = Ledger(self.record, self._hooks, self._words.graph_break)
        self._rounds.renew()
        self.steps.bind(self.record.writer.buffer, self.ledger)
        if self._baseline is not None and (renewed := self._baseline.renewed()):
            self._hold(renewed)
        self.batches.bind(self.record.writer.buffer, anew=True)
        self._announcer = self._announce(self._announcer.shown)
        self._watch = self._watched()  # the parent's thread is not here
        self._tell_worth()

    # Inside.

    def _announce(self, shown: bool) -> Announcer:
        own = self.record
        return Announcer(shown=shown, slot=own.image, rank=lambda: own.speaks_for)

    def _watched(self) -> ActivityWatch:
        """A watch over what this ledger knows to be in progress."""
        words, own = self.ledger.words, self.record
        looks = [Look(after=LONG_SECONDS, act=self._announcer.long)]
        if self._stacks_after is not None:
            stacks = StackWriter(
                phase=lambda: words[_PHASE],
                threads=self.ledger.compiling,
                place=lambda: own.writer.place,
            )
            looks.append(Look(after=self._stacks_after, act=stacks.write, again=True))
        return ActivityWatch(lambda: words[_SINCE], looks if self._announces() else looks[1:])

    def _announces(self) -> bool:
        return self._announcer.shown or is_logged()

    def _tell_worth(self) -> None:
        if worth := self.record.worth:
            self.ledger.worth(worth)

    def _impose(self) -> None:
        """Have everything compiled in the mode that ``warmwatch modes`` asks for, if it does."""
        if self._mode is None:
            return
        from warmwatch.hooks.imposed_mode import imposing

        self._hooks.install((("imposed_mode", imposing(self._mode)),), self)
        if "imposed_mode" in self._hooks.missing:
            warn_once(f"this PyTorch has no place where the mode {self._mode!r} can be imposed")

    def _begin_baseline(self) -> None:
        """Run the first steps eagerly, where the user asked for that and it can be done."""
        steps = self._baseline_steps
        if not steps or not self._armed or self._baseline or is_preparing() or is_data_worker():
            return
        asked = f"attach(baseline_steps={steps}) is left out: "
        if self._count() or self.ledger.words[_BEGUN]:
            warn_once(asked + "a step was made, or something compiled; say it before the first")
            return
        try:
            from warmwatch.hooks.stance import EagerStance

            if "disabled" not in self._hooks.names:  # by which stances are heard
                raise SeamAbsentError("torch._dynamo.decorators._set_stance")
            self._hold(Baseline(steps, EagerStance()))
        except SeamAbsentError as error:
            warn_once(f"{asked}this PyTorch has no torch.compiler.set_stance ({error})")
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            report("baseline", error)
            warn_once(f"{asked}the stance cannot be set ({error})")

    def _hold(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self.ledger.on_purpose(baseline.stance.holds)
        self.ledger.turned()
        self.steps.baseline(baseline.steps)
        self.record.baseline(baseline.steps)

    def _eager_step(self, count: int, length: int) -> None:
        """One of the steps that were to run eagerly was marked."""
        baseline = self._baseline
        if baseline is None or baseline.over:
            return
        over = False
        try:
            over = baseline.step(count, length)
        except Exception as error:  # noqa: BLE001 - likewise
            report("baseline", error)
        finally:  # what cannot be ended, or is interrupted in that, is ended at the next step
            if not over:
                self.steps.baseline(max(count + 1, baseline.steps))
        if not over:
            return
        if baseline.median_ns is None:
            why = "a stance was set, or each of the steps compiled"
            warn_once(f"attach(baseline_steps=...) measured nothing: {why}")
        self.steps.baseline(count)
        self.record.baseline(count, baseline.median_ns)
        self.ledger.marks.baseline(count, baseline.median_ns)

    def _count(self) -> int:
        """Steps marked so far."""
        return self.record.steps()

    def _is_step(self, optimizer: Any) -> bool:
        """Asked about the first call of all, so the record is there before the first step."""
        self.open()
        is_step = self._rounds.is_step(optimizer)
        self.record.has_parameters(self._parameters.seen)
        return is_step

    def _long_step(self, steps: int, now: int, duration: int, usual: int) -> None:
        """A clean step came far later than usual."""
        behind = self.batches.behind(steps - 1)
        self.ledger.marks.long_step(steps, now, duration, usual, behind)

    def _came_warm(self) -> None:
        """K clean steps are marked, which is not yet warm where something compiles aside."""
        if (self._callbacks or self._announces()) and self.judgement().warm:
            self._announcer.warm()
            self._call_back()

    def _call_back(self) -> None:
        """It is warm: tell those who asked for it."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it would surface inside optimizer.step()
                report("on_warm", error)
                warn_once(f"the on_warm callback {callback!r} raised {error!r}")


def _of_the_record(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
