"""The public functions of ``warmwatch``, and which agent is attached to this process.

``import warmwatch`` must load nothing of the agent: the monitor imports this package for the
record format. Functions import what they need when something is attached.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING

from warmwatch._version import __version__

if TYPE_CHECKING:
    from warmwatch.lifecycle.after_warm import Allowing, Recompile
    from warmwatch.lifecycle.attaching import Attached
    from warmwatch.shared.verdict import Judgement


attached: Attached | None = None


def _never() -> bool:
    return False


is_traced: Callable[[], bool] = _never


def dynamo_came() -> None:
    """From here on Dynamo may trace us."""
    global is_traced
    from torch import compiler

    is_traced = compiler.is_dynamo_compiling


class Bracket(ContextDecorator):
    """The context manager that ``warmwatch.activity()`` gives; it may be entered again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: list[int] = []

    def __enter__(self) -> None:
        if is_traced() or attached is None:
            return
        self._begun.append(_begin(self._name))

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if is_traced() or not self._begun:
            return
        _end(self._name, self._begun.pop(), kind)

    def _recreate_cm(self) -> Bracket:
        """For each call of a decorated function one of its own: several threads may be in it."""
        return Bracket(self._name)


class Pause(ContextDecorator):
    """What ``warmwatch.evaluating()`` and ``saving()`` give; it may be entered again.

    ``what``: one of ``_pauses.WORDS``.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        if not is_traced():
            self._tell("pause_began")

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if not is_traced():
            self._tell("pause_ended")

    def _recreate_cm(self) -> Pause:
        """For each call of a decorated function one of its own, which Dynamo can enter."""
        return Pause(self._what)

    def _tell(self, word: str) -> None:
        try:
            if attached is not None:
                getattr(attached.agent.ledger, word)(self._what)
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            _report(error, self._what)


def _begin(name: str) -> int:
    """Tell of it; when."""
    from warmwatch.hooks.phases import CUSTOM  # here: see _current

    began = monotonic_ns()
    try:
        if attached is not None:
            attached.agent.listener.begin(CUSTOM, _what(name))
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        _report(error)
    return began


def _end(name: str, began: int, raised: type[BaseException] | None) -> None:
    from warmwatch.hooks.phases import CUSTOM

    try:
        if attached is not None:
            listener = attached.agent.listener
            failure = raised.__name__ if raised and issubclass(raised, Exception) else None
            values = {"name": _what(name)["name"], "seconds": (monotonic_ns() - began) / 1e9}
            try:
                listener.compilation(CUSTOM, {**values, "failure": failure} if failure else values)
            finally:
                listener.end(CUSTOM)
    except Exception as error:  # noqa: BLE001 - likewise
        _report(error)


def _what(name: object) -> dict[str, str]:
    from warmwatch.process.settings import plain_name

    text = name if isinstance(name, str) else type(name).__name__
    return {"name": plain_name(text), "kind": "custom"}


def _report(error: Exception, where: str = "activity") -> None:
    from warmwatch._guard import report

    report(where, error)


def attach(
    run: str | None = None,
    *,
    tokens_per_step: int | None = None,
    samples_per_step: int | None = None,
    flops_per_step: float | None = None,
    parameters: int | None = None,
    dtype: object = None,
    say: bool | None = None,
    baseline_steps: int | None = None,
    after_warm: str | None = None,
) -> None:
    """Attach the agent to this process; where it is attached, tell it more.

    Args:
        run: the run's name, 200 characters at most; else ``WARMWATCH_RUN``, the launcher's id, or
            the script's name. What cannot be printed in it becomes ``_``.
        tokens_per_step, samples_per_step: what one step of this rank is worth, a whole number from
            1 to 2**53 (NumPy's too, no tensor). Said anew, it holds from that step on.
        flops_per_step: floating-point operations of one step of this rank, for its MFU.
        parameters: of the model: without ``flops_per_step`` a step is worth 6 times the parameters
            times the tokens. Not said, those that the optimizers hold are taken, as an estimate.
        dtype: in which the GPU computes, ``torch.bfloat16`` or its name: against which peak the MFU
            is held. Not said, bfloat16 is.
        say: one line on stderr when a compilation takes long, when warm, for each recompile, and at
            the end, as ``WARMWATCH_SAY=1`` does. The logger ``warmwatch`` has the same lines where
            it was given a level.
        baseline_steps: run the first so many steps eagerly, from 2 to 10,000 of them, and compile
            after that: what compiling is worth is then known (``baseline`` in ``/status``). It
            changes the run, by ``torch.compiler.set_stance("force_eager")``; stances of your own
            win. Say it before the first step.

        after_warm: ``"warn"`` or ``"raise"`` where something compiles after the warm-up, as
            ``WARMWATCH_AFTER_WARM`` does. ``"raise"`` sets ``torch.compiler.set_stance(
            "fail_on_recompile")`` once the process is warm, unless a stance is set then.

    An argument that cannot be taken is left out with a warning; the others are taken.
    """
    from warmwatch.lifecycle import attaching  # here: see _current

    attaching.attach(
        __version__,
        {
            "run": run,
            "tokens_per_step": tokens_per_step,
            "samples_per_step": samples_per_step,
            "flops_per_step": flops_per_step,
            "parameters": parameters,
            "dtype": dtype,
            "say": say,
            "baseline_steps": baseline_steps,
            "after_warm": after_warm,
        },
    )


def detach() -> None:
    """Detach: every hook is taken away, and the rank shows as finished."""
    if attached is not None:
        from warmwatch.lifecycle import attaching  # here: likewise, and so it is loaded

        attaching.detach()


def step() -> None:
    """Mark the end of a step by hand, where the optimizer does not: inference, custom optimizers.

    From the first call on, the optimizer is no longer watched for steps. Call it outside of
    compiled functions.
    """
    try:
        if attached is not None:
            attached.agent.step()
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        _report(error, "step")


def activity(name: str) -> Bracket:
    """Compile activity of a compiler that Warmwatch does not know: ``with activity("my_dsl"):``.

    Around the calls that compile, and around nothing else: as long as it lasts the rank counts as
    compiling, in the phase ``other``, and a step that it touches is not clean. Also a decorator,
    for a function that does nothing but compile. It does nothing where nothing is attached, and
    inside a function that ``torch.compile`` compiles; there, put it around the call.

    Args:
        name: which compiler, 200 characters at most. It is recorded, and shown with the seconds.
    """
    return Bracket(name)


def evaluating() -> Pause:
    """An evaluation: ``with evaluating():`` around it, on the thread that trains. Also a decorator.

    As long as it lasts the rank is no stalled one, the sentence says what it does, and its time is
    no part of a step. What compiles in it is compile activity all the same. It ends at the next
    step at the latest. Inside of what ``torch.compile`` compiles it does nothing.
    """
    return Pause("evaluating")


def saving() -> Pause:
    """A checkpoint that ``torch.save`` and the distributed checkpoint do not write: likewise.

    Those are heard by themselves.
    """
    return Pause("saving")


def state() -> str | None:
    """This rank's state, such as ``"compiling"`` or ``"warm"``; ``None`` where not attached."""
    judgement = _judgement()
    return judgement.state.value if judgement else None


def is_warm() -> bool:
    """Whether nothing is left to wait for: the state is ``warm`` or ``eager``."""
    judgement = _judgement()
    return judgement is not None and judgement.warm


def is_compiling() -> bool:
    """Whether compile activity is in progress in this process now."""
    judgement = _judgement()
    return judgement is not None and judgement.compiling


def on_warm(callback: Callable[[], object]) -> None:
    """Call ``callback()`` once: at the first warm step, or immediately if it is warm already.

    It runs inside that step; an exception in it is reported, not raised. In a process that marks no
    steps it runs on a thread of Warmwatch's, once nothing has compiled for 30 s
    (``WARMWATCH_QUIET``), or inside of ``ready()``.
    """
    try:
        if attached is not None:
            attached.agent.warmth.on_warm(callback)
    except Exception as error:  # noqa: BLE001 - likewise
        _report(error, "on_warm")


def on_recompile(callback: Callable[[Recompile], object]) -> None:
    """Call ``callback(recompile)`` for each compilation after the warm-up.

    ``recompile`` has ``function``, ``file``, ``line``, ``reason``, ``category``, ``remedy`` and
    ``seconds``; ``str(recompile)`` is one sentence. It is called when the compilation is over, on
    the thread that compiled, and holds up that thread. Do not call compiled functions in it. An
    exception in it is reported, not raised.
    """
    try:
        if attached is not None:
            attached.agent.after_warm.add(callback)
    except Exception as error:  # noqa: BLE001 - likewise
        _report(error, "on_recompile")


def allow_compilation() -> Allowing:
    """Compilations that are intended: ``with allow_compilation():`` around them.

    On this thread they are neither reported as compiled after warm-up by ``on_recompile``, nor
    warned about, nor refused. Also a decorator. Other threads are not refused meanwhile either.
    """
    from warmwatch.lifecycle.after_warm import Allowing

    return Allowing()


def ready() -> None:
    """End the warm-up: this process is warm from now on, until something compiles again.

    For a server after its warm-up requests, or any program that marks no steps. What compiles
    later counts as compiled after warm-up, with its reason. The process is warm again once nothing
    has compiled for 30 s (``WARMWATCH_QUIET``), or after another ``ready()``.
    """
    try:
        if attached is not None:
            attached.agent.warmth.ready()
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        _report(error, "ready")


def _judgement() -> Judgement | None:
    try:
        if attached is not None:
            return attached.agent.warmth.judgement()
    except Exception as error:  # noqa: BLE001 - likewise
        _report(error, "state")
    return None
