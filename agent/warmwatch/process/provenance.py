"""Provenance of a run: script, commit, versions, and the state of its compile caches at the start.

The commit is read from Git's files; no command is run.
"""

from __future__ import annotations

import getpass
import os
import re
import stat
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from warmwatch._guard import pass_on, quietly
from warmwatch.process.threads import MaskedThread, locked, release

_MOST_FOLDERS = 32  # parent directories of the script
_MOST_LINKS = 5  # symbolic refs
_SMALL, _PACKED = 4 * 1024, 1024 * 1024  # bytes read of a file, and of ``packed-refs``
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/[^\s\0]{1,240}")


def commit_of(script: str) -> str:
    """The full hash of the checked-out commit; empty if unknown. Files may have changed since."""
    try:
        git = _git_folder(Path(script).resolve().parent)
        return _head(git) if git else ""
    except (OSError, ValueError, RuntimeError) as error:  # no such path, or a loop of links
        pass_on(error)
        return ""


def _git_folder(folder: Path) -> Path | None:
    """The ``.git`` folder of the innermost work tree around ``folder``, on its filesystem."""
    device = folder.stat().st_dev
    for place in (folder, *folder.parents)[:_MOST_FOLDERS]:
        if place.stat().st_dev != device:
            return None
        git = _resolved_git(place / ".git")
        if git and _read(git / "HEAD"):
            return git
    return None


def _resolved_git(path: Path) -> Path | None:
    """``path`` if it is a folder, or the folder that the file names (``git worktree``)."""
    if path.is_dir():
        return path
    kind, _, target = _read(path).partition(":")
    return path.parent / target.strip() if kind == "gitdir" and target.strip() else None


def _head(git: Path) -> str:
    common = _read(git / "commondir")
    folders = (git, git / common) if common else (git,)
    name = _read(git / "HEAD")
    for _ in range(_MOST_LINKS):
        if _COMMIT.fullmatch(name):
            return name
        ref = name.removeprefix("ref:").strip()
        if ref == name or not _REF.fullmatch(ref) or ".." in ref:
            return ""
        name = _resolved(folders, ref)
    return ""


def _resolved(folders: tuple[Path, ...], ref: str) -> str:
    """The content of a ref: from its own file, or from ``packed-refs``."""
    loose = next(filter(None, (_read(folder / ref) for folder in folders)), "")
    if loose:
        return loose
    packed = _read(folders[-1] / "packed-refs", _PACKED)
    lines = (line.partition(" ") for line in packed.splitlines())
    return next((hashed for hashed, _, name in lines if name == ref), "")


def _read(path: Path, most: int = _SMALL) -> str:
    """The beginning of a regular file; empty for any other path."""
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


_NO_SCRIPTS = ("", "-c", "-m", "-", "ipykernel_launcher.py", "colab_kernel_launcher.py")
_MOST_ENTRIES = 16  # read per cache directory; an empty cache may have locks in it
_NO_ENTRIES = ("locks", ".lock")


def at_start(environ: Mapping[str, str], timeout: float) -> dict[str, Any]:
    """Identity fields that are known when a run begins; empty after ``timeout`` seconds."""
    values, groups, done = dict(environ), list[dict[str, Any]](), locked()

    def look() -> None:
        try:
            groups.append(quietly("provenance", _read_from_disk, values) or {})
        finally:
            release(done)

    if MaskedThread(look).start():
        done.acquire(timeout=timeout)
    return groups[0] if groups else {}


def _read_from_disk(environ: Mapping[str, str]) -> dict[str, Any]:
    path = script_path()
    name = script(path)
    return {
        "script": name,
        "commit": commit_of(path) if name else "",
        "caches": caches(environ),
    }


def script_path() -> str:
    """The path of the script; may be relative to the working directory at the start."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return main if isinstance(main, str) else sys.argv[0] if sys.argv else ""


def script(path: str) -> str:
    """The base name of a script, the package's for ``-m package``; empty if there is none."""
    last = Path(path)
    name = last.parent.name if last.name == "__main__.py" else last.name
    return "" if name in _NO_SCRIPTS else name


def caches(environ: Mapping[str, str]) -> dict[str, str]:
    """``cold`` or ``warm`` for the cache directories of Inductor and of Triton.

    A cache with any entry, of any model, is warm. Caches that are off or unreadable are left out.
    """
    if environ.get("TORCHINDUCTOR_FORCE_DISABLE_CACHES") == "1":
        return {}
    inductor = inductor_cache(environ)
    triton = Path(environ.get("TRITON_CACHE_DIR") or inductor / "triton")
    states = {"inductor": _state(inductor), "triton": _state(triton)}
    return {cache: state for cache, state in states.items() if state}


def inductor_cache(environ: Mapping[str, str]) -> Path:
    """The directory as PyTorch 2.6 to 2.15 chooses it. PyTorch's own function would create it."""
    if chosen := environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(chosen)
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError) as error:
        pass_on(error)
        user = f"uid_{os.getuid()}"
    return _temporary(environ) / ("torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def _temporary(environ: Mapping[str, str]) -> Path:
    """The directory as ``tempfile`` chooses it. ``tempfile.gettempdir`` would write to it."""
    chosen = getattr(sys.modules.get("tempfile"), "tempdir", None)
    if isinstance(chosen, str):
        return Path(chosen)
    named = [Path(environ[name]) for name in ("TMPDIR", "TEMP", "TMP") if environ.get(name)]
    return next((folder for folder in named if folder.is_dir()), Path("/tmp"))  # noqa: S108


def _state(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    except (OSError, ValueError) as error:
        pass_on(error)
        return "cold" if isinstance(error, FileNotFoundError | NotADirectoryError) else ""
    return "warm" if any(not name.endswith(_NO_ENTRIES) for name in names) else "cold"
