"""Watches for modules that other code imports.

The agent must not import Dynamo: it takes seconds, and a training may never need it. The same holds
for Triton. So a finder handles these names until they are imported, reports the end of the import,
and removes itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from warmwatch._guard import report


def is_imported(module: str) -> bool:
    """Whether the module is imported, and not still being imported.

    A replacement in ``sys.modules`` need not be a module.
    """
    found = sys.modules.get(module)
    spec = getattr(found, "__spec__", None)
    return found is not None and not getattr(spec, "_initializing", False)


class ImportWatch:
    """Calls each of ``arrived`` once, right after its module was imported, or now if it already is.

    One finder serves all of them. It removes itself after the last import.
    """

    def __init__(self, arrived: Mapping[str, Callable[[], None]]) -> None:
        self._awaited = dict(arrived)

    def start(self) -> None:
        # copies, as other threads import too
        there = [module for module in tuple(self._awaited) if is_imported(module)]
        if len(there) < len(self._awaited):
            sys.meta_path.insert(0, self)
        for module in there:
            self._report(module)

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
        """
        if name not in self._awaited or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = _spec_of(finder, name, path, target)
            if spec is not None:
                try:
                    self._listen(spec)
                except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
                    self._awaited.pop(name, None)
                    report("imports", error)
                return spec
        return None

    def _listen(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if not hasattr(loader, "exec_module"):
            raise TypeError(f"{loader!r} loads {spec.name} in a way that cannot be listened to")

        # present if a later finder is a watch that waits for the same module
        before = vars(loader).get("exec_module")

        def exec_module(module: ModuleType) -> None:
            if before is None:
                del loader.exec_module  # restores the class's method
            else:
                loader.exec_module = before
            loader.exec_module(module)
            self._report(spec.name)

        loader.exec_module = exec_module

    def _report(self, module: str) -> None:
        arrived = self._awaited.pop(module, None)
        if not self._awaited:
            self.stop()
        if arrived is not None:
            arrived()


def _spec_of(
    finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """What ``finder`` finds, called as Python calls it; an old one may lack ``find_spec``."""
    find_spec = getattr(finder, "find_spec", None)
    if find_spec is not None:
        found: ModuleSpec | None = find_spec(name, path, target)
        return found
    find_module = getattr(finder, "find_module", None)
    if find_module is None or sys.version_info >= (3, 12):  # Python skips it too
        return None
    loader = find_module(name, path)
    return None if loader is None else spec_from_loader(name, loader)


# Dynamo must skip these: an import inside a compiled function calls them.
FRAMES: tuple[Callable[..., Any], ...] = (
    ImportWatch.find_spec,
    ImportWatch._listen,
    ImportWatch._report,
    _spec_of,
)
