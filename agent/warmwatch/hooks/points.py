"""Hook points: the types that hooks and the rest of the agent share.

A *hook point* is a place in PyTorch for a hook. A hook calls a :class:`Listener` and returns an
:class:`Installed`: how to remove it, and what can be read from PyTorch through it. Hooks do not
know each other. Nothing here imports PyTorch.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Literal

from warmwatch._guard import quietly


def _ignore(*_: Any) -> None:
    """The default of the functions that PyTorch calls directly."""


# What a hook posts, each with its values. The table in ``ledger/ledger.py`` has the handlers;
# without one, a fact is a line of the journal alone.
Fact = Literal[
    # a lookup or bypass of a compile cache: `cache`, `verdict`, `id`, `key`, the `lines` of the
    # key's components, the `reason` of a bypass
    "cache",
    # one that ended: `kind`, one of ``record.KINDS``, and what PyTorch recorded
    "compilation",
    # one more of what PyTorch does not count itself: `counter`, a field of
    # ``record.CompileCounts``, or one of a cache: ``cache_hits.triton``
    "counted",
    # CUDA graphs were skipped, in no compilation's record: `reason`, `name`, `file`, `line`
    "cudagraph_skip",
    # compilation may have been turned off or on: no values
    "disabled",
    # some calls of a function run eagerly: why (`setting`, see ``shared/fallbacks.py``), its place
    "fallback",
    # this thread compiles one of so many floating-point operations (`flops`, ``None``: unknown);
    # `excluded`: names of operations that are not counted
    "graph",
    # this thread pauses between steps: `what`, a key of ``ledger.pauses.COUNTERS``
    "pause_began",
    # it ended the last one of this kind that it began; `by_train`: ``model.train()`` did, which
    # ends only what ``evaluation_began`` began
    "pause_ended",
    # code that was compiled ahead of time runs: `kind`, one of ``record.PRECOMPILED``
    "precompiled",
    # `done` of `total` are done; `subject` is one of ``record.PROGRESS``
    "progress",
    # one begins: `reason`, `category`, and the place of what compiles
    "recompile",
    # a kernel spills `registers` of each thread to memory: `kernel`, `seconds` of a launch
    "spill",
    # a call of ``torch.compile``: its arguments; `trains`: every step calls what it was called with
    "wrapped",
]


class Listener:
    """Receives what the hooks report, on any thread. A method that is not overridden ignores it."""

    @property
    def on_step(self) -> Callable[[Any], None]:
        """The step function itself: called directly at every step, with the optimizer."""
        return _ignore

    @property
    def on_batch(self) -> Callable[[int], None]:
        """The batch hook itself: called when a batch arrives, with the time of its request."""
        return _ignore

    def created(self, optimizer: Any) -> None:
        """An optimizer is under construction: it has no parameters yet."""

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None:
        """Wrap all other agent code that ``on_step`` calls on rare occasions."""

    def begin(self, event: str, target: Mapping[str, Any] | None = None) -> None:
        """A compile event began on this thread.

        ``target``, if the hook has it: name, file, line and code of what is compiled, its kind and
        its compile id.
        """

    def end(self, event: str) -> None:
        """A compile event ended on this thread."""

    def outside_began(self, program: str) -> bool:  # noqa: ARG002 - for those that override it
        """This thread begins to wait for a compiler that it started as a process.

        Returns whether that is an activity of its own: no compile event is in progress, and the
        thread may hold up the training. ``end`` follows if so.
        """
        return False

    def post(self, fact: Fact, values: Mapping[str, Any]) -> None:
        """Report a fact of this thread, with PyTorch's own texts: they are redacted here."""

    def refusal(self, target: Mapping[str, Any]) -> Exception | None:  # noqa: ARG002 - as above
        """The exception to raise instead of compiling a kernel; ``None``: compile it."""
        return None

    def evaluation_began(self, model: Any) -> bool:  # noqa: ARG002 - for those that override it
        """``model`` was put into evaluation mode; returns whether an evaluation begins.

        The fact "pause_ended" follows if so.
        """
        return False

    def steps_marked(self) -> int:
        """Steps marked so far."""
        return 0

    def step_counted(
        self, flops: int | None, excluded: Sequence[str], dtypes: Mapping[str, int]
    ) -> None:
        """The graphs that a step calls have so many floating-point operations together.

        ``dtypes``: how many in each type, of ``values.DTYPES`` or ``OTHER_DTYPE``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed hook: how it is removed, and what it can read from PyTorch.

    Functions that a hook does not provide are ``None``.

    Attributes:
        uninstall: removes the hook.
        rearm: installs it again if PyTorch dropped it.
        late: modules that may be imported later, and what to install once they are; it raises
            ``HookPointAbsentError`` like an install function.
        counters: PyTorch's cumulative counters, by the slot's counter names (``graphs``,
            ``cache_hits.inductor_fx``...); they fall when a user clears them. Only rises during
            compile activity count.
        graph_breaks: count of graph breaks by PyTorch's reason; they fall in the same way.
        break_place: the place of a reason's last break: name, file and line, as far as known.
        asynchronous: whether a mode that swaps in compiled code later, without an event, is on.
        disabled: which of ``record.DISABLED`` turns compilation off now.
        uncompiled: calls of compiled functions that a stance ran eagerly, that one refused, and all
            calls under ``eager_on_recompile``.
        compiled_calls: calls that ran compiled during evaluations; its argument: count from now on.
        lacks: names found missing since the installation, by what has compiled.
        memory: bytes of CUDA's allocator, by ``record.MEMORY``, and its retries; empty if unknown.
        optimizers: whether the process made an optimizer of ``torch.optim``.
        precompiled: which of ``record.PRECOMPILED`` run, as far as the calling thread shows it.
    """

    uninstall: Callable[[], None] | None = None
    rearm: Callable[[], None] | None = None
    late: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    counters: Callable[[], Mapping[str, int]] | None = None
    graph_breaks: Callable[[], Mapping[str, int]] | None = None
    break_place: Callable[[str], Mapping[str, Any]] | None = None
    asynchronous: Callable[[], bool] | None = None
    lacks: Callable[[], Sequence[str]] | None = None
    disabled: Callable[[], str] | None = None
    memory: Callable[[], tuple[int, ...]] | None = None
    uncompiled: Callable[[], tuple[int, ...]] | None = None
    compiled_calls: Callable[[bool], int] | None = None
    optimizers: Callable[[], bool] | None = None
    precompiled: Callable[[], tuple[str, ...]] | None = None


