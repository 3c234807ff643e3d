"""Shared by commands that start a training: its environment and its compile caches.

Standard library only: `warmwatch run` works without the other libraries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import warmwatch._boot
from warmwatch.shared.values import TEXT_LIMIT
from warmwatch_monitor.base.errors import UsageError
from warmwatch_monitor.output.console import note

_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def environment(
    environ: Mapping[str, str], *, run: str | None = None, started_by: str | None = None
) -> dict[str, str]:
    """``environ`` for a command whose trainings the agent attaches to.

    ``run``: the run's name, if given. ``started_by``: the id of this launch in its records.
    """
    (boot,) = warmwatch._boot.__path__  # the folder of the ``sitecustomize`` that attaches
    boot = os.path.abspath(boot)  # noqa: PTH100 - pathlib would delay the start of the command
    before = environ.get("PYTHONPATH")
    # Python ignores an empty PYTHONPATH, but an empty entry in it is the working directory
    made = {**environ, "PYTHONPATH": f"{boot}{os.pathsep}{before}" if before else boot}
    if run is not None:
        made["WARMWATCH_RUN"] = run
    if started_by is not None:
        made["WARMWATCH_STARTED_BY"] = started_by
    return made


class Caches(NamedTuple):
    """Environment variables that select the caches, and their folder, if any."""

    environ: Mapping[str, str] = MappingProxyType({})
    folder: str | None = None


@contextlib.contextmanager
def fresh_caches(*, keep: bool, used: Callable[[], bool] = lambda: False) -> Iterator[Caches]:
    """Empty compile caches, so that what is compiled does not depend on earlier runs.

    With ``keep``, the existing ones stay in use. At the end the folder is removed, unless
    ``used()`` reports that a process still uses it.
    """
    if keep:
        yield Caches()
        return
    folder = tempfile.mkdtemp(prefix="warmwatch-caches-")
    try:
        yield Caches({variable: f"{folder}/{name}" for variable, name in _CACHES.items()}, folder)
    finally:
        if not used():
            shutil.rmtree(folder, ignore_errors=True)


def check_name(run: str | None, *, room: int = 0) -> None:
    """Raises UsageError if ``run`` is empty, or is too long with ``room`` more characters."""
    if run is not None and not run.strip():
        raise UsageError("--run: give the run a name, or leave the option out")
    if run is not None and len(run) > TEXT_LIMIT - room:
        most = TEXT_LIMIT - room
        raise UsageError(f"the run's name has {len(run)} characters; --run takes at most {most}")


@contextlib.contextmanager
def startable(command: Sequence[str]) -> Iterator[None]:
    """Prints why a command cannot be started, and exits as a shell does."""
    try:
        if not command[0]:
            raise FileNotFoundError  # starting '' is reported as a lack of permission
        yield
    except FileNotFoundError:
        name = command[0] or "the command ''"
        note(f"warmwatch: {name}: not found; give what you would type without warmwatch")
        raise SystemExit(NOT_FOUND) from None
    except OSError as error:
        note(f"warmwatch: {command[0]}: cannot be run ({error.strerror})")
        raise SystemExit(NOT_EXECUTABLE) from None


NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as in shells

# Python ignores these signals, and a command would inherit that
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
_PASSED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2),
    # others that would end this process but not the command
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGABRT, signal.SIGXCPU),
    *(signal.SIGIO, signal.SIGPWR, signal.SIGTRAP, signal.SIGSYS),
)
_WAITED = (*_PASSED, signal.SIGCHLD, signal.SIGTSTP)


def become(command: tuple[str, ...], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by ``command``. Raises OSError if it cannot be run."""
    _named(command)
    for signals in _IGNORED:
        signal.signal(signals, signal.SIG_DFL)
    os.execvpe(command[0], command, environ)  # noqa: S606 - the user's own command


def supervise(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    poll: Callable[[], None],
    stopped: Callable[[], None],
    received: Callable[[int], None] = lambda _: None,
    seconds: float,
) -> int:
    """Start ``command``, wait for it and return its wait status.

    Args:
        poll: called every ``seconds``.
        stopped: called before this process stops with the command (Ctrl-Z).
        received: called with each signal that the command receives from us or from the terminal,
            except those that both ignore (``nohup``).

    Raises:
        OSError: it cannot be started.
    """
    _named(command)
    # if SIGCHLD were ignored (inherited), the kernel would discard the exit status
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
                if got is not None:  # a signal arrived while it ended
                    _report(got, received)
                # SIGCHLD is taken before a SIGTSTP, which would stop us once it is not blocked
                signal.sigtimedwait({signal.SIGTSTP}, 0)
                return status
            if got is None:
                poll()
            elif got.si_signo == signal.SIGTSTP:
                stop = got  # stop after the command has stopped: it may ignore the signal
                _pass(got, child)
            elif got.si_signo in _PASSED:
                _report(got, received)
                _pass(got, child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _report(got: signal.struct_siginfo, received: Callable[[int], None]) -> None:
    number = got.si_signo
    if number in _PASSED and signal.getsignal(number) is not signal.SIG_IGN:
        received(number)


def _pass(got: signal.struct_siginfo, child: int) -> None:
    """Forward a signal of a process. The terminal's signals reach the command directly, except
    the SIGHUP of a closed terminal: the kernel sends it to the session leader only.
    """
    from_kernel = got.si_code > 0
    to_leader = got.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
    if not from_kernel or to_leader:
        os.kill(child, got.si_signo)


def _go_on(got: signal.struct_siginfo, child: int) -> None:
    """Continue the command after we stopped it. The terminal continues what it stopped."""
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
        os._exit(128 + fatal)  # as in shells, if the signal is blocked
    os._exit(os.waitstatus_to_exitcode(status))
