"""One record's folder, opened for one look: whose it is, and its files, which must be that user's.

A record speaks for its owner alone, so whose it is, is what the kernel says of the folder and of
each file in it, of the opened ones and not of their names: what somebody hard-links into a folder
of his, or renames into its place between two looks, is another user's and refused. So is a file
that everybody may write to: nobody knows whose words those are.
"""

from __future__ import annotations

import os
import stat
from types import TracebackType

from warmwatch.record import RecordError

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a fifo must not hang us


class Folder:
    """The folder at ``path``; ``owner`` is its user's number. Open until the ``with`` ends.

    Raises:
        OSError: it cannot be opened, or is none. RecordError: everybody may write to it.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, _FOLDER)
        status = os.fstat(self._descriptor)
        self.owner = status.st_uid
        if status.st_mode & stat.S_IWOTH:
            os.close(self._descriptor)
            raise RecordError(_open_to_all("it", status))

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def size(self, name: str) -> int:
        """Of the file ``name``, in bytes. Raises OSError."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_size

    def open(self, name: str) -> tuple[int, os.stat_result]:
        """A descriptor of the file ``name``, for the caller to close, and its status.

        Raises:
            OSError: it cannot be opened. RecordError: it is no file of the folder's owner's.
        """
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        status = os.fstat(descriptor)
        if (problem := self._problem(name, status)) is not None:
            os.close(descriptor)
            raise RecordError(problem)
        return descriptor, status

    def _problem(self, name: str, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return f"its {name} is not a regular file"
        if status.st_uid != self.owner:
            return (
                f"its {name} belongs to user {status.st_uid} and its folder to user {self.owner}: "
                "a record has one owner"
            )
        return _open_to_all(f"its {name}", status) if status.st_mode & stat.S_IWOTH else None


def _open_to_all(what: str, status: os.stat_result) -> str:
    mode = stat.S_IMODE(status.st_mode)
    return f"everybody may write to {what} (mode {mode:04o}), so nobody knows who speaks: chmod o-w"
