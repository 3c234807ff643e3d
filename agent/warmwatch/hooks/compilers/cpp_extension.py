"""C++ and CUDA extensions that ``torch.utils.cpp_extension`` builds on load: minutes of ``ninja``.

``load`` and ``load_inline`` build in ``_write_ninja_file_and_build_library``. The first load in a
process calls it even if there is nothing to build, so a change of the library's file shows a build.
If another process builds the same extension, ``FileBaton.wait`` waits for it (up to torch 2.13).
Later versions take a ``FileLock`` at each load: it waits if its first attempt does not lock.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

from warmwatch.hooks.phases import EXTENSION_BUILD, EXTENSION_CHECK
from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, skip_frames, untraced

_KIND = "cpp_extension"
_quietly = functools.partial(untraced, "hooks.cpp_extension")


class _Build:
    """One call of the builder. ``event``: the likely event, judged by the files before the
    build."""

    def __init__(self, arguments: Mapping[str, Any], suffix: str) -> None:
        self.name = Path(str(arguments["name"])).name
        suffix = "" if arguments.get("is_standalone") else suffix
        self._library = Path(arguments["build_directory"]) / f"{arguments['name']}{suffix}"
        self._before, self._began = _modified(self._library), monotonic_ns()
        sources = max(map(_modified, map(Path, arguments["sources"])), default=0)
        fresh = self._before and self._before >= sources
        self.event = EXTENSION_CHECK if fresh else EXTENSION_BUILD

    def values(self, error: BaseException | None) -> dict[str, Any] | None:
        """Journal values of the build; ``None`` if nothing was built."""
        seconds = (monotonic_ns() - self._began) / 1e9
        values = {"kind": _KIND, "name": self.name, "seconds": seconds}
        if error is not None:
            failed = isinstance(error, Exception)  # any other BaseException is an interruption
            return {**values, "failure": type(error).__name__} if failed else None
        return values if _modified(self._library) != self._before else None


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class _Reporter:
    """Turns calls of the wrapped functions into listener calls."""

    def __init__(self, listener: Listener, suffix: str) -> None:
        self.listening, self.listener, self._suffix = True, listener, suffix

    def begins(self, arguments: Callable[[], Mapping[str, Any]], begun: list[_Build]) -> None:
        begun.append(build := _Build(arguments(), self._suffix))  # first: it may be interrupted
        self.listener.begin(build.event, {"name": build.name, "kind": _KIND})

    def ends(self, build: _Build, error: BaseException | None) -> None:
        try:
            if values := build.values(error):
                self.listener.post("compilation", values)
        finally:
            self.listener.end(build.event)


def install(listener: Listener) -> Installed:
    with look_up():
        from torch.utils import cpp_extension as module

        original, suffix = module._write_ninja_file_and_build_library, module.LIB_EXT
        baton, lock = getattr(module, "FileBaton", None), getattr(module, "FileLock", None)
    reporter, replaced = _Reporter(listener, suffix), Replaced()
    wanted = [(module, "_write_ninja_file_and_build_library", _building(reporter, original))]
    if baton is not None:
        wanted.append((baton, "wait", _waiting(reporter, baton.wait)))
    if lock is not None:
        wanted.append((module, "FileLock", _reporting_lock(reporter, lock)))

    def uninstall() -> None:
        reporter.listening = False
        replaced.undo()

    replaced.put_all(wanted)
    return Installed(uninstall=uninstall)


def _building(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def build_library(*args: Any, **kwargs: Any) -> Any:
        if not reporter.listening:
            return original(*args, **kwargs)
        begun: list[_Build] = []
        try:
            _quietly(reporter.begins, lambda: signature.bind(*args, **kwargs).arguments, begun)
            built = original(*args, **kwargs)
        except BaseException as error:
            for build in begun:
                _quietly(reporter.ends, build, error)
            raise
        for build in begun:
            _quietly(reporter.ends, build, None)
        return built

    return build_library


def _waiting(reporter: _Reporter, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not reporter.listening:
            return original(self, *args, **kwargs)
        try:
            _quietly(reporter.listener.begin, EXTENSION_BUILD, {"kind": _KIND})
            return original(self, *args, **kwargs)
        finally:
            _quietly(reporter.listener.end, EXTENSION_BUILD)

    return wait


def _reporting_lock(reporter: _Reporter, original: Any) -> Any:
    class FileLock(original):  # type: ignore[misc]
        _waits = False

        def _acquire(self) -> None:  # called again until the lock is free
            super()._acquire()
            if reporter.listening and not self.is_locked and not self._waits:
                self._waits = True
                _quietly(reporter.listener.begin, EXTENSION_BUILD, {"kind": _KIND})

        def __enter__(self) -> Any:
            try:
                return super().__enter__()
            finally:
                if self._waits:
                    self._waits = False
                    _quietly(reporter.listener.end, EXTENSION_BUILD)

    skip_frames(FileLock._acquire, FileLock.__enter__)
    return FileLock
