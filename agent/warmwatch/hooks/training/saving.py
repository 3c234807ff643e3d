"""Checkpoints while they are written: ``torch.save``, ``torch.distributed.checkpoint``.

Many modules import ``torch.save`` by name, so its parts are wrapped: opening and closing the file,
and ``_legacy_save``. PyTorch looks them up at each call. The distributed checkpoint is wrapped once
other code has imported it: the parts that the caller waits for, and no background thread.

The agent's frames are hidden from Dynamo; what the originals call is not.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

from warmwatch.hooks.points import Installed, Listener, Replaced, look_up, skip_frames, untraced

_SAVER = "torch.distributed.checkpoint.state_dict_saver"
_STAGING = "torch.distributed.checkpoint.staging"
# Module, and its functions that the caller of a distributed save waits for; some versions lack
# some.
_DISTRIBUTED = (
    (_SAVER, "", "_save_state_dict"),
    (_SAVER, "", "_stateful_to_state_dict"),
    (_STAGING, "BlockingAsyncStager", "stage"),
    (_STAGING, "DefaultStager", "stage"),
)

_Wrap = Callable[[Any], Any]


def install(listener: Listener) -> Installed:
    with look_up():
        from torch import serialization

        legacy = serialization, "_legacy_save"
        files = serialization._open_zipfile_writer_file, serialization._open_zipfile_writer_buffer
        for owner, name in (legacy, *((file, "__exit__") for file in files)):
            getattr(owner, name)
    saves = _Saves(listener)
    with contextlib.ExitStack() as undo:
        undo.callback(saves.replaced.undo)
        saves.put(*legacy, saves.around)
        for file in files:
            saves.put(file, "__init__", saves.before)
            saves.put(file, "__exit__", saves.after)
        undo.pop_all()
    late = dict.fromkeys((_SAVER, _STAGING), saves.put_distributed)
    return Installed(uninstall=saves.replaced.undo, late=late)


class _Saves:
    """The wrapped functions, and how to restore each."""

    def __init__(self, listener: Listener) -> None:
        self._began = functools.partial(listener.post, "pause_began", {"what": "saving"})
        self._ended = functools.partial(listener.post, "pause_ended", {"what": "saving"})
        self._wrapped: set[tuple[int, str]] = set()
        self.replaced = Replaced()

    def put(self, owner: Any, name: str, wrap: _Wrap) -> None:
        """Wrap ``name`` of ``owner`` once; an inherited attribute is overridden."""
        if (id(owner), name) not in self._wrapped:
            self._wrapped.add((id(owner), name))
            self.replaced.put(owner, name, wrap(getattr(owner, name)))

    def put_distributed(self) -> None:
        """Wrap the parts of the distributed checkpoint that are imported by now."""
        for module, class_name, name in _DISTRIBUTED:
            result = sys.modules.get(module)
            owner = getattr(result, class_name, None) if class_name else result
            if owner is not None and self.replaced.listening and name in vars(owner):
                self.put(owner, name, self.around)

    def before(self, original: Any) -> Any:
        """Wrap ``original``, which begins a save: opening an existing file can take long."""

        @functools.wraps(original, updated=())
        def open(*args: Any, **kwargs: Any) -> Any:
            try:
                self._call(self._began)
                return original(*args, **kwargs)
            except BaseException:
                self._call(self._ended)
                raise

        return open

    def after(self, original: Any) -> Any:
        """Wrap ``original``, which ends a save."""

        @functools.wraps(original, updated=())
        def leave(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self._call(self._ended)

        return leave

    def around(self, original: Any) -> Any:
        """Wrap ``original``, which is a whole save."""

        @functools.wraps(original, updated=())
        def save(*args: Any, **kwargs: Any) -> Any:
            try:
                self._call(self._began)
                return original(*args, **kwargs)
            finally:
                self._call(self._ended)

        return save

    def _call(self, callback: Callable[[], None]) -> None:
        if self.replaced.listening:
            untraced("hooks.saving", callback)


skip_frames(_Saves._call)
