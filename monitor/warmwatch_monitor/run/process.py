"""Replaces this process by a command, or waits for one with as little effect as possible.

Beside it: the command is in our process group, so the terminal is its own, and what the terminal
sends (Ctrl-C, Ctrl-Z) it gets itself. What somebody sends to us alone is passed on. We end as it
ends: by its exit code, or by the signal that killed it.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Mapping
from typing import NoReturn

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have it

# Python ignores these, which a command would inherit
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_PASSED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2),
    # what else would end us, and leave the command without us
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGABRT, signal.SIGXCPU),
    *(signal.SIGIO, signal.SIGPWR, signal.SIGTRAP, signal.SIGSYS),
)
_WAITED = (*_PASSED, signal.SIGCHLD, signal.SIGTSTP)


def become(command: tuple[str, ...], environ: Mapping[str, str]) -> NoReturn:
    """Be ``command`` from here on. Raises OSError where it cannot be."""
    _named(command)
    for one in _IGNORED:
        signal.signal(one, signal.SIG_DFL)
    os.execvpe(command[0], command, environ)  # noqa: S606 - what the user asked for


def attend(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    look: Callable[[], None],
    stopped: Callable[[], None],
    heard: Callable[[int], None] = lambda _: None,
    seconds: float,
) -> int:
    """Start ``command`` and look every ``seconds`` until it ends; its wait status.

    ``stopped``: called before we stop with it (Ctrl-Z). ``heard``: with each signal that reaches it
    through us or beside us (Ctrl-C), but for what both were started to ignore (``nohup``). Raises
    OSError where it cannot be started.
    """
    _named(command)
    # inherited as ignored, the kernel would keep nothing of how the command ended
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    try:
        child = os.posix_spawnp(command[0], command, environ, setsigmask=before, setsigdef=_IGNORED)
        stop: signal.struct_siginfo | None = None
        while True:
            got = signal.sigtimedwait(_WAITED, seconds)
            ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                if os.WSTOPSIG(status) == signal.SIGTSTP:
                    stopped()
                    os.kill(os.getpid(), signal.SIGSTOP)
                    if stop is not None:
                        _go_on(stop, child)
            elif ended:
                if got is not None:  # it was the quicker of the two
                    _hear(got, heard)
                return status
            if got is None:
                look()
            elif got.si_signo == signal.SIGTSTP:
                stop = got  # we stop once the command has: it may ignore that
                _pass(got, child)
            elif got.si_signo in _PASSED:
                _hear(got, heard)
                _pass(got, child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hear(got: signal.struct_siginfo, heard: Callable[[int], None]) -> None:
    number = got.si_signo
    if number in _PASSED and signal.getsignal(number) is not signal.SIG_IGN:
        heard(number)


def _pass(got: signal.struct_siginfo, child: int) -> None:
    """The terminal sends to all of its foreground, a process to us alone."""
    if got.si_code <= 0:  # SI_USER and its like; what the kernel sends is above
        os.kill(child, got.si_signo)


def _go_on(got: signal.struct_siginfo, child: int) -> None:
    """We go on: so does what was stopped by us, and not by the terminal, which wakes it too."""
    if got.si_code <= 0:
        os.kill(child, signal.SIGCONT)


def _named(command: tuple[str, ...]) -> None:
    if not command[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def end_as(status: int) -> NoReturn:
    """End as the process with this wait status did."""
    if os.WIFSIGNALED(status):
        fatal = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if fatal != signal.SIGKILL:
            signal.signal(fatal, signal.SIG_DFL)
        os.kill(os.getpid(), fatal)
        os._exit(128 + fatal)  # as a shell has it, where somebody above us had it blocked
    os._exit(os.waitstatus_to_exitcode(status))
