"""Where this process stands in a training: the training itself, or a child of one.

What a training starts never speaks for it. A process that prepares a child (it imports the user's
main module again, or for a fork server), and one that loads data, say nothing at all. Any other
child has a name of its own within the run, unless it turns out to be a rank.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

_PARENT, _START = 1, 19  # fields of /proc/PID/stat, counted from the one after the name

_forks = count()  # forks of this process, and of those that it comes from
_forks_before = 0  # of those, in which it was not there yet
_fork_name = ""  # this one's name, where it was forked
_forked_by = 0  # the pid of the process that did
_first = 0  # and of the one that was not forked itself
_pid = 0  # this one's
_process: BaseProcess | None = None  # what multiprocessing knew of it when it was forked
_environ: dict[str, str] | None = None  # the environment that it had then
_group: ReferenceType[Any] | None = None  # and its process group, which lives as long as it would


def watch_forks(in_child: Callable[[], None]) -> None:
    """Count the children of this process, and call ``in_child`` in each, which calls ``forked``.

    What is called in the parent is C's, in which no signal handler runs: what one raises in a hook
    of Python's, such as a Ctrl-C, is lost.
    """
    global _pid
    _pid = os.getpid()  # known before: when a child looks for its parent, that one may be gone
    os.register_at_fork(before=_forks.__next__, after_in_child=in_child)


def forked() -> None:
    """In a forked child, before any other code."""
    global _forks_before, _fork_name, _forked_by, _first, _pid, _process, _environ, _group
    forks = next(_forks)
    number, _forks_before = forks - _forks_before, forks + 1
    _fork_name = f"{_fork_name}-{number}" if _fork_name else f"fork-{number}"
    _first = _first or _pid
    _forked_by, _pid, _process = _pid, os.getpid(), multiprocessing.current_process()
    _environ, group = dict(os.environ), _initialized_group()
    _group = None if group is None else ref(group)


def child_name() -> str | None:
    """This process's name among those of its run; ``None`` where it is nobody's child.

    ``SpawnProcess-1`` as ``multiprocessing`` has it, ``fork-1`` after a bare ``os.fork``. One whose
    parent is gone was made to go on alone, as daemons do, and is nobody's child.
    """
    names = []
    if multiprocessing.parent_process() is not None:
        names.append(multiprocessing.current_process().name)
    if _is_forked():
        names.append(_fork_name)
    return ".".join(names) or None


def launch_pid() -> int:
    """The pid of the process that the children of a training come from: its own in that one."""
    if _is_forked():
        return _first
    parent = multiprocessing.parent_process()
    return parent.pid if parent is not None and parent.pid else os.getpid()


def _is_forked() -> bool:
    """Whether it was forked by hand, by a process that is still there.

    ``multiprocessing`` forks too, and gives what it forked another process object right after.
    """
    ours = multiprocessing.current_process() is _process
    return bool(_forked_by) and ours and os.getppid() == _forked_by


def parent_of(pid: int) -> int:
    """The pid of a process's parent; 0 where that is not to be known."""
    if pid == os.getpid():
        return os.getppid()
    return _stat(pid, _PARENT)


def which(pid: int) -> str:
    """Which process has this pid: with its pid namespace and its start, as far as they are known.

    A pid alone is that of another process in each container, and of a later one in time.
    """
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{pid}:{namespace or ''}:{_stat(pid, _START) or ''}"


def _stat(pid: int, field: int) -> int:
    """A number that the kernel tells of a process; 0 where it does not, or of other processes."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):  # others than ours
            return 0
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[field])
    except (OSError, ValueError, IndexError):
        return 0


def is_preparing() -> bool:
    """Whether the main module is being imported for a child that is still to begin its work."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def is_data_worker() -> bool:
    """Whether this is a data-loading worker, which may compile its own transforms."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def own_group() -> bool:
    """Whether the process group is initialized, and not by the process that forked this one."""
    group = _initialized_group()
    return group is not None and (_group is None or group is not _group())


def _initialized_group() -> object:
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module.group.WORLD


def inherited(name: str) -> str | None:
    """An environment variable as it was when this process's program was started, or it was forked.

    A launcher's rank that only a child has set is the child's own; one that was there at the start
    is its parent's.
    """
    if _environ is not None:
        return _environ.get(name)
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ.get(name)
    prefix = os.fsencode(name) + b"="
    return next((os.fsdecode(e[len(prefix) :]) for e in entries if e.startswith(prefix)), None)
