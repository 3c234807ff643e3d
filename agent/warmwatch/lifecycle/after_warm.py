"""What compiles after the warm-up: reported to callbacks, as a warning, or refused.

Off by default. PyTorch's own stance ``fail_on_recompile`` refuses what Dynamo would compile, and
raises at the user's call, before anything is compiled. Triton's own kernels know no stance: there
the wrapper around Triton's compiler raises. It is the only case in which the agent raises into a
training, and the user asked for it.

Callbacks and warnings come once the activity is over, on the thread that compiled: within it they
could compile, or wait for what compiles.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warmwatch._guard import pass_on, quietly, report, warn_once
from warmwatch.hooks.points import HookPointAbsentError
from warmwatch.lifecycle import api
from warmwatch.shared.record import COMPILE_INDEX as AT

if TYPE_CHECKING:
    from warmwatch.lifecycle.process_state import ProcessState

_REPORTED = frozenset({"forward", "triton", "cpp_extension", "custom"})  # the rest follows these


class _Allowed(threading.local):
    depth = 0


_allowed = _Allowed()
# The threads within ``allow_compilation()``. A stance holds for the whole process, so while there
# is one, nothing is refused on any thread.
_allowing: set[int] = set()


class CompiledAfterWarmupError(RuntimeError):
    """A Triton kernel would compile after the warm-up, and ``after_warm="raise"`` was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile:
    """A compilation after the warm-up, as ``warmwatch.on_recompile`` reports it.

    Attributes:
        function: its name; file, line: where it is. ``None`` where PyTorch does not say.
        kind: ``forward``, ``triton``, ``cpp_extension`` or ``custom``.
        reason: why, in PyTorch's words; ``None`` if nothing of it was compiled before.
        category: of the reason, such as ``shape``. remedy: what to do, where that is known.
        seconds: how long it took.
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

    def __str__(self) -> str:
        from warmwatch.shared.phrases import called_from, place
        from warmwatch.shared.reasons import plain

        what = place(self.function, self.file, self.line) or f"a {self.kind} compilation"
        why = plain(self.reason or "", self.category) or self.category or "not compiled before"
        from_where = f"{called_from(self.caller)}," if self.caller is not None else ""
        said = f"{what}{from_where} compiled after the warm-up: {why}"
        return f"{said}. {self.remedy}" if self.remedy else said


class AfterWarm:
    """Of one process: who is told, and whether compilations are refused.

    Attributes:
        was_warm: the process was warm, and compilations are refused if ``mode`` says so.
        mode: of ``_arguments.AFTER_WARM``, or ``None``.
    """

    def __init__(self, own: ProcessState, mode: str | None) -> None:
        self._own, self.mode = own, mode
        self._callbacks: list[Callable[[Recompile], object]] = []
        self._waiting: list[Recompile] = []
        self._stance: Any = None
        self.was_warm = False

    def add(self, callback: Callable[[Recompile], object]) -> None:
        """Call ``callback`` for each compilation after the warm-up."""
        self._callbacks.append(callback)

    def _is_over(self) -> bool:
        """Whether a warm-up has ended, and the program did not allow what comes now."""
        words = self._own.ledger.words
        return bool(words[AT["warmups"]] or words[AT["settled"]]) and not _allowed.depth

    def compiled(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation ended on this thread; its activity may go on."""
        wanted = self._callbacks or self.mode is not None
        if not wanted or kind not in _REPORTED or not self._is_over():
            return
        from warmwatch.shared.advice import advice

        self._waiting.append(
            Recompile(
                kind=kind,
                function=values.get("name"),
                file=values.get("file"),
                line=values.get("line"),
                reason=values.get("reason"),
                category=values.get("category"),
                remedy=advice(values.get("category"), kind),
                seconds=values.get("seconds"),
                caller=values.get("caller"),
            )
        )

    def activity_ended(self) -> None:
        """Something ended on this thread: report what compiled, if that was all."""
        if not self._waiting or self._own.ledger.words[AT["active_since_ns"]]:
            return
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if self.mode is not None:
                warn_once(str(one))
            for callback in tuple(self._callbacks):
                try:
                    callback(one)
                except Exception as error:  # noqa: BLE001 - it would surface in the compiled call
                    report("on_recompile", error)
                    warn_once(f"the on_recompile callback {callback!r} raised {error!r}")

    def refusal(self, values: Mapping[str, Any]) -> Exception | None:
        """What to raise instead of compiling a kernel; ``None``: compile it."""
        if self.mode != "raise" or _allowing or not self._is_over():
            return None
        where = {name: values.get(name) for name in ("file", "line")}
        one = Recompile(kind="triton", function=values.get("name"), **where)
        return CompiledAfterWarmupError(
            f"{one}. attach(after_warm='raise') refuses it; put the call into "
            "warmwatch.allow_compilation() if it is intended"
        )

    def warm(self) -> None:
        """The process is warm: refuse what Dynamo would compile from now on."""
        self.was_warm = True
        if self.mode != "raise" or self._stance is not None or _allowing:
            return
        from warmwatch.hooks.dynamo.stance import EagerStance, present

        try:
            if (now := present()) != "default":
                why = f"the stance {now!r} is set, and stays"
                warn_once(f"after_warm='raise' refuses no recompile of torch.compile: {why}")
                return
            self._stance = EagerStance("fail_on_recompile")
        except HookPointAbsentError as error:
            warn_once(f"after_warm='raise': this PyTorch has no torch.compiler.set_stance: {error}")
        except RuntimeError as error:  # within a compiled function no stance can be set
            pass_on(error)
            warn_once(f"after_warm='raise' refuses no recompile of torch.compile: {error}")
        if _allowing:  # another thread has entered one meanwhile, and found no stance to give back
            self.give_back()

    def give_back(self) -> None:
        """Refuse no more: a detach, or compilations that are intended."""
        stance, self._stance = self._stance, None
        if stance is not None:
            quietly("after_warm", stance.give_back)

    def renew(self) -> None:
        """In a forked child, which inherits the stance and was not warm yet."""
        _allowing.intersection_update({threading.get_ident()})  # the other threads are not here
        self.give_back()
        self.was_warm, self._waiting = False, []


class Allowing(ContextDecorator):
    """What ``warmwatch.allow_compilation()`` gives; it may be entered again."""

    def __enter__(self) -> None:
        if api.is_traced():
            return
        _allowed.depth += 1
        _allowing.add(threading.get_ident())
        if _allowed.depth == 1 and api.attached is not None:
            quietly("after_warm", api.attached.agent.after_warm.give_back)

    def __exit__(self, *_raised: object) -> None:
        if api.is_traced():
            return
        _allowed.depth -= 1
        if _allowed.depth:
            return
        _allowing.discard(threading.get_ident())
        if not _allowing and api.attached is not None:
            quietly("after_warm", api.attached.agent.refuse_again)

    def _recreate_cm(self) -> Allowing:
        return Allowing()
