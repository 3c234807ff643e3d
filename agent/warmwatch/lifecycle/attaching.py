"""Attach and detach; process exit and forks reach the agent here.

Before PyTorch imports Dynamo, an attached process holds its settings and an import watch only.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from functools import partial
from threading import RLock
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from warmwatch import _guard
from warmwatch.hooks.imports import ImportWatch
from warmwatch.lifecycle import api
from warmwatch.process import process_tree
from warmwatch.process.ending import End, ending
from warmwatch.process.settings import Settings, checked, settings_from
from warmwatch.recorder import exit_status

if TYPE_CHECKING:
    from warmwatch.lifecycle.agent import Agent


_DYNAMO = "torch._dynamo"
# Other compilers, and what runs what they compiled ahead of time; the keys of
# hooks.OTHER_COMPILERS.
_BESIDE = (
    "triton",
    "torch.utils.cpp_extension",
    "torch.export.pt2_archive._package",
    "torch._inductor.package.package",
    "torch_tensorrt.dynamo.runtime",
)


class Attached:
    """An attached process. ``options``: what the user gave to ``attach()``.

    ``quiet``: nobody has said that it trains, so it speaks at its first step or compile activity
    and not before.
    """

    def __init__(
        self, settings: Settings, version: str, options: Mapping[str, Any], *, quiet: bool = False
    ) -> None:
        self._settings, self._version, self._options = settings, version, dict(options)
        self._quiet = quiet
        self._said = {*options, *(["run"] if settings.run else [])}  # by the user
        self._at = monotonic_ns(), time_ns()
        self._agent: Agent | None = None
        self._making = RLock()
        self._watch = ImportWatch({name: partial(self._arm, name) for name in (_DYNAMO, *_BESIDE)})

    def start(self) -> None:
        """Arm the hooks as soon as Dynamo, or another compiler, is there, which may be now."""
        self._watch.start()

    @property
    def armed(self) -> bool:
        """Whether the agent was made: there is something to ask it."""
        return self._agent is not None

    @property
    def agent(self) -> Agent:
        """The agent, made when it is first asked for."""
        if self._agent is None:
            from warmwatch.lifecycle.agent import Agent

            with self._making:  # several threads may come to their first step at once
                if self._agent is None:
                    self._agent = Agent(
                        self._settings,
                        version=self._version,
                        options=self._options,
                        attached=self._at,
                        quiet=self._quiet,
                    )
                    _guard.connect(self._agent.listener.error)
        return self._agent

    def update(self, options: Mapping[str, Any]) -> None:
        """The user gave more options."""
        self._said.update(options)
        self._take(options)

    def suggest(self, options: Mapping[str, Any]) -> None:
        """A framework knows these: they hold where the user said nothing of them."""
        taken, refused = checked(options)
        for complaint in refused:
            _guard.warn_once(complaint)
        new = {name: it for name, it in taken.items() if self._options.get(name) != it}
        if left := {name: value for name, value in new.items() if name not in self._said}:
            self._take(left)

    def _take(self, options: Mapping[str, Any]) -> None:
        self._options.update(options)
        if self._agent is not None:
            self._agent.update(options)

    def speak(self) -> None:
        """The user's program attaches by itself, so it does train."""
        self._quiet = False
        if self._agent is not None:
            self._agent.speak()

    def finish(self, end: End) -> None:
        """Python ends."""
        if self._agent is not None:
            self._agent.finish(end, leaving=True)

    def forked(self) -> None:
        """In a forked child, which is another process and has said nothing yet."""
        self._at, self._making = (monotonic_ns(), time_ns()), RLock()
        if self._agent is not None:
            self._agent.forked(self._at)

    def detach(self) -> None:
        """Undo everything."""
        self._watch.stop()
        if self._agent is not None:
            self._agent.detach()

    def _arm(self, module: str) -> None:
        try:
            if module == _DYNAMO:
                self.agent.arm()
            else:
                self.agent.arm_other_compilers(module)
        except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
            _guard.report("arm", error)


_registered = False


def attach(version: str, said: Mapping[str, Any], *, quiet: bool = False) -> None:
    """Attach to this process, or tell the agent that is attached what was ``said``.

    ``quiet``: nobody has said that it trains (see ``Attached``).
    """
    try:
        given, refused = checked(said)
        for complaint in refused:
            _guard.warn_once(complaint)
        if api.attached is not None:
            api.attached.update(given)
            if not quiet:
                api.attached.speak()
            return
        settings = settings_from(os.environ)
        if settings.disabled:
            return
        for complaint in settings.complaints:
            _guard.warn_once(complaint)
        api.attached = attached = Attached(settings, version, given, quiet=quiet)
        _register()
        attached.start()
    except Exception as error:  # noqa: BLE001 - a training never fails for its monitor
        _guard.report("attach", error)
        _guard.warn_once(f"could not attach: {error!r}")


def detach() -> None:
    """Undo :func:`attach`."""
    attached, api.attached = api.attached, None
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
    process_tree.watch_forks(_forked)


def _forked() -> None:
    """In a forked child: leave the parent's record first, and each whatever befalls the others."""
    for renew in (_renew, process_tree.forked, exit_status.disarm):
        try:
            renew()
        except Exception as error:  # noqa: BLE001 - likewise
            _guard.report("fork", error)


def _renew() -> None:
    if api.attached is not None:
        api.attached.forked()


def _exit() -> None:
    if api.attached is None:
        return
    try:
        api.attached.finish(ending())
    except Exception as error:  # noqa: BLE001 - likewise
        _guard.report("exit", error)
