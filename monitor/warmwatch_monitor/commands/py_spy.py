"""Present stacks from py-spy, if it is installed and the kernel allows it.

py-spy stops the process for some milliseconds, except one that is stopped already. Its output is
reduced to what an agent would write: names, base names of files, lines.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmwatch.shared.record.stack_file import MOST_THREADS, NAME_LIMIT, Frame, ThreadStack, cut
from warmwatch.shared.values import printable
from warmwatch_monitor.base.errors import SourceError

PATIENCE = 20.0  # seconds
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_DENIED = ("permission denied", "operation not permitted")
_AGENTS = ("warmwatch/process/threads.py", "warmwatch/recorder/disk_flusher.py")
_LONGEST = 4 << 20  # bytes of an answer
_INSTALL = "pip install py-spy"
MISSING = f"py-spy is not installed here: {_INSTALL}"
_AS_ROOT = 'run it as root: sudo env "PATH=$PATH" warmwatch stacks'


def find() -> str | None:
    """py-spy next to this Python, else the first one on the path that other users cannot replace.

    Raises:
        SourceError: all of them can be replaced.
    """
    beside = Path(sys.executable).with_name("py-spy")
    if os.access(beside, os.X_OK):
        return str(beside)
    refused: list[str] = []
    for folder in os.get_exec_path():
        program = Path(folder, "py-spy").absolute()
        # not Path.is_file: it raises where a folder of PATH is another user's private one
        if not (os.path.isfile(program) and os.access(program, os.X_OK)):  # noqa: PTH113
            continue
        if (problem := replaceable(program)) is None:
            return str(program)
        refused.append(printable(f"{program}: {problem}"))
    if refused:
        raise SourceError(f"py-spy is not run ({refused[0]}); {_INSTALL}")
    return None


def replaceable(program: Path) -> str | None:
    """Why another user can replace ``program``, a folder above it, or a link's target."""
    uid, gid = os.geteuid(), os.getegid()
    for path in dict.fromkeys((program, program.resolve())):
        for item in (path, *path.parents):
            result = item.lstat()
            if result.st_uid not in (0, uid):
                return f"{item} belongs to user {result.st_uid}"
            private = result.st_gid == 0 or result.st_gid == gid == uid  # a group with one member
            others = stat.S_IWOTH if private else stat.S_IWOTH | stat.S_IWGRP
            sticky = stat.S_ISDIR(result.st_mode) and result.st_mode & stat.S_ISVTX
            if result.st_mode & others and not stat.S_ISLNK(result.st_mode) and not sticky:
                return f"other users can write to {item}"
    return None


def dump(pid: int, *, stopped: bool = False) -> tuple[ThreadStack, ...]:
    """The present threads of the process ``pid``.

    Raises:
        SourceError: py-spy failed; the message contains the remedy.
    """
    program = find()
    if program is None:
        raise SourceError(MISSING)
    command = [program, "dump", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(
            [*command, "--nonblocking"] if stopped else command,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"py-spy has not answered within {PATIENCE:g} s") from None
    except OSError as error:
        raise SourceError(f"py-spy cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        raise SourceError(_refused(done.stderr.decode(errors="replace"), pid))
    return parse(done.stdout)


def parse(answer: bytes) -> tuple[ThreadStack, ...]:
    """Its JSON, the main thread first. Raises SourceError."""
    try:
        if len(answer) > _LONGEST:
            raise ValueError
        threads = [_thread(load) for load in json.loads(answer) if not _is_agents(load)]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise SourceError("what py-spy answers cannot be read: is it another version?") from None
    return tuple(sorted(threads, key=lambda thread: not thread.main)[:MOST_THREADS])


def _is_agents(values: dict[str, Any]) -> bool:
    """Whether it is a thread of the agent, which is not of interest."""
    return any(str(frame["filename"]).endswith(_AGENTS) for frame in values["frames"][-1:])


def _thread(values: dict[str, Any]) -> ThreadStack:
    frames, left_out = cut([_frame(frame) for frame in values["frames"]])
    main = values.get("os_thread_id") == values["pid"] or values.get("thread_name") == "MainThread"
    return ThreadStack(frames=frames, left_out=left_out, main=main)


def _frame(values: dict[str, Any]) -> Frame:
    file = str(values["filename"]).rpartition("/")[2]
    return Frame(
        printable(str(values["name"])[:NAME_LIMIT]),
        printable(file[:NAME_LIMIT]),
        int(values["line"]),
    )


def _refused(message: str, pid: int) -> str:
    if any(text in message.lower() for text in _DENIED):
        return denied(_owner(pid), os.geteuid(), _scope())
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    causes = [line.partition(": ")[2] for line in lines if line.partition(": ")[0].isdigit()]
    why: Sequence[str] = [*causes[:1], *lines[:1], "it gave no reason"]
    return f"py-spy cannot read process {pid}: {printable(why[0][:200])}"


def denied(owner: int | None, uid: int, scope: int | None) -> str:
    """Why the kernel denies access, and what to do."""
    if owner not in (None, uid) and uid:
        return f"py-spy has no permission: the process belongs to user {owner}; {_AS_ROOT}"
    if scope and uid:
        return (
            f"py-spy has no permission: the kernel allows only root (kernel.yama.ptrace_scope is "
            f"{scope}); {_AS_ROOT}"
        )
    return (
        "py-spy has no permission: the kernel or the container denies it; give it SYS_PTRACE "
        f"(docker run --cap-add SYS_PTRACE), or {_AS_ROOT} on the host"
    )


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - as the other sources ask
    except OSError:
        return None


def _scope() -> int | None:
    try:
        return int(_SCOPE.read_text())
    except (OSError, ValueError):
        return None
