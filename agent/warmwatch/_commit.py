"""The commit that is checked out where a script lies, read from Git's own files.

No process is started. What is read is bounded, and regular files alone, so nothing that somebody
put there can hold up the training; and nothing but a hash comes of it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from warmwatch._guard import pass_on

_MOST_FOLDERS = 32  # from the script up
_MOST_LINKS = 5  # of a ref that names a ref
_SMALL, _PACKED = 4 * 1024, 1024 * 1024  # bytes that are read of a file, of ``packed-refs``
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/[^\s\0]{1,240}")


def commit_of(script: str) -> str:
    """Its full hash; empty where it is not known. Files may have been changed since."""
    try:
        git = _git_folder(Path(script).resolve().parent)
        return _head(git) if git else ""
    except (OSError, ValueError, RuntimeError) as error:  # no such path, or one that leads nowhere
        pass_on(error)
        return ""


def _git_folder(folder: Path) -> Path | None:
    """Git's own folder of the innermost work tree around ``folder``, on its filesystem."""
    device = folder.stat().st_dev
    for place in (folder, *folder.parents)[:_MOST_FOLDERS]:
        if place.stat().st_dev != device:
            return None
        git = _led_to(place / ".git")
        if git and _read(git / "HEAD"):
            return git
    return None


def _led_to(path: Path) -> Path | None:
    """A folder of that name, or the one that a file of that name leads to (``git worktree``)."""
    if path.is_dir():
        return path
    kind, _, led = _read(path).partition(":")
    return path.parent / led.strip() if kind == "gitdir" and led.strip() else None


def _head(git: Path) -> str:
    common = _read(git / "commondir")
    folders = (git, git / common) if common else (git,)
    found = _read(git / "HEAD")
    for _ in range(_MOST_LINKS):
        if _COMMIT.fullmatch(found):
            return found
        ref = found.removeprefix("ref:").strip()
        if ref == found or not _REF.fullmatch(ref) or ".." in ref:
            return ""
        found = _resolved(folders, ref)
    return ""


def _resolved(folders: tuple[Path, ...], ref: str) -> str:
    """What a branch points to: in a file of its own, or among those that were packed."""
    loose = next(filter(None, (_read(folder / ref) for folder in folders)), "")
    if loose:
        return loose
    packed = _read(folders[-1] / "packed-refs", _PACKED)
    lines = (line.partition(" ") for line in packed.splitlines())
    return next((hashed for hashed, _, name in lines if name == ref), "")


def _read(path: Path, most: int = _SMALL) -> str:
    """The beginning of a regular file; empty of anything else, or where there is nothing."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return os.read(descriptor, most).decode("utf-8", "replace").strip() if regular else ""
        finally:
            os.close(descriptor)
    except OSError as error:
        pass_on(error)
        return ""
