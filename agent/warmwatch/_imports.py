"""Waiting for a module that somebody else imports.

The agent must not import Dynamo: it costs seconds, and a training may never need it. So it is told
when the import has ended, by a finder that steps in for that one name and then goes away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


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
        """Import machinery's protocol: the other finders' spec, with a loader that tells us."""
        if name != self._module:
            return None
        self.stop()
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._listen(spec)
                return spec
        return None

    def _listen(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # uncovers the class's own
            loader.exec_module(module)
            self._arrived()

        loader.exec_module = exec_module  # type: ignore[method-assign]
