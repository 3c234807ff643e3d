"""C++ and CUDA that ``torch.utils.cpp_extension`` builds when it is loaded: minutes of ``ninja``.

``load`` and ``load_inline`` build in ``_write_ninja_file_and_build_library``, which is called at
the first load in a process also where there is nothing to do: what was built shows in the library's
file. Another process that builds the same is waited for in ``FileBaton.wait``; in torch 2.15 in a
lock of the kernel, which is taken at each load: whether it had to be waited for nobody tells.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.phases import EXTENSION_BUILD, EXTENSION_CHECK
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up

_KIND = "cpp_extension"
_quietly = functools.partial(quietly, "hooks.cpp_extension")


class _Build:
    """One call of the builder. ``event``: by what it will probably be, as far as files tell."""

    def __init__(self, arguments: Mapping[str, Any], suffix: str) -> None:
        self.name = Path(str(arguments["name"])).name
        suffix = "" if arguments.get("is_standalone") else suffix
        self._library = Path(arguments["build_directory"]) / f"{arguments['name']}{suffix}"
        self._before, self._began = _modified(self._library), monotonic_ns()
        sources = max(map(_modified, map(Path, arguments["sources"])), default=0)
        fresh = self._before and self._before >= sources
        self.event = EXTENSION_CHECK if fresh else EXTENSION_BUILD

    def told(self, error: BaseException | None) -> dict[str, Any] | None:
        """The journal's words; ``None`` where nothing was built."""
        values = {"name": self.name, "seconds": (monotonic_ns() - self._began) / 1e9}
        if error is not None:
            failed = isinstance(error, Exception)  # else it was interrupted
            return {**values, "failure": type(error).__name__} if failed else None
        return values if _modified(self._library) != self._before else None


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class _Ear:
    """Turns what the wrapped functions see into what a listener is told."""

    def __init__(self, listener: Listener, suffix: str) -> None:
        self.listening, self.listener, self._suffix = True, listener, suffix

    def begins(self, arguments: Callable[[], Mapping[str, Any]]) -> _Build:
        build = _Build(arguments(), self._suffix)
        self.listener.begin(build.event, {"name": build.name, "kind": _KIND})
        return build

    def ends(self, build: _Build | None, error: BaseException | None) -> None:
        if build is None:
            return
        try:
            if values := build.told(error):
                self.listener.compilation(_KIND, values)
        finally:
            self.listener.end(build.event)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.utils import cpp_extension as module

        original, suffix = module._write_ninja_file_and_build_library, module.LIB_EXT
        baton = getattr(module, "FileBaton", None)  # up to 2.13
    ear, replaced = _Ear(listener, suffix), Replaced()
    wanted = [(module, "_write_ninja_file_and_build_library", _building(ear, original))]
    if baton is not None:
        wanted.append((baton, "wait", _waiting(ear, baton.wait)))

    def uninstall() -> None:
        ear.listening = False
        replaced.undo()

    replaced.put_all(wanted)
    return Installed(uninstall=uninstall, functions=[ours for *_, ours in wanted])


def _building(ear: _Ear, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def build_library(*args: Any, **kwargs: Any) -> Any:
        if not ear.listening:
            return original(*args, **kwargs)
        build = _quietly(ear.begins, lambda: signature.bind(*args, **kwargs).arguments)
        try:
            built = original(*args, **kwargs)
        except BaseException as error:
            _quietly(ear.ends, build, error)
            raise
        _quietly(ear.ends, build, None)
        return built

    return build_library


def _waiting(ear: _Ear, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not ear.listening:
            return original(self, *args, **kwargs)
        _quietly(ear.listener.begin, EXTENSION_BUILD, {"kind": _KIND})
        try:
            return original(self, *args, **kwargs)
        finally:
            _quietly(ear.listener.end, EXTENSION_BUILD)

    return wait