class HookPointAbsentError(Exception):
    """This PyTorch does not have the hook point."""


@contextlib.contextmanager
def look_up() -> Iterator[None]:
    """A block in which a hook only looks up its hook point: a missing name is no error.

    Raises:
        HookPointAbsentError: an import or an attribute in the block is missing.
    """
    try:
        yield
    except (ImportError, AttributeError) as error:
        raise HookPointAbsentError(str(error)) from error


def torch_version() -> Any:
    """PyTorch's version, which compares with tuples and texts."""
    from torch import __version__ as version  # imported already: a hook is installed

    return version


def first_of(owner: Any, names: Sequence[str]) -> str:
    """The first of ``names`` that ``owner`` has: a function's names in PyTorch, newest first.

    Raises:
        AttributeError: it has none of them.
    """
    for name in names:
        if hasattr(owner, name):
            return name
    raise AttributeError(f"{owner.__name__}.{names[0]}")


class Replaced:
    """Attributes of modules and classes that a hook has replaced.

    Dynamo must not notice: it traces the original of a function, and skips the frames of ours.

    ``undo`` restores them: an inherited attribute is inherited again. An attribute that other code
    has wrapped meanwhile stays, with the hook inside: it reports nothing unless ``listening``.
    """

    def __init__(self) -> None:
        self.listening = True
        self._done: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, ours: Any) -> None:
        """Replace ``name`` of ``owner``, a module or a class."""
        self._done.append((owner, name, vars(owner).get(name, self), ours))
        if isinstance(ours, FunctionType):
            traced_as(ours, getattr(owner, name))
            skip_frames(ours)
        setattr(owner, name, ours)

    def put_all(self, wanted: Iterable[tuple[Any, str, Any]]) -> None:
        """Replace all of them, or none if one cannot be replaced."""
        with contextlib.ExitStack() as broken_off:
            broken_off.callback(self.undo)
            for owner, name, ours in wanted:
                self.put(owner, name, ours)
            broken_off.pop_all()

    def undo(self) -> None:
        """Restore the originals."""
        self.listening = False
        while self._done:
            owner, name, original, ours = self._done.pop()
            if vars(owner).get(name) is not ours:
                continue
            if original is self:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


INLINED = "_torchdynamo_inline"  # attribute with the function that Dynamo traces instead


class _Attributes(dict[str, Any]):
    """Attributes of a function, of which ``functools.wraps`` copies all but ``INLINED``.

    Dynamo would trace no code of another tool's wrapper that has it, too.
    """

    def __iter__(self) -> Iterator[str]:  # defined here, so ``dict.update`` calls ``keys()``
        return (name for name in super().__iter__() if name != INLINED)

    def keys(self) -> Any:
        return list(self)


def traced_as(ours: Any, original: Any) -> None:
    """Dynamo traces ``original`` instead of the function ``ours``.

    It guards the defaults of ``original`` where it reads them from ``ours``.
    """
    if isinstance(original, FunctionType):
        ours.__defaults__, ours.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    ours.__dict__ = _Attributes({**vars(ours), INLINED: original})


def original_of(value: Any) -> Any:
    """What Dynamo traces instead of ``value``, if that is a function of the agent's."""
    while hasattr(value, INLINED) and isinstance(vars(value), _Attributes):
        value = vars(value)[INLINED]
    return value


_unskipped: list[CodeType] = []  # until Dynamo is imported


def skip_frames(*functions: Callable[..., Any]) -> None:
    """Make Dynamo skip the frames of these functions, but not of what they call.

    ``torch._dynamo.skip`` would also mark each as disabled. ``functools.wraps`` of another tool
    copies such a mark, and Dynamo breaks the graph at it.
    """
    for function in functions:
        _unskipped.append(function.__code__)  # noqa: PERF401 - Dynamo would trace a comprehension
    skip = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    while skip is not None and _unskipped:
        skip(_unskipped.pop())


def untraced(where: str, function: Callable[..., Any], *args: Any) -> Any:
    """Like ``quietly``, with Dynamo off on this thread: for hook points inside compiled functions.

    ``torch.compiler.disable`` does the same, but exists only where Dynamo is imported.
    """
    dynamo = sys.modules.get("torch._C._dynamo.eval_frame")
    switch = getattr(dynamo, "set_eval_frame", None)
    traces = None if switch is None else switch(None)
    try:
        return quietly(where, function, *args)
    finally:
        if switch is not None and traces is not None:
            switch(traces)


skip_frames(skip_frames, untraced)  # an import in a compiled function calls the former

Install = Callable[[Listener], Installed]
