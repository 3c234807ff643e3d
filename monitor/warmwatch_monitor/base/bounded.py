"""Files that a command reads whole, up to a size. What is longer was not made for it."""

from __future__ import annotations

import errno
import os
import stat


def read_text(path: str | os.PathLike[str], most: int, *, pipes: bool = False) -> str:
    """The text of a file of at most ``most`` bytes.

    ``pipes``: also wait for a pipe or a device, such as that of ``<(command)`` in a shell.

    Raises:
        OSError: it cannot be read; the message has the reason. UnicodeDecodeError: it is not UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if pipes else os.O_NONBLOCK))
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind) or not (pipes or stat.S_ISREG(kind)):
            what = "a directory" if stat.S_ISDIR(kind) else "a special file"
            raise OSError(errno.EINVAL, f"it is {what}")
        content = bytearray()
        while len(content) <= most:
            part = os.read(descriptor, min(1 << 20, most + 1 - len(content)))
            if not part:
                return content.decode()
            content += part
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"it is larger than {_size(most)}")


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
