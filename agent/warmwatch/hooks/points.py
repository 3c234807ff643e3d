"""Hook points: the types that hooks and the rest of the agent share.

A *seam* is a place in PyTorch where a hook can be put. A hook tells a :class:`Listener` what it
hears, and gives back an :class:`Installed`: how it is undone, and what may be asked of PyTorch
through it. Neither side knows more, and no hook knows another. Nothing here imports PyTorch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from warmwatch._guard import report

EVENT_NAMES = "event_names"


class Listener(Protocol):
    """What a hook may tell, on any thread."""

    @property
    def on_step(self) -> Callable[[Any, Any, Any], None]:
        """The optimizers' post hook itself: nothing stands between, at every step it is called."""

    @property
    def on_batch(self) -> Callable[[int], None]:
        """Called with the time at which a batch was asked for, once it is there; likewise."""

    def created(self, optimizer: Any) -> None:
        """An optimizer is under construction: it has no parameters yet."""

    def wrap_rare(self, wrap: Callable[[Any], Any]) -> None:
        """Wrap all other code of ours that ``on_step`` calls, now and then."""

    def begin(self, event: str, of: Mapping[str, Any] | None = None) -> None:
        """A compile event began on this thread.

        ``of``, where the hook knows it: name, file, line and code of what is compiled, its kind,
        its compile id.
        """

    def end(self, event: str) -> None:
        """A compile event ended on this thread."""

    def recompile(self, reason: str, category: str, where: Mapping[str, Any]) -> None:
        """This thread begins a recompile, for this reason, in PyTorch's words.

        ``where``: name, file and line.
        """

    def compilation(self, kind: str, values: Mapping[str, Any]) -> None:
        """A compilation ended on this thread; ``kind`` is one of ``record.KINDS``."""

    def refusal(self, of: Mapping[str, Any]) -> Exception | None:
        """What to raise instead of compiling a kernel; ``None``: compile it."""

    def cached(self, cache: str, *, hit: bool) -> None:
        """A cache that PyTorch does not count was asked; ``cache`` is one of ``record.CACHES``."""

    def cache_lookup(self, cache: str, verdict: str, values: Mapping[str, Any]) -> None:
        """A compile cache was asked, or passed by, on this thread; ``values`` as PyTorch has them:
        the key, the lines that say what it is made of, the reason for a bypass.
        """

    def save_began(self) -> None:
        """This thread began to save a checkpoint, or a part of it."""

    def save_ended(self) -> None:
        """This thread ended what it began to save last."""

    def evaluation_began(self, model: Any) -> bool:
        """``model`` was put into evaluation mode; whether it is an evaluation that now begins."""

    def evaluation_ended(self) -> None:
        """A model was put into training mode after that."""

    def cells_left(self) -> None:
        """No cell of the notebook runs any more."""

    def cell_began(self) -> None:
        """One runs again."""

    def fallback(self, values: Mapping[str, Any]) -> None:
        """A frame hit the recompile limit."""

    def cudagraph_skipped(self, reason: str, where: Mapping[str, Any]) -> None:
        """CUDA graphs were left out, for this reason, in PyTorch's words, which no compilation's
        record has. ``where``: name, file and line, as far as PyTorch says.
        """

    def wrapped(self, way: Mapping[str, Any]) -> None:
        """The user's program handed something to ``torch.compile``; ``way``: how, in the words of
        the journal.
        """

    def progress(self, of: str, done: int, total: int) -> None:
        """So many of what the activity counts are done; ``of`` is one of ``record.PROGRESS``."""

    def precompiled(self, kind: str) -> None:
        """Code that was compiled ahead of time runs; ``kind``: one of ``record.PRECOMPILED``."""

    def turned(self) -> None:
        """Compilation was perhaps turned off, or on again: ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed hook: how it is removed, and what it can read from PyTorch.

    A function that a hook does not provide is ``None``.

    Attributes:
        uninstall: removes the hook.
        rearm: installs it again where PyTorch dropped it, or where its module was imported since.
        counters: PyTorch's cumulative counters, by the names of the slot's words (``graphs``,
            ``cache_hits.inductor_fx``...); they fall when a user clears them.
        graph_breaks: how often each of PyTorch's reasons broke a graph; they fall likewise.
        break_place: where a reason last broke one: name, file and line, as far as PyTorch says.
        asynchronous: whether a mode is on that swaps compiled code in later, with no event.
        functions: ours that others' code calls, of seams that may be there before Dynamo is: they
            are hidden from it as soon as it comes.
        disabled: by which of ``record.DISABLED`` compilation is turned off now.
        uncompiled: calls of compiled functions that a stance ran eagerly, and that it refused.
        lacks: what turned out to be missing since: names that only show once something compiles.
        memory: bytes of CUDA's allocator, by ``record.MEMORY``, and its retries; empty: not known.
        optimizers: whether the process made an optimizer of ``torch.optim``.
        precompiled: of ``record.PRECOMPILED``, what runs, as far as the calling thread sees it.
    """

    uninstall: Callable[[], None] | None = None
    rearm: Callable[[], None] | None = None
    counters: Callable[[], Mapping[str, int]] | None = None
    graph_breaks: Callable[[], Mapping[str, int]] | None = None
    break_place: Callable[[str], Mapping[str, Any]] | None = None
    asynchronous: Callable[[], bool] | None = None
    functions: Sequence[Callable[..., Any]] = ()
    lacks: Callable[[], Sequence[str]] | None = None
    disabled: Callable[[], str] | None = None
    memory: Callable[[], tuple[int, ...]] | None = None
    uncompiled: Callable[[], tuple[int, int]] | None = None
    optimizers: Callable[[], bool] | None = None
    precompiled: Callable[[], tuple[str, ...]] | None = None


