"""The public functions of ``warmwatch``, and the agent that is attached to this process.

``import warmwatch`` must not load the agent: the monitor imports this package for the record
format. So functions import the agent's modules when they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING

from warmwatch._version import __version__
from warmwatch.lifecycle.allowing import begin_allowing, end_allowing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import ParamSpec, TypeVar

    from warmwatch.lifecycle.agent import Agent
    from warmwatch.lifecycle.attaching import Attached
    from warmwatch.lifecycle.warmth import Recompile
    from warmwatch.shared.verdict import Judgement

    P = ParamSpec("P")
    T = TypeVar("T")


attached: Attached | None = None


def _never() -> bool:
    return False


is_traced: Callable[[], bool] = _never


def _dynamo_imported() -> None:
    """Dynamo may trace the functions here from now on, so they check for it."""
    global is_traced
    from torch import compiler  # imported already: it imported Dynamo

    is_traced = compiler.is_dynamo_compiling


class _Decorator:
    """As ``contextlib.ContextDecorator``, whose file PyTorch 2.6 does not trace."""

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def inner(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._again():
                return function(*args, **kwargs)

        return inner

    def _again(self) -> AbstractContextManager[None]:
        """Another instance for each call of a decorated function: several threads may run it, and
        Dynamo can enter it."""
        raise NotImplementedError


class Activity(_Decorator):
    """The context manager of ``warmwatch.activity()``; reentrant."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: list[int] = []

    def __enter__(self) -> None:
        if is_traced() or attached is None:
            return
        self._begun.append(monotonic_ns())
        _with_agent("activity", lambda agent: agent.activity_began(self._name))

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if is_traced() or not self._begun:
            return
        seconds = (monotonic_ns() - self._begun.pop()) / 1e9
        _with_agent("activity", lambda agent: agent.activity_ended(self._name, seconds, kind))

    def _again(self) -> Activity:
        return Activity(self._name)


