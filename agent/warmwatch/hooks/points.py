"""Hook points: the types that hooks and the rest of the agent share.

A *hook point* is a place in PyTorch for a hook. A hook calls a :class:`Listener` and returns an
:class:`Installed`: how to remove it, and what can be read from PyTorch through it. Hooks do not
know each other. Nothing here imports PyTorch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from warmwatch._guard import report
from warmwatch.hooks.imports import ImportWatch

EVENT_NAMES = "event_names"


class Listener(Protocol):
    """Receives what the hooks report, on any thread."""

    @property
    def on_step(self) -> Callable[[Any, Any, Any], None]:
        """The optimizers' post hook itself: PyTorch calls it directly at every step."""

    @property
    def on_batch(self) -> Callable[[int], None]:
        """The batch hook itself: called when a batch arrives, with the time of its request."""

    def created(self, optimizer: Any) -> None:
        """An optimizer is under construction: it has no parameters yet."""

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None:
        """Wrap all other agent code that ``on_step`` calls on rare occasions."""

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        """A compile event began on this thread.

        ``of``, if the hook has it: name, file, line and code of what is compiled, its kind and its
        compile id.
        """

    def end(self, event: str) -> None:
        """A compile event ended on this thread."""

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """This thread begins a recompile; ``reason`` is PyTorch's text.

        ``where``: name, file and line.
        """

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation ended on this thread; ``kind`` is one of ``record.KINDS``."""

    def refusal(self, of: Mapping[str, Any]) -> Exception | None:
        """The exception to raise instead of compiling a kernel; ``None``: compile it."""

    def cached(self, cache: str, *, hit: bool) -> None:
        """A lookup in a cache that PyTorch does not count; ``cache`` is one of
        ``record.CACHES``."""

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """This thread looked up or bypassed a compile cache. ``values``: PyTorch's key, the lines
        of its components, the reason of a bypass.
        """

    def save_began(self) -> None:
        """This thread began to save a checkpoint, or a part of it."""

    def save_ended(self) -> None:
        """This thread ended the save that it began last."""

    def evaluation_began(self, model: Any) -> bool:
        """``model`` was put into evaluation mode; returns whether an evaluation begins."""

    def evaluation_ended(self) -> None:
        """A model was put back into training mode."""

    def cells_left(self) -> None:
        """The last running cell of the notebook has ended."""

    def cell_began(self) -> None:
        """A notebook cell began."""

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were skipped for ``reason``, PyTorch's text, which no compilation record has.
        ``where``: name, file and line, as far as PyTorch reports them.
        """

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program called ``torch.compile``; ``way``: the arguments, as journal
        values."""

    def progress(self, of: str, done: int, total: int) -> None:
        """``done`` of ``total`` are done; ``of`` is one of ``record.PROGRESS``."""

    def precompiled(self, kind: str) -> None:
        """Code that was compiled ahead of time runs; ``kind``: one of ``record.PRECOMPILED``."""

    def graph_counted(self, flops: int | None, excluded: Sequence[str]) -> None:
        """This thread compiles a graph of so many floating-point operations, ``None`` if unknown.

        ``excluded``: names of operations that are not counted.
        """

    def steps_marked(self) -> int:
        """Steps marked so far."""

    def step_counted(self, flops: int | None, excluded: Sequence[str]) -> None:
        """The graphs that a step calls have so many floating-point operations together."""

    def turned(self) -> None:
        """Compilation may have been disabled or enabled: check it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed hook: how it is removed, and what it can read from PyTorch.

    Functions that a hook does not provide are ``None``.

    Attributes:
        uninstall: removes the hook.
        rearm: installs it again if PyTorch dropped it.
        late: modules that may be imported later, and what to install once they are.
        counters: PyTorch's cumulative counters, by the slot's counter names (``graphs``,
            ``cache_hits.inductor_fx``...); they fall when a user clears them.
        graph_breaks: count of graph breaks by PyTorch's reason; they fall in the same way.
        break_place: the place of a reason's last break: name, file and line, as far as known.
        asynchronous: whether a mode that swaps in compiled code later, without an event, is on.
        functions: agent functions that other code calls, of hook points that may precede Dynamo.
            They are hidden from Dynamo as soon as it is imported.
        disabled: which of ``record.DISABLED`` turns compilation off now.
        uncompiled: calls of compiled functions that a stance ran eagerly, and that it refused.
        compiled_calls: calls that ran compiled during evaluations; its argument: count from now on.
        lacks: names found missing since: some only show once something compiles.
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
    functions: Sequence[Callable[..., Any]] = ()
    lacks: Callable[[], Sequence[str]] | None = None
    disabled: Callable[[], str] | None = None
    memory: Callable[[], tuple[int, ...]] | None = None
    uncompiled: Callable[[], tuple[int, int]] | None = None
    compiled_calls: Callable[[bool], int] | None = None
    optimizers: Callable[[], bool] | None = None
    precompiled: Callable[[], tuple[str, ...]] | None = None


