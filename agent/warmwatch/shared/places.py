"""The directories for records, and whether a record can be created there."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

SHARED = "/run/warmwatch"
_MEMORY = "/dev/shm"  # noqa: S108 - the agent checks its owner
_MEMORY_LEFT = 16 * 1024 * 1024  # a container has 64 MiB there, and a record takes less than 1 MiB
_WRITE_AND_ENTER = 2 | 1  # os.W_OK | os.X_OK


if TYPE_CHECKING:
    from typing import Protocol

    class _Status(Protocol):
        @property
        def st_mode(self) -> int: ...
        @property
        def st_uid(self) -> int: ...

    class _Room(Protocol):
        @property
        def f_blocks(self) -> int: ...
        @property
        def f_bavail(self) -> int: ...
        @property
        def f_frsize(self) -> int: ...

    class World(Protocol):
        """The needed functions of the file system: the module ``os``, or a test's replacement."""

        def stat(self, path: str, /) -> _Status: ...
        def lstat(self, path: str, /) -> _Status: ...
        def access(self, path: str, mode: int, /) -> bool: ...
        def geteuid(self) -> int: ...
        def statvfs(self, path: str, /) -> _Room: ...


def directories(environ: Mapping[str, str], uid: int, start: str | None = None) -> tuple[str, ...]:
    """The directories for records, best first. An agent uses the first that it can write to.

    Readers read all of them. If ``WARMWATCH_DIR`` is set, only that one; else ``/run/warmwatch``,
    the user's runtime directory, and a folder of the user in ``/dev/shm`` or the temporary
    directory. In-memory file systems come first: there a record costs least, and no disk delays it.

    ``start``: where the program was started, which it may have left; a relative one is below it.
    """
    if chosen := environ.get("WARMWATCH_DIR"):
        return (chosen if chosen.startswith("/") or not start else f"{start}/{chosen}",)
    runtime = runtime_directory(environ, uid)
    temporary = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the agent checks its owner
    own = f"warmwatch-{uid}"
    return (SHARED, f"{runtime}/warmwatch", f"{_MEMORY}/{own}", f"{temporary}/{own}")


def runtime_directory(environ: Mapping[str, str], uid: int) -> str:
    """The user's runtime directory, which no other user can enter."""
    return environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"


def obstacle(directory: str, world: World, *, chosen: bool) -> str | None:
    """Why no record can be created in ``directory``; ``None`` if one can.

    A directory that the user ``chose`` is used as it is, and created with its parents. A default
    directory needs its parent, and must not be another user's folder; only the administrator
    creates the shared one. The agent and ``doctor`` both use this.
    """
    if not chosen and directory.startswith(f"{_MEMORY}/") and _is_scarce(world):
        return f"less than {_MEMORY_LEFT >> 20} MiB are left in {_MEMORY}"
    try:
        status = (world.stat if chosen else world.lstat)(directory)
    except FileNotFoundError:
        if directory == SHARED and not chosen:
            return "it does not exist"
        return _cannot_be_made(directory, world, chosen=chosen)
    except OSError as error:
        return f"it cannot be accessed: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if not chosen and (problem := distrust(status, world.geteuid())) is not None:
        return problem
    return None if world.access(directory, _WRITE_AND_ENTER) else "it cannot be written"


def distrust(status: _Status, uid: int) -> str | None:
    """Why ``uid`` does not trust a default directory; ``None`` if it is the user's or root's.

    A user who may rename its entries could hide records. Root's directories are always trusted.
    """
    if status.st_uid not in (0, uid):
        return f"it belongs to user {status.st_uid}"
    if status.st_uid and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return "everybody may remove what is in it: chmod o-w, or name it in WARMWATCH_DIR"
    return None


def _is_scarce(world: World) -> bool:
    try:
        there = world.statvfs(_MEMORY)
    except OSError:
        return False  # a missing directory has a message of its own
    if not there.f_blocks:  # no limit
        return False
    return there.f_bavail * there.f_frsize < _MEMORY_LEFT


def _cannot_be_made(directory: str, world: World, *, chosen: bool) -> str | None:
    """Why a missing directory cannot be created, judged by its nearest existing parent."""
    above = _parent(directory)
    while True:
        try:
            status = world.stat(above)
        except FileNotFoundError:
            if not chosen or above == _parent(above):
                return f"it does not exist, nor does {above}"
            above = _parent(above)
            continue
        except OSError as error:
            return f"it cannot be accessed: {error.strerror}"
        can = stat.S_ISDIR(status.st_mode) and world.access(above, _WRITE_AND_ENTER)
        return None if can else f"it does not exist and cannot be made in {above}"


def _parent(path: str) -> str:
    above, _, _ = path.rstrip("/").rpartition("/")
    return above or ("/" if path.startswith("/") else ".")