class Pause(_Decorator):
    """The context manager of ``warmwatch.evaluating()`` and ``saving()``; reentrant.

    ``kind``: a key of ``ledger.pauses.COUNTERS``.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        if not is_traced():
            self._post("pause_began")

    def __exit__(self, *_raised: object) -> None:
        if not is_traced():
            self._post("pause_ended")

    def _post(self, fact: str) -> None:
        _with_agent(self._kind, lambda agent: agent.ledger.post(fact, {"what": self._kind}))

    def _again(self) -> Pause:
        return Pause(self._kind)


class AllowCompilation(_Decorator):
    """The context manager of ``warmwatch.allow_compilation()``; reentrant."""

    def __enter__(self) -> None:
        if is_traced():
            return
        if begin_allowing():
            _with_agent("after_warm", lambda agent: agent.after_warm.allow())

    def __exit__(self, *_raised: object) -> None:
        if is_traced():
            return
        if end_allowing():
            _with_agent("after_warm", lambda agent: agent.update_refusal())

    def _again(self) -> AllowCompilation:
        return AllowCompilation()


def _with_agent(where: str, function: Callable[[Agent], T]) -> T | None:
    """``function(agent)``; ``None`` if not attached, or if it raises, which is reported.

    A compiled function may call it after a graph break: Dynamo is off meanwhile.
    """
    if (item := attached) is None:
        return None
    # a name of its own: through an attribute of `item`, Dynamo would trace past it
    from warmwatch.hooks.points import untraced

    result: T | None = untraced(where, lambda: function(item.agent))
    return result


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
    """Attach the agent to this process. If it is attached already, update its options.

    Args:
        run: name of the run, at most 200 characters. Defaults to ``WARMWATCH_RUN``, the launcher's
            id, or the script's name. Characters that cannot be printed become ``_``.
        tokens_per_step, samples_per_step: work of one step of this rank, an integer from 1 to
            2**53 (NumPy integers too, no tensors). A new value applies from that step on.
        flops_per_step: floating-point operations of one step of this rank, for its MFU.
        parameters: number of model parameters. Without ``flops_per_step``, a step has 6 times
            parameters times tokens operations. Defaults to the parameters that the optimizers
            hold, as an estimate.
        dtype: the type that the GPU computes in, ``torch.bfloat16`` or its name. It selects the
            peak for the MFU. Defaults to bfloat16.
        say: print one line on stderr for each long compilation, when warm, for each recompile,
            and at the end, as ``WARMWATCH_SAY=1`` does. The logger ``warmwatch`` gets the same
            lines if it has a level.
        baseline_steps: run the first 2 to 10,000 steps eagerly and compile after that, to measure
            the speedup (``baseline`` in ``/status``). This changes the run: it calls
            ``torch.compiler.set_stance("force_eager")``. Your own stances take precedence.
            Pass it before the first step.
        after_warm: ``"warn"`` or ``"raise"`` when something compiles after the warm-up, as
            ``WARMWATCH_AFTER_WARM`` does. ``"raise"`` calls ``torch.compiler.set_stance(
            "fail_on_recompile")`` once the process is warm, unless a stance is set then.

    An invalid argument is ignored with a warning; the others apply.
    """
    _attach(
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
        }
    )


def attach_launched() -> None:
    """Attach under ``warmwatch run``: this process may not train at all."""
    _attach({}, deferred=True)


def _attach(options: dict[str, object], *, deferred: bool = False) -> None:
    global attached
    from warmwatch.lifecycle import attaching  # only a process that attaches loads the agent

    attached = attaching.attach(__version__, options, on_dynamo=_dynamo_imported, deferred=deferred)


def detach() -> None:
    """Detach: uninstall every hook. The rank shows as finished."""
    global attached
    item, attached = attached, None
    if item is not None:
        item.detach()


def step() -> None:
    """Mark the end of a step by hand, for inference or a custom optimizer.

    From the first call on, ``optimizer.step()`` no longer counts as a step. Call it outside
    compiled functions.
    """
    if (item := attached) is None:
        return
    try:
        item.agent.step()
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        item.report("step", error)


def activity(name: str) -> Activity:
    """Report compile activity of a compiler without a hook: ``with activity("my_dsl"):``.

    Put only the calls that compile inside it. While it lasts, the rank is compiling, in the phase
    ``other``, and a step that overlaps it is not clean. Also a decorator, for a function that only
    compiles. It does nothing if no agent is attached, and inside a function that
    ``torch.compile`` compiles; put it around the call of that function.

    Args:
        name: name of the compiler, at most 200 characters. It is recorded with the seconds.
    """
    return Activity(name)


def evaluating() -> Pause:
    """Mark an evaluation: ``with evaluating():``, on the thread that trains. Also a decorator.

    While it lasts, the rank is not stalled, the sentence reports an evaluation, and its time is
    not part of a step. Compilations inside it are compile activity as usual. It ends with the next
    step at the latest. It does nothing inside a function that ``torch.compile`` compiles.
    """
    return Pause("evaluating")


def saving() -> Pause:
    """Mark the saving of a checkpoint, as ``evaluating()`` marks an evaluation.

    Not needed for ``torch.save`` and ``torch.distributed.checkpoint``, which have hooks.
    """
    return Pause("saving")


def state() -> str | None:
    """The state of this rank, such as ``"compiling"`` or ``"warm"``; ``None`` if not attached."""
    judgement = _judgement()
    return judgement.state.value if judgement else None


def is_warm() -> bool:
    """Whether the state is ``warm`` or ``eager``: the speed now is the real speed."""
    judgement = _judgement()
    return judgement is not None and judgement.warm


def is_compiling() -> bool:
    """Whether compile activity is in progress in this process."""
    judgement = _judgement()
    return judgement is not None and judgement.compiling


def on_warm(callback: Callable[[], object]) -> None:
    """Call ``callback()`` once: at the first warm step, or immediately if already warm.

    It runs inside that step; an exception in it is reported, not raised. In a process without
    steps it runs on a thread of Warmwatch after 30 s without compilation (``WARMWATCH_QUIET``),
    or inside ``ready()``.
    """
    _with_agent("on_warm", lambda agent: agent.warmth.on_warm(callback))


def on_recompile(callback: Callable[[Recompile], object]) -> None:
    """Call ``callback(recompile)`` for each compilation after the warm-up.

    ``recompile`` has ``function``, ``file``, ``line``, ``reason``, ``category``, ``remedy`` and
    ``seconds``; ``str(recompile)`` is one sentence. The callback runs after the compilation on
    the thread that compiled, and blocks that thread. Do not call compiled functions in it; what
    compiles in it is not reported. An exception in it is reported, not raised.
    """
    _with_agent("on_recompile", lambda agent: agent.after_warm.add(callback))


def allow_compilation() -> AllowCompilation:
    """Mark intended compilations after the warm-up: ``with allow_compilation():``.

    On this thread, ``on_recompile`` and ``after_warm`` do not report or refuse them. Also a
    decorator. While it lasts, nothing is refused on other threads either.
    """
    return AllowCompilation()


def ready() -> None:
    """End the warm-up: this process is warm until something compiles again.

    For a server after its warm-up requests, or any program without steps. Later compilations count
    as compiled after the warm-up. The process is warm again after 30 s without compilation
    (``WARMWATCH_QUIET``), or after another ``ready()``.
    """
    _with_agent("ready", lambda agent: agent.warmth.ready())


def _judgement() -> Judgement | None:
    return _with_agent("state", lambda agent: agent.warmth.judgement())
