"""Who may read a record besides its owner: by setting, else by what its directory says.

A record tells of the user's program, so by default nobody else does. An operator whose monitor is
another user says so by the directory: a default ACL, or a group that is passed on (setgid).
"""

from __future__ import annotations

import contextlib
import os
import stat

_BITS = {"owner": 0o700, "group": 0o750, "all": 0o755}
READERS = tuple(_BITS)
_DEFAULT_ACL = "system.posix_acl_default"

FOLDER, SLOT, OTHER = 0o777, 0o444, 0o666  # of a folder, the slot, the other files


def readers(directory: str, chosen: str | None) -> str:
    """``owner``, ``group`` or ``all``. With a default ACL ``group`` stands for what that allows."""
    if chosen:
        return chosen
    with contextlib.suppress(OSError, AttributeError):
        if os.stat(directory).st_mode & stat.S_ISGID:  # noqa: PTH116 - the module is what is asked
            return "group"
    with contextlib.suppress(OSError, AttributeError):
        os.getxattr(directory, _DEFAULT_ACL)
        return "group"
    return "owner"


def mode(kind: int, who: str) -> int:
    """The mode of a file or folder (``kind``) for these readers.

    The slot is for nobody to write: the agent has it open, and an accident does not truncate it.
    """
    return kind & _BITS[who]
