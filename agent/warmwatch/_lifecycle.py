"""Attaching, detaching, and how a process's end and its forks reach the agent."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from typing import Any

from warmwatch import _current, _exit_status, _family, _guard
from warmwatch._arguments import checked
from warmwatch._attached import Attached
from warmwatch._config import settings_from
from warmwatch._ending import ending

_registered = False


def attach(version: str, said: Mapping[str, Any], *, quiet: bool = False) -> None:
    """Attach to this process, or tell the agent that is attached what was ``said``.

    ``quiet``: nobody has said that it trains (see ``Attached``).
    """
    try:
        given, refused = checked(said)
        for complaint in refused:
            _guard.warn_once(complaint)
        if _current.attached is not None:
            _current.attached.update(given)
            if not quiet:
                _current.attached.speak()
            return
        settings = settings_from(os.environ)
        if settings.disabled:
            return
        for complaint in settings.complaints:
            _guard.warn_once(complaint)
        _current.attached = attached = Attached(settings, version, given, quiet=quiet)
        _register()
        attached.start()
    except Exception as error:  # noqa: BLE001 - a training never fails for its monitor
        _guard.report("attach", error)
        _guard.warn_once(f"could not attach: {error!r}")


def detach() -> None:
    """Undo :func:`attach`."""
    attached, _current.attached = _current.attached, None
    if attached is None:
        return
    try:
        attached.detach()
    except Exception as error:  # noqa: BLE001 - likewise
        _guard.report("detach", error)
    _guard.connect(None)


def _register() -> None:
    global _registered
    if _registered:
        return
    _registered = True
    atexit.register(_exit)
    _family.watch_forks(_forked)


def _forked() -> None:
    """In a forked child: leave the parent's record first, and each whatever befalls the others."""
    for renew in (_renew, _family.forked, _exit_status.disarm):
        try:
            renew()
        except Exception as error:  # noqa: BLE001 - likewise
            _guard.report("fork", error)


def _renew() -> None:
    if _current.attached is not None:
        _current.attached.forked()


def _exit() -> None:
    if _current.attached is None:
        return
    try:
        _current.attached.finish(ending())
    except Exception as error:  # noqa: BLE001 - likewise
        _guard.report("exit", error)
