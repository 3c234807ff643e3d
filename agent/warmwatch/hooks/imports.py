"""Watches for modules that other code imports.

The agent must not import Dynamo: it costs seconds, and a training may never need it. Nor Triton. So
it is told when the import has ended, by a finder that steps in for these names and then goes away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from warmwatch._guard import report


def is_imported(module: str) -> bool:
    """Whether it is there, and not in the middle of being imported.

    What somebody has put in its place need not be a module.
    """
    found = sys.modules.get(module)
    spec = getattr(found, "__spec__", None)
    return found is not None and not getattr(spec, "_initializing", False)


class ImportWatch:
    """Calls each of ``arrived`` once, right after its module was imported, or now if it already is.

    One finder for them all, which goes away when the last of them is there.
    """

    def __init__(self, arrived: Mapping[str, Callable[[], None]]) -> None:
        self._awaited = dict(arrived)

    def start(self) -> None:
        there = [module for module in self._awaited if is_imported(module)]
        if len(there) < len(self._awaited):
            sys.meta_path.insert(0, self)
        for module in there:
            self._tell(module)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Import machinery's protocol: what the finders behind us find, with a loader that tells.

        Those ahead of us were asked already, and are not asked again. Who only looks whether a
        module is there (``importlib.util.find_spec``) comes here too, and may import it later.
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

        before = vars(loader).get("exec_module")  # of a watch behind us, which waits for it too

        def exec_module(module: ModuleType) -> None:
            if before is None:
                del loader.exec_module  # uncovers the class's own
            else:
                loader.exec_module = before
            loader.exec_module(module)
            self._tell(spec.name)

        loader.exec_module = exec_module

    def _tell(self, module: str) -> None:
        arrived = self._awaited.pop(module, None)
        if not self._awaited:
            self.stop()
        if arrived is not None:
            arrived()


def _spec_of(
    finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """What ``finder`` finds, asked as Python asks it: one without ``find_spec`` may be of old."""
    find_spec = getattr(finder, "find_spec", None)
    if find_spec is not None:
        found: ModuleSpec | None = find_spec(name, path, target)
        return found
    find_module = getattr(finder, "find_module", None)
    if find_module is None or sys.version_info >= (3, 12):  # where Python passes it over itself
        return None
    loader = find_module(name, path)
    return None if loader is None else spec_from_loader(name, loader)


# Dynamo passes them over: an import in what a compiled function calls comes through here too.
FRAMES: tuple[Callable[..., Any], ...] = (
    ImportWatch.find_spec,
    ImportWatch._listen,
    ImportWatch._tell,
    _spec_of,
)
