"""Whether this process is warm, and what happens then: callbacks of ``on_warm``, and compilations
after the warm-up reported to callbacks, reported as a warning, or refused.

All of that is off by default. PyTorch's stance ``fail_on_recompile`` refuses what Dynamo would
compile. It raises at the user's call, before anything is compiled. Stances do not apply to the
user's own Triton kernels; for these the wrapper around Triton's compiler raises. This is the only
case in which the agent raises into a training, and only ``after_warm="raise"`` enables it.

Callbacks and warnings run on the thread that compiled, once its activity has ended. Inside the
activity they could compile, or deadlock with the compilation.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from warmwatch._guard import pass_on, quietly, report, warn_once
from warmwatch.hooks.dynamo.disabled import EagerStance, present
from warmwatch.hooks.points import HookPointAbsentError
from warmwatch.lifecycle.allowing import allowed, allowing
from warmwatch.shared import record, verdict
from warmwatch.shared.advice import advice
from warmwatch.shared.phrases import called_from, place
from warmwatch.shared.reasons import plain
from warmwatch.shared.record import COMPILE_INDEX as AT

if TYPE_CHECKING:
    from warmwatch.lifecycle.process_state import ProcessState

# The other kinds are compiled as a consequence of these.
_REPORTED = frozenset({"forward", "triton", "cpp_extension", "custom", "outside"})


class CompiledAfterWarmupError(RuntimeError):
    """A Triton kernel would compile after the warm-up, and ``after_warm="raise"`` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile:
    """A compilation after the warm-up, as ``warmwatch.on_recompile`` reports it.

    Attributes:
        kind: ``forward``, ``triton``, ``cpp_extension``, ``custom`` or ``outside``.
        function, file, line: the compiled function; ``None`` if unknown.
        reason: PyTorch's reason; ``None`` if the function was not compiled before.
        category: category of the reason, such as ``shape``.
        remedy: how to avoid it, if known.
        seconds: duration.
        caller: ``file:line`` of the user's call, if the function belongs to a library.
        of_class: the class of the module or optimizer whose code it is.
    """

    kind: str
    function: str | None = None
    file: str | None = None
    line: int | None = None
    reason: str | None = None
    category: str | None = None
    remedy: str | None = None
    seconds: float | None = None
    caller: str | None = None
    of_class: str | None = None

    def __str__(self) -> str:
        what = place(self.function, self.file, self.line) or f"a {self.kind} compilation"
        why = (
            plain(self.reason or "", self.category, self.of_class)
            or self.category
            or "not compiled before"
        )
        from_where = f"{called_from(self.caller)}," if self.caller is not None else ""
        sentence = f"{what}{from_where} compiled after the warm-up: {why}"
        return f"{sentence}. {self.remedy}" if self.remedy else sentence