class Compiling:
    """What each thread is compiling with Dynamo, as far as it is known when that begins.

    Listeners join it with PyTorch's record of the compilation, so that all of them count the same.
    """

    def __init__(self) -> None:
        self._begun: dict[int, Mapping[str, Any]] = {}
        self._reasons: dict[int, dict[str, str]] = {}

    def begun(self, thread: int, of: Mapping[str, Any]) -> None:
        """``thread`` begins to compile ``of``."""
        self._begun[thread] = of
        self._reasons.pop(thread, None)

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
        """``values`` of a forward compilation of ``thread`` that ended, with what is known of it.

        The reasons that were reported when it began replace the one that PyTorch's record keeps.
        """
        ended = dict(values)
        ended.update(self.circumstances(thread))
        heard, begun = self._reasons.pop(thread, None), self._begun.pop(thread, {})
        left = ended.pop("left", None)
        if left is not None and begun.get("fullgraph"):
            ended["failure"] = left  # it has raised
            if heard is None and "reason" not in ended:
                ended.pop("category", None)  # nothing was compiled before
        else:
            ended.pop("failure_reason", None)
        if "category" in ended and "instance" in begun:
            ended.pop("category")
            ended.pop("reason", None)
            ended["instance"] = begun["instance"]
        elif "category" in ended and heard is not None:
            ended.update(heard)
        return ended


class HookPointAbsentError(Exception):
    """This PyTorch does not have the seam."""


@contextlib.contextmanager
def look_up() -> Iterator[None]:
    """Where a hook looks for its seam, and does nothing else: what is not there is no error.

    Raises:
        SeamAbsentError: an import or an attribute in the block is missing.
    """
    try:
        yield
    except (ImportError, AttributeError) as error:
        raise HookPointAbsentError(str(error)) from error


class Replaced:
    """Attributes of modules and classes that a hook has replaced by its own.

    They go back as they were: what was inherited is inherited again, and what somebody else has
    wrapped meanwhile stays, with ours in it.
    """

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, ours: Any) -> None:
        """Replace ``name`` of ``owner``, a module or a class."""
        self._done.append((owner, name, vars(owner).get(name, self), ours))
        setattr(owner, name, ours)

    def put_all(self, wanted: Iterable[tuple[Any, str, Any]]) -> None:
        """Replace each, or none where one cannot be."""
        with contextlib.ExitStack() as broken_off:
            broken_off.callback(self.undo)
            for owner, name, ours in wanted:
                self.put(owner, name, ours)
            broken_off.pop_all()

    def undo(self) -> None:
        """Put back what was there."""
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

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._installed)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names that this PyTorch does not have, as far as they have shown by now."""
        lacking = [name for names in self._each("lacks") for name in names]
        return tuple(dict.fromkeys((*self._missing, *lacking)))

    def install(self, points: Sequence[tuple[str, Install]], listener: Listener) -> None:
        """Install each hook. One that fails undoes what it did; the others are installed."""
        missing = list(self._missing)
        for name, install in points:
            if name in self._excluded:
                continue
            try:
                self._installed[name] = install(listener)
            except HookPointAbsentError:
                missing.append(name)
            except Exception as error:  # noqa: BLE001 - an unsupported PyTorch version
                missing.append(name)
                report(f"hooks.{name}", error)
        self._missing = tuple(missing)
        self._providers = {}

    def lacks_events(self, phases: Iterable[str]) -> None:
        """No event of these phases came, although they took time: the events have other names."""
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
        """Remove one hook, where it is installed."""
        installed = self._installed.pop(name, None)
        self._providers = {}
        if installed is None or installed.uninstall is None:
            return
        try:
            installed.uninstall()
        except Exception as error:  # noqa: BLE001 - the other hooks are removed all the same
            report(f"hooks.{name}", error)

    def uninstall_all(self) -> None:
        """Remove every hook, the last one first: it may wrap an earlier one."""
        for name in reversed(self.names):
            self.uninstall(name)

    def rearm(self) -> None:
        """Install again what PyTorch dropped, and what its modules allow by now."""
        for _ in self._each("rearm"):
            pass

    def counters(self) -> dict[str, int]:
        """PyTorch's cumulative counters."""
        return {name: value for found in self._each("counters") for name, value in found.items()}

    def graph_breaks(self) -> dict[str, int]:
        """How often each reason broke a graph."""
        return {why: count for found in self._each("graph_breaks") for why, count in found.items()}

    def break_place(self, reason: str) -> dict[str, Any]:
        """Where this reason last broke a graph; empty where that is unknown."""
        return dict(next(self._each("break_place", reason), {}))

    def asynchronous(self) -> bool:
        """Whether compiled code may be swapped in later, with no event."""
        return any(self._each("asynchronous"))

    def disabled(self) -> str:
        """By which of ``record.DISABLED`` compilation is switched off now."""
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

    def memory(self) -> tuple[int, ...]:
        """Bytes of CUDA's allocator, by ``record.MEMORY``, and its retries; empty: not known."""
        return next(filter(None, self._each("memory")), ())

    def _each(self, what: str, *args: Any) -> Iterator[Any]:
        """Call the function ``what`` of each hook that provides it. One that fails stops no other.

        Most hooks provide none or one, so which do is looked up once.
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
