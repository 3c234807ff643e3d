"""Whether this process is the training itself or a child of it.

A child never writes its training's record. Two kinds of children write none at all: data-loading
workers, and processes that import the user's main module to prepare a child or a fork server. Any
other child has a name of its own within the run, unless it turns out to be a rank.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

from warmwatch.process.torch_state import inherit_group

_PARENT, _START = 1, 19  # fields of /proc/PID/stat, counted from the one after the name

_forks = count()  # forks of this process and of its ancestors
_forks_before = 0  # those of them that happened before this process existed
_fork_name = ""  # name of this process, if it was forked
_forked_by = 0  # pid of the process that forked it
_first = 0  # pid of the ancestor that was not forked
_pid = 0  # pid of this process
# State at the time of the fork: multiprocessing's process object, environment.
_process: BaseProcess | None = None
_environ: dict[str, str] | None = None


def watch_forks(in_child: Callable[[], None]) -> None:
    """Count the children of this process, and call ``in_child`` in each; it must call ``forked``.

    The hook in the parent is a C function, in which no signal handler runs. In a Python hook, an
    exception of a signal handler (Ctrl-C) would be lost.
    """
    global _pid
    _pid = os.getpid()  # before the fork: the parent may be gone when a child looks for it
    os.register_at_fork(before=_forks.__next__, after_in_child=in_child)


def forked() -> None:
    """Update the state in a forked child, before any other code runs."""
    global _forks_before, _fork_name, _forked_by, _first, _pid, _process, _environ
    forks = next(_forks)
    number, _forks_before = forks - _forks_before, forks + 1
    _fork_name = f"{_fork_name}-{number}" if _fork_name else f"fork-{number}"
    _first = _first or _pid
    _forked_by, _pid, _process = _pid, os.getpid(), multiprocessing.current_process()
    _environ = dict(os.environ)
    inherit_group()


def child_name() -> str | None:
    """Name of this process within its run; ``None`` if it is not a child process.

    ``SpawnProcess-1`` for a child of ``multiprocessing``, ``fork-1`` after ``os.fork``. A process
    whose parent is gone continues alone, as daemons do, and is not a child.
    """
    names = []
    if multiprocessing.parent_process() is not None:
        names.append(multiprocessing.current_process().name)
    if _is_forked():
        names.append(_fork_name)
    return ".".join(names) or None


def is_daemon() -> bool:
    """Whether this is a daemonic child of ``multiprocessing``, which its parent terminates."""
    return multiprocessing.parent_process() is not None and multiprocessing.current_process().daemon


def launch_pid() -> int:
    """The pid of the training's first process, whose children the others are."""
    if _is_forked():
        return _first
    parent = multiprocessing.parent_process()
    return parent.pid if parent is not None and parent.pid else os.getpid()


def _is_forked() -> bool:
    """Whether ``os.fork`` created this process, and its parent still runs.

    After a fork by ``multiprocessing``, ``current_process()`` returns another object.
    """
    ours = multiprocessing.current_process() is _process
    return bool(_forked_by) and ours and os.getppid() == _forked_by


def start_directory() -> str | None:
    """The working directory in which the program was started, also in spawned children of it."""
    name = getattr(multiprocessing.process, "ORIGINAL_DIR", None)
    return name if isinstance(name, str) else None


def parent_of(pid: int) -> int:
    """The pid of a process's parent; 0 if unknown."""
    if pid == os.getpid():
        return os.getppid()
    return _stat(pid, _PARENT)


def process_key(pid: int) -> str:
    """Pid, pid namespace and start time of a process, the latter two if known.

    A pid alone is not unique: each container has its own, and they are reused.
    """
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{pid}:{namespace or ''}:{_stat(pid, _START) or ''}"


def _stat(pid: int, field: int) -> int:
    """A field of ``/proc/PID/stat``; 0 if unknown."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):  # another pid namespace's /proc
            return 0
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[field])
    except (OSError, ValueError, IndexError):
        return 0


def is_preparing() -> bool:
    """Whether ``multiprocessing`` imports the main module in a child that has not started."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def is_data_worker() -> bool:
    """Whether this is a worker of a ``DataLoader``, which may compile its own transforms."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def inherited(name: str) -> str | None:
    """An environment variable as it was when this process started or was forked.

    If ``RANK`` was set at the start, it is the parent's; if it changed since, it is this child's.
    """
    if _environ is not None:
        return _environ.get(name)
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ.get(name)
    prefix = os.fsencode(name) + b"="
    return next((os.fsdecode(e[len(prefix) :]) for e in entries if e.startswith(prefix)), None)