class AfterWarm:
    """What this process does about compilations after the warm-up.

    Attributes:
        was_warm: the process has been warm.
        mode: one of ``settings.AFTER_WARM``, or ``None``.
    """

    def __init__(self, process: ProcessState, mode: str | None) -> None:
        self._process, self.mode = process, mode
        self._callbacks: list[Callable[[Recompile], object]] = []
        self._waiting: list[Recompile] = []
        self._stance: Any = None
        self.was_warm = False

    def add(self, callback: Callable[[Recompile], object]) -> None:
        """Call ``callback`` for every compilation after the warm-up."""
        self._callbacks.append(callback)

    def _applies(self) -> bool:
        """Whether a warm-up has ended, and this thread is not inside ``allow_compilation()``."""
        counters = self._process.ledger.block
        return bool(counters[AT["warmups"]] or counters[AT["settled"]]) and not allowed.depth

    def compiled(self, values: Mapping[str, Any]) -> None:
        """Queue the report of a compilation that ended on this thread; its activity may go on."""
        kind, reports = values["kind"], self._callbacks or self.mode is not None
        if not reports or kind not in _REPORTED or not self._applies():
            return
        if "at_limit" in values:  # nothing was compiled: the function falls back to eager
            return
        self._waiting.append(
            Recompile(
                kind=kind,
                function=values.get("name"),
                file=values.get("file"),
                line=values.get("line"),
                reason=values.get("reason"),
                category=values.get("category"),
                remedy=advice(
                    values.get("category"),
                    kind,
                    values.get("reason"),
                    dynamic=values.get("dynamic"),
                    last_batch=values.get("last_batch"),
                    parameter=values.get("parameter"),
                    anew="anew" in values,
                ),
                seconds=values.get("seconds"),
                caller=values.get("caller"),
                of_class=values.get("class"),
            )
        )

    def activity_ended(self) -> None:
        """Report the queued compilations, unless an activity is still in progress."""
        if not self._waiting or self._process.ledger.block[AT["active_since_ns"]]:
            return
        waiting, self._waiting = self._waiting, []
        for recompile in waiting:
            if self.mode is not None:
                warn_once(str(recompile))
            for callback in tuple(self._callbacks):
                allowed.depth += 1  # what it compiles would call it again, without an end
                try:
                    callback(recompile)
                except Exception as error:  # noqa: BLE001 - it would surface in the compiled call
                    report("on_recompile", error)
                    warn_once(f"the on_recompile callback {callback!r} raised {error!r}")
                finally:
                    allowed.depth -= 1

    def refusal(self, values: Mapping[str, Any]) -> Exception | None:
        """The error to raise instead of compiling a kernel; ``None``: compile it."""
        if self.mode != "raise" or allowing or not self._applies():
            return None
        where = {name: values.get(name) for name in ("file", "line")}
        recompile = Recompile(kind="triton", function=values.get("name"), **where)
        return CompiledAfterWarmupError(
            f"{recompile}. attach(after_warm='raise') refuses it; put the call into "
            "warmwatch.allow_compilation() if it is intended"
        )

    def refuse(self) -> None:
        """Refuse what Dynamo would compile, now that the process is warm."""
        self.was_warm = True
        if self.mode != "raise" or self._stance is not None or allowing:
            return
        try:
            if (stance := present()) != "default":
                why = f"your stance {stance!r} stays in effect"
                warn_once(f"after_warm='raise' refuses no recompile of torch.compile: {why}")
                return
            self._stance = EagerStance("fail_on_recompile")
        except HookPointAbsentError as error:
            warn_once(f"after_warm='raise': this PyTorch has no torch.compiler.set_stance: {error}")
        except RuntimeError as error:  # a stance cannot be set inside a compiled function
            pass_on(error)
            warn_once(f"after_warm='raise' refuses no recompile of torch.compile: {error}")
        if allowing:  # another thread entered meanwhile, and found no stance to reset
            self.allow()

    def allow(self) -> None:
        """Reset the stance: on detach, or inside ``allow_compilation()``."""
        stance, self._stance = self._stance, None
        if stance is not None:
            quietly("after_warm", stance.restore)

    def renew(self) -> None:
        """Reset in a forked child, which inherits the stance and has not been warm."""
        allowing.intersection_update({get_ident()})  # only this thread exists here
        self.allow()
        self.was_warm, self._waiting = False, []


class WarmCallbacks:
    """Judges this process, and calls the callbacks of ``on_warm``.

    ``open_record``: creates the record if there is none.
    """

    def __init__(
        self, process: ProcessState, open_record: Callable[[], None], after_warm: AfterWarm
    ) -> None:
        self._process, self._open, self._after_warm = process, open_record, after_warm
        self._callbacks: list[Callable[[], object]] = []

    def judgement(self) -> verdict.Judgement:
        """The state of this process, from the same function and bytes as the monitor's."""
        slot = self._process.record.image()
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
        """Call ``callback`` once: at the first warm step, or immediately if already warm.

        In a process without steps, the thread of the quiet watch calls it.
        """
        self._callbacks.append(callback)
        if self.judgement().warm:
            self._call_back()

    def ready(self) -> None:
        """End the warm-up: the program called ``warmwatch.ready()``."""
        self._open()
        self._process.ledger.post("settled", {"by": "ready"})
        self.check()

    def quiet_elapsed(self) -> None:
        """End the warm-up of a process without steps if it has been quiet for long enough."""
        judged = self.judgement()
        if judged.warm_by == "quiet":
            begun = self._process.ledger.block[AT["begun"]]
            values = {"by": "quiet", "at": judged.since_ns, "activities": begun}
            self._process.ledger.post("settled", values)
            self.check()

    def check(self) -> None:
        """Act if the process is warm. K clean steps do not suffice: another thread may compile."""
        needed = self._callbacks or self._process.announces or self._after_warm.mode == "raise"
        if needed and self.judgement().warm:
            self._after_warm.refuse()
            self._process.announcer.warm()
            self._call_back()

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # noqa: BLE001 - it would surface inside optimizer.step()
                report("on_warm", error)
                warn_once(f"the on_warm callback {callback!r} raised {error!r}")
