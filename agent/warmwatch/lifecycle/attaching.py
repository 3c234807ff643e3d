"""Attach and detach, and the exit and fork handlers of the process.

Before PyTorch imports Dynamo, an attached process has only its settings and an import watch.
``api`` imports this module when one of its functions is called, and none here imports ``api``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from threading import RLock
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from warmwatch import _guard
from warmwatch.hooks.installation import ImportWatch
from warmwatch.hooks.training import process_groups
from warmwatch.process import process_tree
from warmwatch.process.ending import End, current_end, on_exit
from warmwatch.process.settings import Settings, checked, settings_from
from warmwatch.recorder import exit_status
from warmwatch.shared.fallbacks import REFUSED_CALLS

if TYPE_CHECKING:
    from warmwatch.lifecycle.agent import Agent


_DYNAMO = "torch._dynamo"
# Other compilers, and loaders of code that was compiled ahead of time: the keys of
# ``hooks.registry.OTHER_COMPILERS``.
_OTHER_COMPILERS = (
    "triton",
    "torch.utils.cpp_extension",
    "torch.export._trace",
    "torch.export.pt2_archive._package",
    "torch._inductor.package.package",
    "torch_tensorrt.dynamo.runtime",
)


class Attached:
    """An attached process.

    Args:
        options: arguments of ``attach()``.
        deferred: under ``warmwatch run``, where a process may not train at all: create the record
            at the first step or compile activity, or earlier of a rank with peers.
        on_dynamo: called when Dynamo has been imported, before the hooks are armed.
    """

    def __init__(
        self,
        settings: Settings,
        version: str,
        options: Mapping[str, Any],
        *,
        deferred: bool,
        on_dynamo: Callable[[], None],
    ) -> None:
        self._on_dynamo = on_dynamo
        self._settings, self._version, self._options = settings, version, dict(options)
        self._deferred = deferred
        self._set_by_user = {*options, *(["run"] if settings.run else [])}
        self._at = monotonic_ns(), time_ns()
        self._agent: Agent | None = None
        self._creating = RLock()
        self._leave_groups: Callable[[], None] | None = None
        modules = (_DYNAMO, *_OTHER_COMPILERS, process_groups.MODULE)
        self._watch = ImportWatch({name: partial(self._arm, name) for name in modules})

    def start(self) -> None:
        """Arm the hooks as soon as Dynamo or another compiler is imported."""
        self._watch.start()

    @property
    def armed(self) -> bool:
        """Whether the agent exists."""
        return self._agent is not None

    @property
    def agent(self) -> Agent:
        """The agent, created on first access."""
        if self._agent is None:
            from warmwatch.lifecycle.agent import Agent  # helper processes need none

            with self._creating:  # several threads may make their first step simultaneously
                if self._agent is None:
                    self._agent = Agent(
                        self._settings,
                        version=self._version,
                        options=self._options,
                        attached=self._at,
                        deferred=self._deferred,
                    )
                    _guard.connect(self._agent.listener.error)
        return self._agent

    report = staticmethod(_guard.report)  # for ``api``, which unattached processes load, too

    def update(self, options: Mapping[str, Any]) -> None:
        """Apply options that the user passed."""
        self._set_by_user.update(options)
        self._apply(options)

    def suggest(self, options: Mapping[str, Any]) -> None:
        """Apply a framework's options, except those that the user has set."""
        valid, complaints = checked(options)
        for complaint in complaints:
            _guard.warn_once(complaint)
        new = {name: it for name, it in valid.items() if self._options.get(name) != it}
        if unset := {name: value for name, value in new.items() if name not in self._set_by_user}:
            self._apply(unset)

    def _apply(self, options: Mapping[str, Any]) -> None:
        self._options.update(options)
        if self._agent is not None:
            self._agent.update(options)

    def end_deferral(self) -> None:
        """The user's program attaches by itself, so it does train."""
        self._deferred = False
        if self._agent is not None:
            self._agent.end_deferral()

    def finish(self, end: End) -> None:
        """Record the end when Python exits."""
        if self._agent is not None or end.refusal in REFUSED_CALLS:
            self.agent.finish(end, leaving=True)

    def forked(self) -> None:
        """Replace the state in a forked child, which is a process of its own."""
        self._at, self._creating = (monotonic_ns(), time_ns()), RLock()
        if self._agent is not None:
            self._agent.forked(self._at)

    def detach(self) -> None:
        """Undo :func:`attach`."""
        global _attached
        _attached = None
        try:
            self._watch.stop()
            if self._leave_groups is not None:
                self._leave_groups()
            if self._agent is not None:
                self._agent.detach()
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            _guard.report("detach", error)
        _guard.connect(None)

    def _arm(self, module: str) -> None:
        try:
            if module == _DYNAMO:
                self._on_dynamo()
                self.agent.arm()
            elif module == process_groups.MODULE:
                self._leave_groups = process_groups.install(lambda: self.agent.open_if_rank())
            else:
                self.agent.arm_other_compilers(module)
        except Exception as error:  # noqa: BLE001 - the import is the training's, not ours
            _guard.report("arm", error)


_attached: Attached | None = None
_registered = False


def attach(
    version: str,
    options: Mapping[str, Any],
    *,
    on_dynamo: Callable[[], None],
    deferred: bool = False,
) -> Attached | None:
    """Attach to this process, or update the options of the attached agent; returns it.

    ``deferred``, ``on_dynamo``: see ``Attached``.
    """
    global _attached
    try:
        valid, complaints = checked(options)
        for complaint in complaints:
            _guard.warn_once(complaint)
        if _attached is not None:
            _attached.update(valid)
            if not deferred:
                _attached.end_deferral()
            return _attached
        settings = settings_from(os.environ)
        if settings.disabled:
            return None
        for complaint in settings.complaints:
            _guard.warn_once(complaint)
        _attached = Attached(settings, version, valid, deferred=deferred, on_dynamo=on_dynamo)
        _register()
        _attached.start()
    except Exception as error:  # noqa: BLE001 - a training never fails for its monitor
        _guard.report("attach", error)
        _guard.warn_once(f"could not attach: {error!r}")
    return _attached


def _register() -> None:
    global _registered
    if _registered:
        return
    _registered = True
    on_exit(_exit)
    process_tree.watch_forks(_forked)


def _forked() -> None:
    """Run in a forked child. Leave the parent's record first; each call runs even if one fails."""
    for renew in (_renew, process_tree.forked, exit_status.disarm):
        try:
            renew()
        except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
            _guard.report("fork", error)


def _renew() -> None:
    if _attached is not None:
        _attached.forked()


def _exit() -> None:
    if _attached is None:
        return
    try:
        _attached.finish(current_end())
    except Exception as error:  # noqa: BLE001 - a guest: counted, never raised
        _guard.report("exit", error)
