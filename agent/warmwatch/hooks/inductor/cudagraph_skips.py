"""Why requested CUDA graphs are skipped, if no compilation record contains it.

PyTorch reports it through one function (torch 2.6 to 2.15), which its other modules import by name.
A decision during compilation is in the record of that compilation (since 2.8) and is not reported
here. A decision at a graph's first run appears only here. The log is no replacement: a program may
silence it, and the counter rises after the log line.

Inductor is imported long after Dynamo, and the agent must not import it. Until then only its source
shows whether the function will exist.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import PathFinder
from typing import Any

from warmwatch._guard import quietly
from warmwatch.hooks.points import HookPointAbsentError, Installed, Listener, look_up, skip_frames

_NAME = "log_cudagraph_skip_and_bump_counter"
_HOME = "torch._inductor.cudagraph_utils"
_MODULES = (
    _HOME,
    "torch._inductor.compile_fx",
    "torch._inductor.cudagraph_trees",
    "torch._inductor.output_code",
    "torch._dynamo.backends.cudagraphs",
)
_STACK = 8_000  # characters of a message to search for places
_FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<name>[\w.<>]+)')


def install(listener: Listener) -> Installed:
    with look_up():
        import torch

        utils = torch._dynamo.utils
        _ = utils.get_metrics_context
    if not will_be_there([f"{folder}/_inductor" for folder in torch.__path__]):
        raise HookPointAbsentError(f"{_HOME}.{_NAME}")
    listening = True
    ours: dict[Any, Any] = {}  # by the original function

    def report_skip(args: tuple[Any, ...], kwargs: Mapping[str, Any], returned: bool) -> None:
        if listening and not (returned and is_recorded(utils)):
            message = str(args[0] if args else kwargs["msg"])
            listener.post("cudagraph_skip", {"reason": message, **place_in(message)})

    def put() -> None:
        """Replace it once: a later import by name gets the wrapper."""
        if ours or not listening or not hasattr(sys.modules.get(_HOME), _NAME):
            return
        for module, held in _holders():
            if held in ours.values():
                continue  # another thread replaced it in the same moment
            ours.setdefault(held, _reporting(held, report_skip))
            setattr(module, _NAME, ours[held])

    def uninstall() -> None:
        nonlocal listening
        listening = False
        originals = {value: original for original, value in ours.items()}
        for module, held in _holders():
            if held in originals:
                setattr(module, _NAME, originals[held])

    return Installed(uninstall=uninstall, late={_HOME: put})


def will_be_there(folders: list[str]) -> bool:
    """Whether the module's source defines the function; true if there is no source."""
    spec = PathFinder.find_spec(_HOME, folders)
    loader: Any = None if spec is None else spec.loader
    if loader is None:
        return False
    source = loader.get_source(_HOME) if hasattr(loader, "get_source") else None
    return source is None or f"def {_NAME}(" in source


def _holders() -> Iterator[tuple[Any, Any]]:
    """The modules that have the function, and its present value in each."""
    for module in [sys.modules.get(name) for name in _MODULES]:
        if callable(held := getattr(module, _NAME, None)):
            yield module, held


def _reporting(
    original: Callable[..., Any], report_skip: Callable[..., None]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def log_cudagraph_skip_and_bump_counter(*args: Any, **kwargs: Any) -> Any:
        returned = False
        try:
            given = original(*args, **kwargs)
            returned = True
            return given
        finally:  # it raises if ``cudagraph_or_error`` is set
            quietly("hooks.cudagraph_skips", report_skip, args, kwargs, returned)

    skip_frames(log_cudagraph_skip_and_bump_counter)
    return log_cudagraph_skip_and_bump_counter


def is_recorded(utils: Any) -> bool:
    """Whether the record of the present compilation contains this message."""
    has_place = hasattr(utils.CompilationMetrics, "cudagraph_skip_reason")
    return has_place and bool(utils.get_metrics_context().in_progress())


def place_in(message: str) -> dict[str, Any]:
    """The innermost user line in the stack that PyTorch appends, if any."""
    values: dict[str, Any] = {}
    for line in message[:_STACK].splitlines():
        if frame := _FRAME.match(line):
            file = frame["file"].replace("\\", "/").rpartition("/")[2]
            values = {"name": frame["name"], "file": file, "line": int(frame["line"])}
    return values
