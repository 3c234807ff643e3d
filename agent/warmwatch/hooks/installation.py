"""Installs and removes hooks, and waits for the modules that they need.

The agent must not import Dynamo: it takes seconds, and a training may never need it. The same holds
for Triton. So a finder handles these names until they are imported, reports the end of the import,
and removes itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, spec_from_loader
from types import ModuleType
from typing import Any

from warmwatch._guard import report
from warmwatch.hooks.points import (
    HookPointAbsentError,
    Install,
    Installed,
    Listener,
    skip_frames,
    untraced,
)
from warmwatch.shared.loaded import is_lazy, loaded

EVENT_NAMES = "event_names"


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
        late = set[str]()
        for name, install in points:
            if name in self._excluded:
                continue
            try:
                self._installed[name] = installed = install(listener)
                late.update(installed.late)
            except Exception as error:  # noqa: BLE001 - an unsupported PyTorch version
                self._failed(name, error)
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
                self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        """The hook is missing: its hook point is absent, or installing it raised ``error``."""
        self._missing = (*self._missing, name)
        if not isinstance(error, HookPointAbsentError):
            report(f"hooks.{name}", error)

    def lacks_events(self, phases: Iterable[str]) -> None:
        """Record that phases took time without an event: the events have other names."""
        if any(phases) and "events" in self._installed and EVENT_NAMES not in self._missing:
            self._missing = (*self._missing, EVENT_NAMES)

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
        return {name: value for item in self._each("counters") for name, value in item.items()}

    def graph_breaks(self) -> dict[str, int]:
        """The count of graph breaks by reason."""
        return {why: count for value in self._each("graph_breaks") for why, count in value.items()}

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

    def uncompiled(self) -> tuple[int, ...]:
        """Calls of compiled functions under stances (see ``Installed``)."""
        return next(filter(any, self._each("uncompiled")), (0, 0, 0))

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
        groups = self._providers  # the present dict: another thread may replace it meanwhile
        providers = groups.get(what)
        if providers is None:
            pairs = [
                (name, getattr(installed, what))
                for name, installed in tuple(self._installed.items())
            ]
            providers = groups[what] = [pair for pair in pairs if pair[1] is not None]
        for name, provide in providers:
            try:
                yield provide(*args)
            except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
                report(f"hooks.{name}", error)


def is_imported(module: str) -> bool:
    """Whether the module is imported and loaded, and not still being imported.

    A replacement in ``sys.modules`` need not be a module.
    """
    if (value := loaded(module)) is None:
        return False
    return not getattr(getattr(value, "__spec__", None), "_initializing", False)


class ImportWatch:
    """Calls each of ``arrived`` once, right after its module was imported, or now if it already is.

    One finder serves all of them. It removes itself after the last import.
    """

    def __init__(self, arrived: Mapping[str, Callable[[], None]]) -> None:
        self._awaited = dict(arrived)
        self._absent: dict[str, Any] = {}  # what was searched when it was not found

    def start(self) -> None:
        # copies, as other threads import too
        there = [module for module in tuple(self._awaited) if is_imported(module)]
        if len(there) < len(self._awaited):
            sys.meta_path.insert(0, self)
        for module in there:
            self._report(module)
        for result in [sys.modules.get(module) for module in tuple(self._awaited)]:
            if is_lazy(result):
                self._try_listen(object.__getattribute__(result, "__spec__"))

    def check(self) -> None:
        """Report modules whose import began before the start, or that another finder found."""
        for module in [module for module in tuple(self._awaited) if is_imported(module)]:
            self._report(module)

    def stop(self) -> None:
        with suppress(ValueError):  # another thread may have done it
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Import protocol: return what the finders after this one find, with a reporting loader.

        The finders before this one found nothing, so they are not called again. A caller that only
        checks for a module (``importlib.util.find_spec``) comes here too, and may import it later.
        If no finder finds it, Python calls those after this one again. That happens once: while
        nothing else is searched, they are left to Python. If a module comes there after all,
        ``check`` reports it.
        """
        if name not in self._awaited or self not in sys.meta_path:
            return None
        searched = tuple(sys.path), tuple(path or ()), tuple(map(id, sys.meta_path))
        if self._absent.get(name) == searched:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = _spec_of(finder, name, path, target)
            if spec is not None:
                self._try_listen(spec)
                return spec
        self._absent[name] = searched
        return None

    def _try_listen(self, spec: ModuleSpec) -> None:
        try:
            self._listen(spec)
        except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
            self._awaited.pop(spec.name, None)
            report("imports", error)

    def _listen(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if isinstance(loader, LazyLoader):  # which only prepares the module
            loader = loader.loader  # type: ignore[attr-defined]
        if not hasattr(loader, "exec_module"):
            raise TypeError(f"{loader!r} of {spec.name} has no exec_module to wrap")

        # present if a later finder is a watch that waits for the same module
        before = vars(loader).get("exec_module")

        def exec_module(module: ModuleType) -> None:
            if before is None:
                del loader.exec_module  # restores the class's method
            else:
                loader.exec_module = before
            loader.exec_module(module)
            self._report(spec.name)

        skip_frames(exec_module)
        loader.exec_module = exec_module

    def _report(self, module: str) -> None:
        arrived = self._awaited.pop(module, None)
        if not self._awaited:
            self.stop()
        if arrived is not None:
            untraced("imports", arrived)


def _spec_of(
    finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """What ``finder`` finds, called as Python calls it; an old one may lack ``find_spec``."""
    find_spec = getattr(finder, "find_spec", None)
    if find_spec is not None:
        spec: ModuleSpec | None = find_spec(name, path, target)
        return spec
    find_module = getattr(finder, "find_module", None)
    if find_module is None or sys.version_info >= (3, 12):  # Python skips it too
        return None
    loader = find_module(name, path)
    return None if loader is None else spec_from_loader(name, loader)


# An import in a compiled function calls these.
skip_frames(
    ImportWatch.find_spec,
    ImportWatch._try_listen,
    ImportWatch._listen,
    ImportWatch._report,
    _spec_of,
)