_MOST_CODES = 4096


class Compiling:
    """What each thread compiles with Dynamo, as far as it is known at the begin.

    Listeners join it with PyTorch's compilation record, so that all of them count alike.
    """

    def __init__(self) -> None:
        self._begun: dict[int, Mapping[str, Any]] = {}
        self._reasons: dict[int, dict[str, str]] = {}
        self._codes: dict[str, str] = {}  # by compile id

    def begun(self, thread: int, of: Mapping[str, Any]) -> None:
        """``thread`` begins to compile ``of``."""
        self._begun[thread] = of
        self._reasons.pop(thread, None)
        if of["id"] is not None and "code" in of:
            self._codes.pop(of["id"], None)  # ids restart after a reset: the latest must come last
            self._codes[of["id"]] = of["code"]
            if len(self._codes) > _MOST_CODES:
                self._codes.pop(next(iter(self._codes)), None)

    def code(self, compile_id: Any) -> str | None:
        """The code of the function that was last compiled with this id.

        Of a backward, PyTorch reports only the id.
        """
        return self._codes.get(compile_id)

    def recompile(self, thread: int, why: dict[str, str]) -> bool:
        """Whether what ``thread`` compiles now is a recompile for ``why``.

        The first compilation of another module of the same class is not: nothing has changed.
        """
        if "instance" in self._begun.get(thread, {}):
            return False
        self._reasons[thread] = why
        return True

    def circumstances(self, thread: int) -> dict[str, Any]:
        """``caller``, ``dynamic`` and ``again`` of what ``thread`` compiles, where known."""
        begun = self._begun.get(thread, {})
        return {key: begun[key] for key in ("caller", "dynamic", "again") if key in begun}

    def ended(self, thread: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """``values`` of a forward compilation that ended, with what is known since its begin.

        The reasons reported at the begin replace the single one in PyTorch's record.
        """
        ended = dict(values)
        ended.update(self.circumstances(thread))
        reasons, begun = self._reasons.pop(thread, None), self._begun.pop(thread, {})
        left = ended.pop("left", None)
        if left is not None and begun.get("fullgraph"):
            ended["failure"] = left  # it has raised
            if reasons is None and "reason" not in ended:
                ended.pop("category", None)  # nothing was compiled before
        else:
            ended.pop("failure_reason", None)
        if "category" in ended and "instance" in begun:
            ended.pop("category")
            ended.pop("reason", None)
            ended["instance"] = begun["instance"]
        elif "category" in ended and reasons is not None:
            ended.update(reasons)
        return ended


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


def place(name: str | None, file: str | None, line: int | None) -> dict[str, Any]:
    """The place of the user's function. Only the base name of its file leaves the process."""
    return {"name": name, "file": file.rpartition("/")[2] if file else None, "line": line}


class Replaced:
    """Attributes of modules and classes that a hook has replaced.

    ``undo`` restores them: an inherited attribute is inherited again. An attribute that other code
    has wrapped meanwhile stays, with the hook inside.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, ours: Any) -> None:
        """Replace ``name`` of ``owner``, a module or a class."""
        self._done.append((owner, name, vars(owner).get(name, self), ours))
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
        while self._done:
            owner, name, original, ours = self._done.pop()
            if vars(owner).get(name) is not ours:
                continue
            if original is self:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


Install = Callable[[Listener], Installed]


class Hooks:
    """The installed hooks, and the hook points that this PyTorch does not have."""

    def __init__(self) -> None:
        self._installed: dict[str, Installed] = {}
        self._providers: dict[str, list[tuple[str, Callable[..., Any]]]] = {}
        self._excluded: set[str] = set()
        self._missing: tuple[str, ...] = ()
        self._watches: list[ImportWatch] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._installed)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names found missing in this PyTorch so far."""
        lacking = [name for names in self._each("lacks") for name in names]
        return tuple(dict.fromkeys((*self._missing, *lacking)))

    def install(self, points: Sequence[tuple[str, Install]], listener: Listener) -> None:
        """Install each hook. One that fails undoes what it did; the others are installed."""
        missing, late = list(self._missing), set[str]()
        for name, install in points:
            if name in self._excluded:
                continue
            try:
                self._installed[name] = installed = install(listener)
                late.update(installed.late)
            except HookPointAbsentError:
                missing.append(name)
            except Exception as error:  # noqa: BLE001 - an unsupported PyTorch version
                missing.append(name)
                report(f"hooks.{name}", error)
        self._missing = tuple(missing)
        self._providers = {}
        if late:
            watch = ImportWatch({module: partial(self._imported, module) for module in late})
            self._watches.append(watch)
            watch.start()

    def _imported(self, module: str) -> None:
        """Install the parts of hooks that waited for ``module``."""
        for name, installed in tuple(self._installed.items()):
            try:
                if put := installed.late.get(module):
                    put()
            except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
                report(f"hooks.{name}", error)

    def lacks_events(self, phases: Iterable[str]) -> None:
        """Record that phases took time without an event: the events have other names."""
        if any(phases) and "events" in self._installed and EVENT_NAMES not in self._missing:
            self._missing = (*self._missing, EVENT_NAMES)

    def functions(self) -> list[Callable[..., Any]]:
        """The agent's functions that Dynamo must skip."""
        return [one for installed in tuple(self._installed.values()) for one in installed.functions]

    def exclude(self, name: str) -> None:
        """Remove one hook; if it is not installed yet, never install it."""
        self._excluded.add(name)
        self.uninstall(name)

    def uninstall(self, name: str) -> None:
        """Remove one hook, if it is installed."""
        installed = self._installed.pop(name, None)
        self._providers = {}
        if installed is None or installed.uninstall is None:
            return
        try:
            installed.uninstall()
        except Exception as error:  # noqa: BLE001 - the other hooks are removed all the same
            report(f"hooks.{name}", error)

    def uninstall_all(self) -> None:
        """Remove every hook, last first: a later one may wrap an earlier one."""
        while self._watches:
            self._watches.pop().stop()
        for name in reversed(self.names):
            self.uninstall(name)

    def rearm(self) -> None:
        """Install again what PyTorch dropped, and what an import has not reported."""
        for watch in self._watches:
            watch.check()
        for _ in self._each("rearm"):
            pass

    def counters(self) -> dict[str, int]:
        """PyTorch's cumulative counters."""
        return {name: value for found in self._each("counters") for name, value in found.items()}

    def graph_breaks(self) -> dict[str, int]:
        """The count of graph breaks by reason."""
        return {why: count for found in self._each("graph_breaks") for why, count in found.items()}

    def break_place(self, reason: str) -> dict[str, Any]:
        """The place of this reason's last break; empty if unknown."""
        return dict(next(self._each("break_place", reason), {}))

    def asynchronous(self) -> bool:
        """Whether compiled code may be swapped in later, without an event."""
        return any(self._each("asynchronous"))

    def disabled(self) -> str:
        """Which of ``record.DISABLED`` turns compilation off now."""
        return next(filter(None, self._each("disabled")), "")

    def optimizers(self) -> bool:
        """Whether the process made an optimizer of ``torch.optim``."""
        return any(self._each("optimizers"))

    def precompiled(self) -> set[str]:
        """Which code that was compiled ahead of time runs."""
        return {kind for kinds in self._each("precompiled") for kind in kinds}

    def uncompiled(self) -> tuple[int, int]:
        """Calls of compiled functions that a stance ran eagerly, and that it refused."""
        return next(filter(any, self._each("uncompiled")), (0, 0))

    def compiled_calls(self, evaluating: bool) -> int | None:
        """Calls that ran compiled during evaluations; ``evaluating``: count them from now on."""
        return next(self._each("compiled_calls", evaluating), None)

    def memory(self) -> tuple[int, ...]:
        """Bytes of CUDA's allocator, by ``record.MEMORY``, and its retries; empty if unknown."""
        return next(filter(None, self._each("memory")), ())

    def _each(self, what: str, *args: Any) -> Iterator[Any]:
        """Call the function ``what`` of each hook that provides it. A failing hook stops no other.

        Most hooks provide none or one, so the providers are looked up once.
        """
        known = self._providers  # of now: another thread may uninstall a hook during the lookup
        providers = known.get(what)
        if providers is None:
            found = [(name, getattr(one, what)) for name, one in tuple(self._installed.items())]
            providers = known[what] = [pair for pair in found if pair[1] is not None]
        for name, provide in providers:
            try:
                yield provide(*args)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report(f"hooks.{name}", error)
