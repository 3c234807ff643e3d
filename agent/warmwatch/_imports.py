"""Waiting for a module that somebody else imports.

The agent must not import Dynamo: it costs seconds, and a training may never need it. So it is told
when the import has ended, by a finder that steps in for that one name and then goes away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from warmwatch._guard import report


class ImportWatch:
    """Calls ``arrived`` once, right after ``module`` was imported, or now where it already is."""

    def __init__(self, module: str, arrived: Callable[[], None]) -> None:
        self._module, self._arrived = module, arrived

    def start(self) -> None:
        found = sys.modules.get(self._module)
        if found is not None and not getattr(found.__spec__, "_initializing", False):
            self._arrived()
        else:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Import machinery's protocol: what the finders behind us find, with a loader that tells.

        Those ahead of us were asked already, and are not asked again.
        """
        if name != self._module or self not in sys.meta_path:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        self.stop()
        for finder in behind:
            spec = _spec_of(finder, name, path, target)
            if spec is not None:
                try:
                    self._listen(spec)
                except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
                    report("imports", error)
                return spec
        return None

    def _listen(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if not hasattr(loader, "exec_module"):
            raise TypeError(f"{loader!r} loads {self._module} in a way that cannot be listened to")

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # uncovers the class's own
            loader.exec_module(module)
            self._arrived()

        loader.exec_module = exec_module


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
